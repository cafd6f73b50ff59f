"""Quantiles of the last minute from growing counts: the window, restarts, merging."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.pods.reading import BucketCounts
from services.core.pods.ttft import TtftWindow, merge, quantile_ms
from services.core.units import Instant, seconds

BOUNDS = (0.1, 0.5, math.inf)


def counts(*numbers: float) -> BucketCounts:
    return BucketCounts(BOUNDS, numbers)


def at(second: float) -> Instant:
    return Instant(seconds(second))


def test_the_first_reading_is_the_line_to_count_from() -> None:
    window = TtftWindow()
    assert window.recent() is None
    window.add(counts(5, 6, 7), at(0))
    assert window.recent() == counts(0, 0, 0)
    window.add(counts(6, 9, 10), at(0.2))
    assert window.recent() == counts(1, 3, 3)


def test_what_is_older_than_a_minute_leaves_the_window() -> None:
    window = TtftWindow()
    for second in range(121):
        window.add(counts(second, second, second), at(second))
    assert window.recent() == counts(60, 60, 60)


def test_a_restart_loses_nothing_already_counted_and_counts_nothing_twice() -> None:
    window = TtftWindow()
    window.add(counts(10, 10, 10), at(0))
    window.add(counts(12, 14, 14), at(1))
    window.add(counts(0, 1, 3), at(2))
    assert window.recent() == counts(2, 5, 7)


def test_other_buckets_start_the_window_anew() -> None:
    window = TtftWindow()
    window.add(counts(1, 1, 1), at(0))
    other = BucketCounts((1.0, math.inf), (4.0, 4.0))
    window.add(other, at(1))
    assert window.recent() == BucketCounts((1.0, math.inf), (0.0, 0.0))


def test_merging_adds_windows_alike_and_leaves_others_out() -> None:
    odd = BucketCounts((1.0, math.inf), (9.0, 9.0))
    assert merge([None, counts(1, 2, 3), odd, counts(1, 1, 1)]) == counts(2, 3, 4)
    assert merge([None]) is None


@pytest.mark.parametrize(
    ("window", "share", "expected"),
    [
        (counts(10, 10, 10), 0.5, 50.0),
        (counts(0, 10, 10), 0.5, 300.0),
        (counts(5, 10, 10), 0.95, 460.0),
        (counts(0, 0, 10), 0.5, 500.0),
        (counts(0, 0, 0), 0.5, None),
        (BucketCounts((), ()), 0.5, None),
        (None, 0.5, None),
        (BucketCounts((0.1, 0.5), (1.0, 1.0)), 2.0, 500.0),
    ],
)
def test_quantiles(window: BucketCounts | None, share: float, expected: float | None) -> None:
    assert quantile_ms(window, share) == (None if expected is None else pytest.approx(expected))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=40)
)
def test_the_window_counts_every_observation_once(steps: list[tuple[int, int, int, bool]]) -> None:
    """Invariant: over any growth and any restarts that shrink a count, the window equals what was observed."""
    window = TtftWindow()
    life = observed = (0, 0, 0)
    window.add(counts(*map(float, life)), at(0))
    for number, (first, second, third, restarts) in enumerate(steps):
        gain = (first, first + second, first + second + third)
        shrinks = restarts and any(new < old for new, old in zip(gain, life, strict=True))
        life = gain if shrinks else tuple(old + new for old, new in zip(life, gain, strict=True))  # type: ignore[assignment] # three by three
        observed = tuple(old + new for old, new in zip(observed, gain, strict=True))  # type: ignore[assignment] # three by three
        window.add(counts(*map(float, life)), at(number / 10))
    assert window.recent() == counts(*map(float, observed))
