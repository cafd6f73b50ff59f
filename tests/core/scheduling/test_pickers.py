"""The picker of tier 2: shares over many requests, fallbacks, exclusions, trials."""

from collections import Counter
from collections.abc import Collection

from services.core.fleet import Candidate, HealthState
from services.core.outcomes import DropReason
from services.core.residency import ANYWHERE
from services.core.scheduling.draws import words
from services.core.scheduling.pickers import FALLBACKS_MAX, Choice, Excluded, weighted_draw
from tests.core.scheduling.fleets import (
    AP_SOUTH,
    EU_NORTH,
    MODEL,
    US_EAST,
    cluster,
    fleet,
    request,
)

GONE = DropReason.NO_HEALTHY_CLUSTER
REQUESTS = 6000


def draw(
    *candidates: Candidate,
    number: int = 0,
    excluded: Excluded | None = None,
    tried: Collection[str] = (),
    free: Collection[str] = (),
) -> Choice | None:
    prepared = fleet(*candidates)
    plan = prepared.plan(MODEL, ANYWHERE, sheddable=False)
    points = words(request(number).request_id)
    return weighted_draw(plan, points, prepared.regions, excluded or {}, tried, free.__contains__)


def targets(
    *candidates: Candidate, excluded: Excluded | None = None, free: Collection[str] = ()
) -> Counter[str]:
    prepared = fleet(*candidates)
    plan = prepared.plan(MODEL, ANYWHERE, sheddable=False)
    counts: Counter[str] = Counter()
    for number in range(REQUESTS):
        points = words(request(number).request_id)
        choice = weighted_draw(plan, points, prepared.regions, excluded or {}, (), free.__contains__)
        assert choice is not None
        counts[choice.target] += 1
    return counts


THREE = (cluster("a", capacity=500), cluster("b", capacity=300), cluster("c", capacity=200))


def within(counts: Counter[str], expected: dict[str, float], slack: float = 0.02) -> bool:
    return set(counts) == set(expected) and all(
        abs(counts[name] / counts.total() - share) < slack for name, share in expected.items()
    )


def test_traffic_follows_the_weights() -> None:
    assert within(targets(*THREE), {"a": 0.5, "b": 0.3, "c": 0.2})


def test_what_an_excluded_cluster_had_is_spread_by_the_same_weights() -> None:
    assert within(targets(*THREE, excluded={"a": GONE}), {"b": 0.6, "c": 0.4})


def test_first_fallbacks_spread_a_dead_clusters_traffic_by_weight() -> None:
    """No herd: those whose target was `a` do not all fall back to the largest of the others."""
    prepared = fleet(*THREE)
    plan = prepared.plan(MODEL, ANYWHERE, sheddable=False)
    counts: Counter[str] = Counter()
    for number in range(REQUESTS):
        choice = weighted_draw(
            plan, words(request(number).request_id), prepared.regions, {}, (), [].__contains__
        )
        assert choice is not None
        if choice.target == "a":
            counts[choice.fallbacks[0]] += 1
    assert within(counts, {"b": 0.6, "c": 0.4}, 0.03)


def test_fallbacks_are_distinct_near_first_then_elsewhere() -> None:
    near = [cluster(f"n{number}") for number in range(6)]
    choice = draw(*near, cluster("f1", EU_NORTH), cluster("f2", US_EAST), cluster("f3", US_EAST))
    assert choice is not None
    assert len(choice.fallbacks) == FALLBACKS_MAX
    assert len({choice.target, *choice.fallbacks}) == FALLBACKS_MAX + 1
    assert all(name.startswith("n") for name in (choice.target, *choice.fallbacks[:2]))
    assert choice.fallbacks[2] == "f1"
    assert choice.fallbacks[3] in {"f2", "f3"}


def test_fallbacks_without_another_region_fill_from_the_same() -> None:
    choice = draw(*[cluster(f"n{number}") for number in range(6)])
    assert choice is not None
    assert len({choice.target, *choice.fallbacks}) == FALLBACKS_MAX + 1


def test_fallbacks_use_levels_that_carry_no_load() -> None:
    choice = draw(cluster("a"), cluster("b", EU_NORTH), cluster("c", AP_SOUTH))
    assert choice is not None
    assert (choice.target, choice.fallbacks[0], set(choice.fallbacks)) == ("a", "b", {"b", "c"})


def test_a_single_cluster_has_no_fallback() -> None:
    assert draw(cluster("a")) == Choice("a", ())


def test_excluded_and_tried_are_neither_target_nor_fallback() -> None:
    candidates = (*THREE, cluster("d", US_EAST), cluster("e", US_EAST))
    for number in range(60):
        choice = draw(*candidates, number=number, excluded={"a": GONE, "d": GONE}, tried=["b"])
        assert choice is not None
        assert (choice.target, choice.fallbacks) == ("c", ("e",))
        assert set(choice.passed_over) <= {"a", "b"}


def test_when_the_loaded_levels_have_left_the_reserves_serve() -> None:
    choice = draw(cluster("a"), cluster("b", US_EAST), excluded={"a": GONE})
    assert choice == Choice("b", (), ("a",))


def test_nobody_left_is_no_choice() -> None:
    assert draw(cluster("a"), cluster("b", US_EAST), excluded={"a": GONE}, tried={"b"}) is None


# --- Trials -----------------------------------------------------------------------------------------------

ON_TRIAL = (cluster("a"), cluster("p", state=HealthState.PROBATION))


def test_trials_get_their_share_when_free_and_none_when_not() -> None:
    assert within(targets(*ON_TRIAL, free={"p"}), {"a": 0.95, "p": 0.05}, 0.01)
    assert set(targets(*ON_TRIAL)) == {"a"}


def test_a_trial_is_marked_and_has_proven_fallbacks() -> None:
    trials = [
        choice
        for number in range(300)
        if (choice := draw(*ON_TRIAL, number=number, free={"p"})) and choice.trial
    ]
    assert trials
    assert {(choice.target, choice.fallbacks) for choice in trials} == {("p", ("a",))}


def test_a_trial_that_is_not_free_is_passed_over() -> None:
    met = [draw(*ON_TRIAL, number=number) for number in range(300)]
    assert {choice.passed_over for choice in met if choice} == {(), ("p",)}


def test_with_nobody_else_trials_carry_what_they_may() -> None:
    alone = cluster("p", state=HealthState.PROBATION)
    other = cluster("q", state=HealthState.PROBATION)
    assert draw(alone, free={"p"}) == Choice("p", (), (), trial=True)
    assert draw(alone) is None
    assert draw(alone, free={"p"}, excluded={"p": GONE}) is None
    for number in range(20):
        choice = draw(alone, other, number=number, free={"q"})
        assert choice is not None
        assert (choice.target, choice.trial) == ("q", True)
