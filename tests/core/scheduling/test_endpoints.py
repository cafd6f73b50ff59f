"""Endpoints side by side: corrected loads, the mean for what is unknown, the bound on affinity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.fleet import LoadReport
from services.core.scheduling.endpoints import AFFINITY_BOUND, or_mean
from services.core.scheduling.signals import Signals
from tests.core.scheduling.pods import arrive, endpoints, labelled, loaded, pod


def test_outstanding_is_waiting_and_running_and_what_was_sent_since() -> None:
    found = loaded(LoadReport(waiting=2, running=3), LoadReport(running=7), LoadReport(waiting=4))
    assert len(found) == 3
    assert found.outstanding == [5.0, 7.0, 4.0]
    arrival = arrive(found, own={"p0": 4, "p2": -1})
    assert arrival.outstanding == [9.0, 7.0, 3.0]
    assert arrival.outstanding is arrival.outstanding


def test_one_that_does_not_tell_has_as_many_as_the_others() -> None:
    assert loaded(LoadReport(), LoadReport(running=4), LoadReport(running=2)).outstanding == [3.0, 4.0, 2.0]
    assert loaded(LoadReport(), LoadReport()).outstanding == [0.0, 0.0]
    assert or_mean([]) == []


def test_labels_are_read_by_position() -> None:
    assert labelled({"a": "1"}, {}).labels("a") == ["1", None]


def test_an_arrival_moves_before_other_endpoints_with_all_it_knows() -> None:
    signals = Signals(adapter="x")
    before = arrive(endpoints(pod("a"), pod("b")), signals, own={"b": 3}, tokens={"b": 9}, cold={"b": 1})
    after = before.before(endpoints(pod("b")))
    assert (after.own, after.tokens, after.cold, after.signals) == ([3], [9], {"b": 1}, signals)
    assert after.point == before.point


def test_warm_endpoints_are_those_within_the_bound() -> None:
    found = loaded(*[LoadReport(running=count) for count in (30, 5, 5, 0)])
    arrival = arrive(found, Signals({"p0": 9, "p1": 4, "gone": 3}, total_blocks=10))
    assert arrival.bound == 13
    assert arrival.warm() == [(1, 4)]


@pytest.mark.parametrize(
    ("loads", "bound"),
    [([0, 0, 0, 0], 1), ([1, 0, 0, 0], 1), ([3, 0, 0, 0], 2), ([10] * 4, 13), ([7], 10)],
)
def test_the_bound_is_c_times_the_mean_with_this_request_rounded_up(loads: list[float], bound: int) -> None:
    assert arrive(loaded(*[LoadReport(running=count) for count in loads])).bound == bound


@given(st.lists(st.integers(0, 200), min_size=1, max_size=30))
def test_somebody_is_always_within_the_bound(loads: list[int]) -> None:
    """Invariant: the least loaded endpoint keeps its affinity, and nobody above c x (mean + 1 / n) + 1 does."""
    arrival = arrive(loaded(*[LoadReport(running=count) for count in loads]))
    assert min(loads) + 1 <= arrival.bound
    assert arrival.bound < AFFINITY_BOUND * (sum(loads) + 1) / len(loads) + 1


def test_no_load_is_below_none() -> None:
    """What ended since the scrape may have been no part of it; an idle pool keeps its affinity all the same."""
    arrival = arrive(
        loaded(*[LoadReport(running=count) for count in (0, 0, 2)]),
        Signals({"p0": 9, "p1": 4}, total_blocks=10),
        own={"p0": -3, "p2": -1},
    )
    assert arrival.outstanding == [0.0, 0.0, 1.0]
    assert arrival.bound == 1
    assert arrival.warm() == [(0, 9), (1, 4)]
