"""Measured starts: medians of earlier ones, phases passed over, and silence where nothing is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.pods.discovered import StartPhase
from services.core.pods.starting import ORDER, StartTimes
from services.core.units import Duration, seconds

SCHEDULED, PULLING, LOADING, READY = StartPhase
NOTHING = Duration(0)


def started(*starts: tuple[float, float, float]) -> StartTimes:
    """Times after whole starts, each given by the seconds of its three phases."""
    times = StartTimes()
    for start in starts:
        for before, after, took in zip(ORDER, (PULLING, LOADING, READY), start, strict=True):
            times.advanced(before, after, seconds(took))
    return times


def test_nothing_is_known_before_a_start_was_seen() -> None:
    assert StartTimes().remaining(SCHEDULED, NOTHING) is None


@pytest.mark.parametrize(
    ("phase", "lasted_s", "left_s"),
    [(SCHEDULED, 0, 72), (SCHEDULED, 1, 71), (PULLING, 4, 66), (LOADING, 0, 60)],
)
def test_the_rest_is_the_median_of_this_phase_and_those_after(
    phase: StartPhase, lasted_s: float, left_s: float
) -> None:
    times = started((2, 10, 60), (1, 5, 50), (3, 20, 90))
    assert times.remaining(phase, seconds(lasted_s)) == seconds(left_s)


def test_a_start_that_overruns_is_measured_by_those_that_took_as_long_and_then_by_none() -> None:
    times = started((0, 0, 50), (0, 0, 60), (0, 0, 90))
    assert times.remaining(LOADING, seconds(55)) == seconds(20)
    assert times.remaining(LOADING, seconds(61)) == seconds(29)
    assert times.remaining(LOADING, seconds(91)) is None


def test_a_phase_passed_over_took_no_time() -> None:
    times = StartTimes()
    times.advanced(SCHEDULED, LOADING, seconds(2))
    assert times.remaining(SCHEDULED, NOTHING) is None
    times.advanced(LOADING, READY, seconds(30))
    assert times.remaining(SCHEDULED, NOTHING) == seconds(32)
    times.advanced(SCHEDULED, READY, seconds(4))
    assert times.remaining(SCHEDULED, seconds(1)) == seconds(3 - 1 + 15)


@pytest.mark.parametrize(("before", "after"), [(LOADING, SCHEDULED), (READY, LOADING), (LOADING, None)])
def test_a_start_begun_anew_or_lost_from_sight_teaches_nothing(
    before: StartPhase, after: StartPhase | None
) -> None:
    times = StartTimes()
    times.advanced(before, after, seconds(5))
    assert all(times.remaining(phase, NOTHING) is None for phase in ORDER)


def test_a_clock_that_disagrees_counts_as_no_time() -> None:
    times = StartTimes()
    times.advanced(LOADING, READY, seconds(-3))
    assert times.remaining(LOADING, NOTHING) == NOTHING


def test_only_the_latest_starts_count() -> None:
    times = started(*[(0, 0, 10.0)] * 40, *[(0, 0, 70.0)] * 32)
    assert times.remaining(LOADING, NOTHING) == seconds(70)


@given(st.lists(st.tuples(*[st.floats(0, 1e4)] * 3), max_size=40), st.sampled_from(ORDER), st.floats(0, 1e4))
def test_what_is_left_is_never_negative(
    starts: list[tuple[float, float, float]], phase: StartPhase, lasted_s: float
) -> None:
    """The remaining time is unknown or not negative, and no more than the longest start seen."""
    left = started(*starts).remaining(phase, seconds(lasted_s))
    assert left is None or 0 <= left <= seconds(sum(map(max, zip(*starts, strict=True)))) + 3
