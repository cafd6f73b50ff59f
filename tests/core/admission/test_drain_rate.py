"""The measured drain rate, and promises to come back that do not fall into one second."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.admission.drain_rate import (
    RETRY_AFTER_MAX,
    RETRY_AFTER_MIN,
    DrainRate,
    Promises,
    retry_after,
)
from services.core.units import seconds
from tests.core.admission.shapes import START, at


def test_nothing_sent_is_no_rate() -> None:
    assert DrainRate(START).per_second(at(5)) == 0.0


def test_the_first_dispatch_of_all_is_one_a_second() -> None:
    rate = DrainRate(START)
    rate.add(START)
    assert rate.per_second(START) == 1.0


def test_a_steady_stream_is_its_rate_before_and_after_the_window_is_full() -> None:
    rate = DrainRate(START)
    for dispatch in range(400):
        rate.add(at(dispatch / 10))
        if dispatch == 39:
            assert rate.per_second(at(4)) == pytest.approx(10.0)
    assert rate.per_second(at(40)) == pytest.approx(10.0, rel=0.06)


def test_the_window_forgets() -> None:
    rate = DrainRate(START)
    for _ in range(50):
        rate.add(START)
    assert rate.per_second(at(9)) == pytest.approx(50 / 9)
    assert rate.per_second(at(10)) == 0.0
    rate.add(at(1000))
    assert rate.per_second(at(1000)) == pytest.approx(1 / 9.5)


def test_an_instant_before_the_latest_counts_in_the_latest_slice() -> None:
    rate = DrainRate(START)
    rate.add(at(3))
    rate.add(at(2))
    assert rate.per_second(at(4)) == pytest.approx(0.5)


def test_callers_refused_together_are_told_different_times() -> None:
    promises = Promises(START)
    told = [retry_after(10, 2.0, promises, START) for _ in range(5)]
    assert told == [seconds(5.5), seconds(6), seconds(6.5), seconds(7), seconds(7.5)]


def test_who_is_due_is_not_away_any_more() -> None:
    promises = Promises(START)
    retry_after(9, 2.0, promises, START)
    promises.turn(at(4))
    assert promises.outstanding == 1
    promises.turn(at(5))
    assert promises.outstanding == 0
    promises.turn(at(4))
    assert promises.outstanding == 0
    retry_after(0, 1.0, promises, START)
    promises.turn(at(1000))
    assert promises.outstanding == 0


def test_the_bounds_are_one_second_and_one_minute() -> None:
    assert retry_after(0, 1000.0, Promises(START), START) == RETRY_AFTER_MIN
    assert retry_after(10_000, 1.0, Promises(START), START) == RETRY_AFTER_MAX
    assert retry_after(0, 0.0, Promises(START), START) == RETRY_AFTER_MAX


@given(
    st.lists(st.floats(0, 100), max_size=60).map(sorted),
    st.integers(0, 500),
    st.just(0.0) | st.floats(0.1, 50),
)
def test_outstanding_is_the_number_of_those_not_due(moments: list[float], ahead: int, rate: float) -> None:
    """Outstanding promises are exactly those whose second has not come."""
    promises = Promises(START)
    due: list[int] = []
    for moment in moments:
        now = at(moment)
        due.append((now + retry_after(ahead, rate, promises, now)) // seconds(1))
        assert promises.outstanding == sum(second > now // seconds(1) for second in due)
