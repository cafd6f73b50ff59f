"""What all scorers share: the min-max formula, the mean for what is unknown, the three forms of scores."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.scheduling.scorers.scorer import Linear, dense, fewest, fewest_known, scores_or_mean


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
    ("scores", "expected"), [([0.8, None, 0.4], [0.8, 0.6, 0.4]), ([None, None], [1.0, 1.0]), ([], [])]
)
def test_unknown_scores_are_the_mean_of_the_known(scores: list[float | None], expected: list[float]) -> None:
    assert scores_or_mean(scores) == pytest.approx(expected)


def test_the_three_forms_of_scores_are_one() -> None:
    assert dense([0.1, 0.2], 2) == [0.1, 0.2]
    assert dense({1: 0.5}, 3) == [0.0, 0.5, 0.0]
    assert dense(Linear([4, 0], -0.25, 1.0), 2) == [0.0, 1.0]


numbers = st.floats(0, 1e6)


@given(st.lists(st.one_of(st.none(), numbers), max_size=20))
def test_scores_lie_between_0_and_1(values: list[float | None]) -> None:
    """Invariant: every score is a finite number in [0, 1], whatever is unknown."""
    scores = fewest(values)
    assert len(scores) == len(values)
    assert all(math.isfinite(score) and -1e-9 <= score <= 1 + 1e-9 for score in scores)


@given(st.lists(numbers, min_size=1, max_size=20))
def test_what_is_all_known_scores_the_same_by_a_straight_line(values: list[float]) -> None:
    """Invariant: fewest and fewest_known agree wherever nothing is unknown."""
    assert dense(fewest_known(values), len(values)) == pytest.approx(fewest(list(values)), abs=1e-6)
