"""Statistics and limits, by numbers one can check by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worlds.bench_picker_figures import Figure, at_least, at_most, max_over_mean, quantile, slope

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50)


def test_a_quantile_is_the_nearest_rank() -> None:
    values = [30.0, 10.0, 20.0, 40.0]
    assert [quantile(values, share) for share in (0.25, 0.5, 0.51, 0.95, 1.0)] == [10, 20, 30, 40, 40]
    assert quantile([7.0], 0.01) == 7.0


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 0.0), ([1.0], 1.1)])
def test_a_quantile_of_nothing_is_refused(values: list[float], share: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        quantile(values, share)


@given(values=NUMBERS, share=st.floats(0.01, 1.0))
def test_a_quantile_is_a_value_that_the_share_does_not_exceed(values: list[float], share: float) -> None:
    """At least the share of the values lies at or below the quantile, which is one of them."""
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_the_slope_of_a_line_is_its_own() -> None:
    assert slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == pytest.approx(2.0)
    assert slope([(0.0, 4.0), (1.0, 4.0)]) == 0
    assert slope([(1.0, 4.0), (1.0, 9.0)]) == 0
    assert slope([]) == 0


@given(
    points=st.lists(st.tuples(st.integers(0, 100), st.integers(-100, 100)), min_size=2), up=st.integers(-9, 9)
)
def test_a_slope_does_not_depend_on_the_level(points: list[tuple[int, int]], up: int) -> None:
    """Adding a constant to every y leaves the slope as it is."""
    assert math.isclose(slope(points), slope([(x, y + up) for x, y in points]), abs_tol=1e-6)


def test_max_over_mean_is_one_for_an_even_load() -> None:
    assert max_over_mean([4, 4, 4]) == 1
    assert max_over_mean([8, 2, 2]) == 2
    assert max_over_mean([0, 0]) == 1
    with pytest.raises(ValueError, match="counts"):
        max_over_mean([])


def test_a_limit_is_kept_at_its_very_value() -> None:
    assert at_most("cpu", 0.25, "cores", 0.25).held is True
    assert at_most("cpu", 0.26, "cores", 0.25).held is False
    assert at_least("gain", 1.2, "ratio", 1.2).held is True
    assert at_least("gain", 1.1, "ratio", 1.2).held is False
    assert at_most("cpu", math.nan, "cores", 0.25).held is False


def test_a_comparison_is_no_limit() -> None:
    assert Figure("p50", 9.0, "ms", 1.0).held is None
    assert Figure("p50", 9.0, "ms").held is None


def test_a_figure_as_json_has_its_reference_and_ratio() -> None:
    assert at_most("cpu", 0.5, "cores", 0.25).document() == {
        "name": "cpu",
        "value": 0.5,
        "unit": "cores",
        "reference": 0.25,
        "ratio": 2.0,
        "held": False,
    }
    alone = Figure("p50", 9.0, "ms").document()
    assert (alone["reference"], alone["ratio"], alone["held"]) == (None, None, None)
    assert Figure("hits", 0.0, "share", 0.0).document()["ratio"] is None
