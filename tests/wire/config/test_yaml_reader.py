import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.wire.config.yaml_reader import MAX_FILE_BYTES, YamlError, read_yaml


def read(text: str) -> list[object]:
    return read_yaml(text.encode())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: no", {"a": "no"}),
        ("a: on", {"a": "on"}),
        ("a: 1:30", {"a": "1:30"}),
        ("a: 2020-01-01", {"a": "2020-01-01"}),
        ("a: 1_000", {"a": "1_000"}),
        ("a: true", {"a": True}),
        ("a: False", {"a": False}),
        ("a: ~", {"a": None}),
        ("a:", {"a": None}),
        ("a: ''", {"a": ""}),
        ("a: '5'", {"a": "5"}),
        ("a: -5", {"a": -5}),
        ("a: 0", {"a": 0}),
        ("a: 1.5e3", {"a": 1500.0}),
        ("a: .5", {"a": 0.5}),
        ("a: -.inf", {"a": -math.inf}),
        ("a: |\n  x\n", {"a": "x\n"}),
        ("[1, [2], {b: 3}]", [1, [2], {"b": 3}]),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("&k a: 1\nb: *k", {"a": 1, "b": "a"}),
    ],
)
def test_values_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    assert read(text) == [value]


def test_nan_is_a_number() -> None:
    (value,) = read(".nan")
    assert isinstance(value, float)
    assert math.isnan(value)


def test_a_stream_has_several_documents_and_empty_ones_are_null() -> None:
    assert read("a: 1\n---\n---\nb: 2\n") == [{"a": 1}, None, {"b": 2}]
    assert read("") == []


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        ("a: [\n", 2, "not YAML: did not find expected node content"),
        ("a:\n\t- b", 2, "not YAML: found character that cannot start any token"),
        ("a: b: c", 1, "not YAML: mapping values are not allowed"),
        ("b: 1\na: 1\na: 2", 3, "key 'a' is given twice"),
        ("&a a: 1\n*a : 2", 2, "key 'a' is given twice"),
        ("a: &x [*x]", 1, "alias \\*x names nothing"),
        ("a: &x 1\n---\nb: *x", 3, "alias \\*x names nothing"),
        ("? [1]\n: 2", 1, "a key must be text"),
        ("? {a: 1}\n: 2", 1, "a key must be text"),
        ("1: 2", 1, "key 1: a key must be text; write it in quotes"),
        ("null: 2", 1, "key None: a key must be text"),
        ("a: 010", 1, "010: a number must not begin with 0"),
        ("a: " + "9" * 5000, 1, "a number has at most 20 digits"),
        ("!!python/object:os.system 1", 1, "tags are not used here"),
        ("a: !!set {b, c}", 1, "tags are not used here"),
        ("- !x [1]", 1, "tags are not used here"),
        ("\n\na: \x00", 3, "not YAML: control characters are not allowed"),
        ("[" * 40, 1, "nested deeper than 32 levels"),
        ("[" * 100_000, 1, "not YAML: exceeded maximum nesting depth|nested deeper"),
        ("%YAML 9.9\n---\na: 1", 1, "not YAML"),
    ],
)
def test_refused_text_is_told_with_its_line(text: str, line: int, rule: str) -> None:
    with pytest.raises(YamlError, match=rule) as refused:
        read(text)
    assert refused.value.line == line
    assert refused.value.column >= 1


def test_text_that_is_not_utf_8_is_told_with_its_place() -> None:
    with pytest.raises(YamlError, match="line 2 column 4: not UTF-8"):
        read_yaml(b"a: 1\nb: \xff")


def test_an_alias_bomb_is_bounded_by_what_it_would_become() -> None:
    """Nine levels of ten aliases each are 600 bytes and a thousand million values."""
    lines = ["- &a [1,1,1,1,1,1,1,1,1,1]"]
    lines += [f"- &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]" for i in range(8)]
    with pytest.raises(YamlError, match="more than 200000 values after the expansion of aliases"):
        read("\n".join(lines))


def test_files_beyond_the_bound_are_refused_unread() -> None:
    with pytest.raises(YamlError, match="exceed the bound of 4194304"):
        read_yaml(b"x" * (MAX_FILE_BYTES + 1))


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Invariant: no bytes make the reader raise anything but YamlError."""
    with contextlib.suppress(YamlError):
        assert isinstance(read_yaml(data), list)


@given(st.text(alphabet="ab:-[]{}&*!?|>'\"#%@ \n\t,01.~", max_size=60))
def test_any_yaml_like_text_is_read_or_refused(text: str) -> None:
    """Invariant: no text of YAML's own characters makes the reader raise anything but YamlError."""
    with contextlib.suppress(YamlError):
        assert isinstance(read(text), list)
