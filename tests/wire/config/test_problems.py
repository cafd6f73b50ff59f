import pytest

from services.wire.config.problems import Problem, Severity, path_text, value_text


def test_a_problem_is_one_line_of_file_path_value_and_rule() -> None:
    assert str(Problem("f.yaml", 0, "spec.x", "'v'", "is wrong")) == "f.yaml: spec.x: 'v': is wrong"


def test_later_documents_and_warnings_are_told_apart() -> None:
    problem = Problem("f.yaml", 2, "spec.x", "1", "is odd", Severity.WARNING)
    assert str(problem) == "f.yaml#3: spec.x: 1: warning: is odd"


@pytest.mark.parametrize(
    ("location", "text"),
    [
        (("spec", "clusters", 2, "jurisdiction"), "spec.clusters[2].jurisdiction"),
        ((0, "a"), "[0].a"),
        ((), "(document)"),
        (("spec", "a\nb"), r"spec.'a\nb'"),
    ],
)
def test_paths(location: tuple[str | int, ...], text: str) -> None:
    assert path_text(location) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("EU", "'EU'"),
        ("a\nb", r"'a\nb'"),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1.5, "1.5"),
        ({"a": 1}, "a mapping of 1"),
        ([1, 2], "a list of 2"),
        ((), "a list of 0"),
        ("redis://user:hunter2@host", "'redis://***@host'"),
    ],
)
def test_values_are_short_and_hold_no_credentials(value: object, text: str) -> None:
    assert value_text(value) == text


def test_long_values_are_cut() -> None:
    assert len(value_text("x" * 10_000_000)) == 83
