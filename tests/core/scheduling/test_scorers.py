"""Scorers: the field's formulas, the pool's mean for what is unknown, own requests counted in."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.fleet import LoadReport
from services.core.scheduling.scorers import SCORERS, fewest, free_share


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 5, 10], [1.0, 0.5, 0.0]),
        ([3, 3], [1.0, 1.0]),
        ([None, None], [1.0, 1.0]),
        ([4, None], [1.0, 1.0]),
        ([0, None, 10], [1.0, 0.5, 0.0]),
        ([0, 0, 12, None], [1.0, 1.0, 0.0, 2 / 3]),
        ([], []),
    ],
)
def test_fewest_is_the_queue_formula(values: list[float | None], expected: list[float]) -> None:
    assert fewest(values) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.25, 1.0], [1.0, 0.75, 0.0]),
        ([0.2, None, 0.6], [0.8, 0.6, 0.4]),
        ([None], [1.0]),
        ([1.7, -0.5], [0.0, 1.0]),
    ],
)
def test_free_share_is_one_minus_use(values: list[float | None], expected: list[float]) -> None:
    assert free_share(values) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["queue", "running"])
def test_own_requests_since_the_scrape_count(name: str) -> None:
    loads = [LoadReport(waiting=2, running=2), LoadReport(waiting=4, running=4), LoadReport()]
    assert SCORERS[name](loads, (0, 0, 9)) == pytest.approx([1.0, 0.0, 0.5])
    assert SCORERS[name](loads, (4, 0, 9)) == pytest.approx([0.0, 1.0, 0.5])


def test_kv_use_ignores_own_requests() -> None:
    loads = [LoadReport(kv_use=0.1), LoadReport(kv_use=0.9)]
    assert SCORERS["kv_use"](loads, (50, 0)) == pytest.approx([0.9, 0.1])


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=1, max_size=20), st.sampled_from([0, 1]))
def test_scores_lie_between_0_and_1(values: list[float | None], which: int) -> None:
    """Invariant: every score is a finite number in [0, 1], whatever is unknown."""
    scores = (fewest, free_share)[which](values)
    assert len(scores) == len(values)
    assert all(math.isfinite(score) and -1e-9 <= score <= 1 + 1e-9 for score in scores)
