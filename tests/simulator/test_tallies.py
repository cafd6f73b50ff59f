from hypothesis import given
from hypothesis import strategies as st

from services.simulator.tallies import DurationHistogram


def test_a_bound_belongs_to_its_own_bucket() -> None:
    histogram = DurationHistogram((0.01, 0.1))
    histogram.observe(10_000_000)
    histogram.observe(10_000_001, times=2)
    histogram.observe(200_000_000)
    assert histogram.counts == [1, 2, 1]
    assert histogram.count == 4
    assert histogram.sum_ns == 10_000_000 + 2 * 10_000_001 + 200_000_000


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 9))))
def test_nothing_observed_is_lost(observations: list[tuple[int, int]]) -> None:
    """Invariant: the buckets sum to the count, whatever is observed."""
    histogram = DurationHistogram((0.01, 0.1, 1.0))
    for duration_ns, times in observations:
        histogram.observe(duration_ns, times)
    assert sum(histogram.counts) == histogram.count == sum(times for _, times in observations)
