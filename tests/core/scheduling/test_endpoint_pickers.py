"""Pickers of tier 1: shares over many requests, fallbacks, filters before, and what is told of them."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.fleet import Candidate, LoadReport
from services.core.outcomes import DropReason
from services.core.scheduling.board import Board
from services.core.scheduling.draws import words
from services.core.scheduling.endpoint_filters import (
    AttributeRange,
    LabelSelector,
    Operator,
    Requirement,
    SessionPin,
    Utilization,
)
from services.core.scheduling.endpoint_pickers import Told, best_first, pick_endpoint, tell
from services.core.scheduling.pickers import Choice
from services.core.scheduling.profile import ENDPOINTS, Picker, SchedulingProfile, Weighted, endpoint_profile
from services.core.scheduling.scorers.fit import Attribute
from services.core.scheduling.scorers.load import KvUse, Queue
from services.core.scheduling.signals import NO_SIGNALS, Signals
from tests.core.scheduling.fleets import request
from tests.core.scheduling.pods import arrive, members, pod

REQUESTS = 1500


def pick(
    profile: SchedulingProfile,
    *pods: Candidate,
    number: int = 0,
    signals: Signals = NO_SIGNALS,
    own: dict[str, int] | None = None,
    turn: int = 0,
) -> Choice | DropReason:
    board = Board(members(*pods), profile, degraded=False)
    points = words(request(number).request_id)
    return pick_endpoint(board, arrive(board.endpoints, signals, own=own), profile, points, turn)


def chosen(profile: SchedulingProfile, *pods: Candidate, count: int = REQUESTS) -> Counter[str]:
    counts: Counter[str] = Counter()
    for number in range(count):
        choice = pick(profile, *pods, number=number, turn=number)
        assert isinstance(choice, Choice)
        assert len({choice.target, *choice.fallbacks}) == 1 + len(choice.fallbacks)
        counts[choice.target] += 1
    return counts


def near(counts: Counter[str], expected: dict[str, float], slack: float = 0.05) -> bool:
    total = sum(counts.values())
    return set(counts) == set(expected) and all(
        abs(counts[name] / total - share) <= slack for name, share in expected.items()
    )


def waiting(name: str, count: float, kv_use: float = 0.0) -> Candidate:
    return pod(name, LoadReport(waiting=count, running=0, kv_use=kv_use))


# --- Best score -------------------------------------------------------------------------------------------


def test_the_best_score_wins_and_the_rest_follow_in_order() -> None:
    choice = pick(ENDPOINTS, waiting("worst", 10, 0.9), waiting("best", 0), waiting("middle", 5, 0.5))
    assert choice == Choice("best", ("middle", "worst"))


def test_ties_are_broken_evenly_by_the_request() -> None:
    counts = chosen(ENDPOINTS, waiting("a", 0), waiting("busy", 9), waiting("b", 0), waiting("c", 0))
    assert near(counts, dict.fromkeys("abc", 1 / 3))


def test_own_requests_since_the_scrape_turn_the_choice() -> None:
    pods = (waiting("a", 0), waiting("b", 2))
    assert pick(ENDPOINTS, *pods) == Choice("a", ("b",))
    assert pick(ENDPOINTS, *pods, own={"a": 3}) == Choice("b", ("a",))


@pytest.mark.parametrize("fallbacks", [0, 2, 6])
@pytest.mark.parametrize("picker", [each for each in Picker if each is not Picker.WEIGHTED_DRAW])
def test_every_picker_names_as_many_distinct_fallbacks_as_it_may(picker: Picker, fallbacks: int) -> None:
    profile = endpoint_profile(picker, (Weighted(Queue()), Weighted(KvUse())), fallbacks=fallbacks)
    choice = pick(profile, *[waiting(f"e{number}", number) for number in range(9)])
    assert isinstance(choice, Choice)
    assert len(choice.fallbacks) == fallbacks
    assert len({choice.target, *choice.fallbacks}) == fallbacks + 1
    assert pick(profile, waiting("alone", 0)) == Choice("alone", ())


@pytest.mark.parametrize("number", range(5))
def test_an_unknown_signal_scores_as_the_pools_mean(number: int) -> None:
    pods = (waiting("bad", 10, 0.9), pod("unknown"), waiting("good", 0))
    assert pick(ENDPOINTS, *pods, number=number) == Choice("good", ("unknown", "bad"))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(0, 2**64 - 1), st.integers(1, 5))
def test_the_best_come_first(scores: list[int], word: int, count: int) -> None:
    """Invariant: the places are distinct and their scores are the largest, in falling order."""
    places = best_first(scores, word, min(count, len(scores)))
    assert len(set(places)) == len(places) == min(count, len(scores))
    assert [scores[place] for place in places] == sorted(scores, reverse=True)[: len(places)]


# --- The others -------------------------------------------------------------------------------------------

FOUR = tuple(waiting(name, count) for name, count in (("a", 0), ("b", 9), ("c", 9), ("d", 9)))


def test_random_is_even_whatever_the_load() -> None:
    assert near(chosen(endpoint_profile(Picker.RANDOM), *FOUR), dict.fromkeys("abcd", 0.25))


def test_round_robin_takes_turns() -> None:
    profile = endpoint_profile(Picker.ROUND_ROBIN, fallbacks=2)
    assert [pick(profile, *FOUR, turn=turn) for turn in (0, 1, 3)] == [
        Choice("a", ("b", "c")),
        Choice("b", ("c", "d")),
        Choice("d", ("a", "b")),
    ]
    assert chosen(profile, *FOUR, count=100) == dict.fromkeys("abcd", 25)


def test_least_outstanding_goes_by_running_waiting_and_own_requests() -> None:
    profile = endpoint_profile(Picker.LEAST_OUTSTANDING)
    pods = (
        pod("runs", LoadReport(waiting=0, running=5)),
        pod("waits", LoadReport(waiting=4, running=0)),
        pod("both", LoadReport(waiting=3, running=3)),
    )
    assert pick(profile, *pods) == Choice("waits", ("runs", "both"))
    assert pick(profile, *pods, own={"waits": 2, "both": -3}) == Choice("both", ("runs", "waits"))


def weighty(name: str, weight: float) -> Candidate:
    return pod(name, labels={"w": str(weight)})


BY_WEIGHT = endpoint_profile(
    Picker.WEIGHTED_RANDOM, (Weighted(Attribute("w", prefer_high=True, span=(0.0, 10.0))),)
)


def test_weighted_random_draws_by_score_and_never_who_scores_0() -> None:
    pods = (weighty("three", 3), weighty("nothing", 0), weighty("one", 1))
    assert near(chosen(BY_WEIGHT, *pods), {"three": 0.75, "one": 0.25})
    choice = pick(BY_WEIGHT, *pods)
    assert isinstance(choice, Choice)
    assert "nothing" not in choice.fallbacks


def test_when_everybody_scores_0_all_are_equal() -> None:
    assert near(chosen(BY_WEIGHT, weighty("a", 0), weighty("b", 0)), {"a": 0.5, "b": 0.5})


# --- Filters ----------------------------------------------------------------------------------------------

GOLD = LabelSelector((Requirement("tier", Operator.IN, frozenset({"gold"})),))
BUSY = LoadReport(waiting=9, running=0, saturation=2.0)
FREE = LoadReport(waiting=0, running=0, saturation=0.1)


def tiered(name: str, tier: str, load: LoadReport) -> Candidate:
    return pod(name, load, labels={"tier": tier})


def with_filters(*filters: SessionPin | LabelSelector | Utilization | AttributeRange) -> SchedulingProfile:
    return endpoint_profile(scorers=(Weighted(Queue()),), filters=filters)


def test_a_filter_that_binds_binds_fallbacks_too() -> None:
    pods = (tiered("a", "gold", BUSY), tiered("b", "iron", FREE), tiered("c", "gold", FREE))
    assert pick(with_filters(GOLD), *pods) == Choice("c", ("a",))


def test_a_filter_that_only_prefers_leaves_the_others_as_fallbacks() -> None:
    pods = (tiered("a", "gold", BUSY), tiered("b", "iron", FREE), tiered("c", "gold", FREE))
    pinned = Signals(session="a")
    assert pick(with_filters(SessionPin()), *pods, signals=pinned, own={"b": 1}) == Choice("a", ("c", "b"))
    assert pick(with_filters(SessionPin()), *pods) == pick(with_filters(), *pods)
    assert pick(with_filters(SessionPin(), GOLD), *pods, signals=pinned) == Choice("a", ("c",))
    assert pick(with_filters(GOLD, SessionPin()), *pods, signals=pinned) == Choice("a", ("c",))
    assert pick(with_filters(Utilization(), SessionPin()), *pods, signals=Signals(session="c")) == Choice(
        "c", ("b", "a")
    )


def test_with_enough_left_no_fallback_is_fetched_from_outside() -> None:
    pods = [tiered(f"f{number}", "gold", FREE) for number in range(6)]
    choice = pick(with_filters(Utilization()), tiered("busy", "gold", BUSY), *pods)
    assert isinstance(choice, Choice)
    assert "busy" not in {choice.target, *choice.fallbacks}


def none_left() -> AttributeRange:
    return AttributeRange("waiting", high=-1.0)


@pytest.mark.parametrize(
    ("make", "reason"),
    [(lambda: GOLD, DropReason.NO_HEALTHY_CLUSTER), (none_left, DropReason.SATURATED)],
)
def test_nobody_left_is_the_filters_reason(
    make: Callable[[], LabelSelector | AttributeRange], reason: DropReason
) -> None:
    pods = (tiered("a", "iron", BUSY), tiered("b", "iron", FREE))
    assert pick(with_filters(SessionPin(), make()), *pods, signals=Signals(session="a")) is reason


def test_what_a_wish_left_out_may_be_barred_as_fallback() -> None:
    """The pin keeps `a`; of those it left out nobody is gold, so there is nobody to fall back to."""
    pods = (tiered("a", "gold", BUSY), tiered("b", "iron", FREE))
    assert pick(with_filters(SessionPin(), GOLD), *pods, signals=Signals(session="a")) == Choice("a", ())


def test_it_is_told_who_was_left_out_by_what_and_how_the_others_scored() -> None:
    pods = (tiered("a", "gold", BUSY), tiered("b", "iron", FREE), tiered("c", "gold", FREE))
    profile = with_filters(GOLD, Utilization())
    board = Board(members(*pods), profile, degraded=False)
    assert tell(board, arrive(board.endpoints), profile) == {
        "a": Told(left_out_by="utilization"),
        "b": Told(left_out_by="labels"),
        "c": Told((("queue", 1.0),)),
    }
