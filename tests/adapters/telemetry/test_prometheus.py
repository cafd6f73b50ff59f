"""The metrics page: families of the closed list, values read when asked, nothing else."""

import pytest

from services.adapters.metric_names import field
from services.adapters.metric_names import picker as names
from services.adapters.telemetry.histogram import Histogram
from services.adapters.telemetry.prometheus import MetricsPage, Value


def test_values_are_read_when_the_page_is_asked_for() -> None:
    picks = 0

    def source() -> list[Value]:
        return [Value(names.PICKER_PICKS, picks)]

    page = MetricsPage([source])
    assert b"gir_picker_picks_total 0.0" in page.render()
    picks = 7
    assert b"gir_picker_picks_total 7.0" in page.render()


def test_values_of_one_name_from_several_sources_are_one_family() -> None:
    page = MetricsPage(
        [
            lambda: [Value(names.PICKER_REJECTIONS, 1, ("saturated",))],
            lambda: [Value(names.PICKER_REJECTIONS, 2, ("drained",)), Value(names.PICKER_FENCED, 3)],
        ]
    )
    text = page.render().decode()
    assert text.count("# TYPE gir_picker_rejections_total counter") == 1
    assert 'gir_picker_rejections_total{reason="saturated"} 1.0' in text
    assert 'gir_picker_rejections_total{reason="drained"} 2.0' in text
    assert "gir_picker_fenced_total 3.0" in text


def test_a_name_outside_the_closed_list_is_refused() -> None:
    with pytest.raises(KeyError):
        MetricsPage([lambda: [Value("gir_invented_total", 1)]]).render()


def test_a_histogram_is_rendered_cumulatively() -> None:
    found = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 3.0):
        found.observe(value)
    (name, *_) = field.SCHEDULER_SECONDS.names
    text = MetricsPage([lambda: [Value(name, found)]]).render().decode()
    assert f"# TYPE {name} histogram" in text
    assert [line.rpartition(" ")[2] for line in text.splitlines() if "_bucket" in line] == [
        *("2.0", "3.0", "4.0")
    ]
    assert f"{name}_sum 3.65" in text
    assert f"{name}_count 4.0" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [(names.PICKER_PICKS, Histogram((1.0,))), (field.SCHEDULER_SECONDS.names[0], 1.0)],
    ids=["a histogram for a counter", "a number for a histogram"],
)
def test_a_value_of_another_kind_is_refused(name: str, value: float | Histogram) -> None:
    with pytest.raises(TypeError, match=name):
        MetricsPage([lambda: [Value(name, value)]]).render()
