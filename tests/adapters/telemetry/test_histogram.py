"""Histograms: every value is in exactly one bucket, and counts up to a bound are those of sorted values."""

from hypothesis import given
from hypothesis import strategies as st

from services.adapters.telemetry.histogram import LATENCY_SECONDS, Histogram


@given(st.lists(st.floats(0, 5000)))
def test_counts_are_those_of_a_sorted_list(values: list[float]) -> None:
    """For every bound, the cumulative count is the number of values not above it."""
    found = Histogram(LATENCY_SECONDS)
    for value in values:
        found.observe(value)
    for bound, count in zip((*LATENCY_SECONDS, float("inf")), found.cumulative(), strict=True):
        assert count == sum(value <= bound for value in values)
