"""The bucket bounds retries in every window, not only on average."""

from hypothesis import given
from hypothesis import strategies as st

from services.core.failover.retry_budget import RetryBudget
from services.core.policy import FailoverPolicy

POLICY = FailoverPolicy()


def test_three_retries_then_one_per_five_first_attempts() -> None:
    budget = RetryBudget(POLICY)
    assert [budget.take() for _ in range(4)] == [True, True, True, False]
    for _ in range(4):
        budget.earn()
    assert not budget.take()
    budget.earn()
    assert budget.available == 1.0
    assert budget.take()
    assert budget.denied == 2


def test_the_bucket_never_holds_more_than_its_size() -> None:
    budget = RetryBudget(POLICY)
    budget.earn()
    assert budget.available == 3.0


@given(st.lists(st.booleans(), max_size=300), st.integers(0, 300), st.integers(0, 300))
def test_retries_of_any_window_are_bounded(first_attempts: list[bool], start: int, length: int) -> None:
    """Invariant: in any window retries <= 0.2 x first attempts + 3, however they are interleaved."""
    budget = RetryBudget(POLICY)
    taken: list[bool] = []
    for first in first_attempts:
        if first:
            budget.earn()
        taken.append(not first and budget.take())
    window = slice(start, start + length)
    assert 5 * sum(taken[window]) <= sum(first_attempts[window]) + 15
