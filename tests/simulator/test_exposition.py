import pytest

from services.simulator.exposition import Gauges, HistogramText, Metric, label
from services.simulator.tallies import DurationHistogram


def test_a_head_names_its_kind() -> None:
    assert Metric("a:b", "gauge", "What it is.").head() == "# HELP a:b What it is.\n# TYPE a:b gauge\n"


@pytest.mark.parametrize(("value", "shown"), [("m", "m"), ('"', r"\""), ("\\", r"\\"), ("\n", r"\n")])
def test_a_label_is_escaped(value: str, shown: str) -> None:
    assert label("name", value) == f'name="{shown}"'


def test_a_gauge_says_what_it_is_told_to() -> None:
    assert [gauges.show(2) for gauges in (Gauges.TRUE, Gauges.NAN, Gauges.ZERO)] == ["2.0", "NaN", "0.0"]
    assert Gauges.MISSING_KV.show(0.5) == "0.5"


def test_a_series_is_the_sum_of_its_parts() -> None:
    one, other = DurationHistogram((1.0, 2.0)), DurationHistogram((1.0, 2.0))
    series = HistogramText("h", 'x="50%"', [one, other])
    one.observe(500_000_000)
    other.observe(1_500_000_000, 2)
    assert series.render() == (
        'h_bucket{x="50%",le="1.0"} 1.0\n'
        'h_bucket{x="50%",le="2.0"} 3.0\n'
        'h_bucket{x="50%",le="+Inf"} 3.0\n'
        'h_count{x="50%"} 3.0\n'
        'h_sum{x="50%"} 3.5\n'
    )


def test_a_series_is_rendered_again_only_when_something_was_observed() -> None:
    part = DurationHistogram((1.0,))
    series = HistogramText("h", 'x="1"', [part])
    before = series.render()
    assert series.render() is before
    part.observe(1)
    assert series.render() != before
