from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.inference import ModelName
from services.core.models.rewrites import PoolRewrites, Rewrite, RewriteRule, Split, Target

BASE, OLD, NEW, OTHER = (ModelName(name) for name in ("base", "base-v1", "base-v2", "other"))


def split(*targets: tuple[ModelName, int]) -> Split:
    return Split("canary", [Target(model, weight) for model, weight in targets])


def shares(table: Split) -> dict[str, float]:
    return {model: round(table.share(model), 6) for model in (OLD, NEW, OTHER)}


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ([(OLD, 90), (NEW, 10)], {OLD: 0.9, NEW: 0.1, OTHER: 0.0}),
        ([(OLD, 1), (NEW, 1_000_000)], {OLD: 0.000001, NEW: 0.999999, OTHER: 0.0}),
        ([(OLD, 3), (NEW, 0), (OTHER, 1)], {OLD: 0.75, NEW: 0.0, OTHER: 0.25}),
        ([(OLD, 0), (NEW, 0)], {OLD: 0.5, NEW: 0.5, OTHER: 0.0}),
        ([(OLD, 1), (NEW, 2), (OLD, 1)], {OLD: 0.5, NEW: 0.5, OTHER: 0.0}),
        ([(OLD, 0)], {OLD: 1.0, NEW: 0.0, OTHER: 0.0}),
    ],
    ids=[
        "proportional",
        "thin",
        "unweighted-never-beside-weighted",
        "all-zero-uniform",
        "same-twice",
        "single",
    ],
)
def test_weights_are_shares(targets: list[tuple[ModelName, int]], expected: dict[str, float]) -> None:
    assert shares(split(*targets)) == expected


def test_draws_follow_the_shares_and_repeat() -> None:
    table = split((OLD, 90), (NEW, 10))
    drawn = [table.draw(f"request-{i}") for i in range(4000)]
    assert drawn == [table.draw(f"request-{i}") for i in range(4000)]
    assert 0.08 < Counter(drawn)[NEW] / 4000 < 0.12


def test_two_rewrites_draw_independently() -> None:
    one, two = (Split(name, [Target(OLD, 1), Target(NEW, 1)]) for name in ("one", "two"))
    both = Counter((one.draw(f"r{i}"), two.draw(f"r{i}")) for i in range(4000))
    assert all(0.2 < count / 4000 < 0.3 for count in both.values())
    assert len(both) == 4


@given(st.text(), st.lists(st.integers(0, 1_000_000), min_size=1, max_size=8))
def test_a_draw_is_a_target_with_a_share(draw_by: str, weights: list[int]) -> None:
    """Invariant: whatever the id, a target is drawn that has a weight, or any when none has one."""
    targets = [Target(ModelName(f"m{i}"), weight) for i, weight in enumerate(weights)]
    drawn = Split("canary", targets).draw(draw_by)
    weight = next(target.weight for target in targets if target.model == drawn)
    assert weight > 0 or not any(weights)


def rewrite(
    name: str, created_at_ms: int, *rules: tuple[tuple[ModelName, ...], tuple[ModelName, ...]]
) -> Rewrite:
    return Rewrite(
        name,
        "pool",
        created_at_ms,
        tuple(RewriteRule(matches, tuple(map(Target, targets))) for matches, targets in rules),
    )


def applied(rewrites: list[Rewrite], *names: ModelName) -> tuple[str, tuple[ModelName, ...]] | None:
    chosen = PoolRewrites(rewrites).applying_to(*names)
    return None if chosen is None else (chosen.rewrite, chosen.split.models if chosen.split else ())


def test_an_exact_match_goes_before_an_older_generic_one() -> None:
    rewrites = [rewrite("generic", 1, ((), (OTHER,))), rewrite("exact", 2, ((BASE,), (NEW,)))]
    assert applied(rewrites, BASE) == ("exact", (NEW,))
    assert applied(rewrites, OLD) == ("generic", (OTHER,))


def test_of_two_exact_matches_the_older_counts_and_of_equally_old_ones_the_first_by_name() -> None:
    young, old = rewrite("a", 2, ((BASE,), (NEW,))), rewrite("b", 1, ((BASE,), (OLD,)))
    assert applied([young, old], BASE) == applied([old, young], BASE) == ("b", (OLD,))
    twin = rewrite("c", 1, ((BASE,), (OTHER,)))
    assert applied([twin, old], BASE) == ("b", (OLD,))


def test_of_two_generic_rules_the_older_counts() -> None:
    rewrites = [rewrite("a", 2, ((), (NEW,))), rewrite("b", 1, ((), (OLD,)))]
    assert applied(rewrites, BASE) == ("b", (OLD,))


def test_within_a_rewrite_the_first_rule_counts() -> None:
    one = rewrite("one", 1, ((BASE, OLD), (NEW,)), ((BASE,), (OTHER,)), ((), (OLD,)), ((), (NEW,)))
    assert applied([one], BASE) == ("one", (NEW,))
    assert applied([one], OTHER) == ("one", (OLD,))


def test_a_rule_without_targets_leaves_the_model_alone() -> None:
    assert applied([rewrite("one", 1, ((BASE,), ()), ((), (NEW,)))], BASE) == ("one", ())


def test_names_are_tried_in_order_and_without_a_rule_there_is_none() -> None:
    one = rewrite("one", 1, ((OLD,), (OTHER,)), ((BASE,), (NEW,)))
    assert applied([one], BASE, OLD) == ("one", (NEW,))
    assert applied([one], OTHER, OLD) == ("one", (OTHER,))
    assert applied([one], OTHER) is None
