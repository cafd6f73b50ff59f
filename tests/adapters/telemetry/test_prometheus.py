"""The metrics page: families of the closed list, values read when asked, nothing else."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from services.adapters.metric_names import field
from services.adapters.metric_names import picker as names
from services.adapters.metric_names.catalogue import METRICS
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
    (name, *_) = field.PROCESSING_SECONDS.names
    text = MetricsPage([lambda: [Value(name, found)]]).render().decode()
    assert f"# TYPE {name} histogram" in text
    assert [line.rpartition(" ")[2] for line in text.splitlines() if "_bucket" in line] == [*("2", "3", "4")]
    assert f"{name}_sum 3.65" in text
    assert f"{name}_count 4" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [(names.PICKER_PICKS, Histogram((1.0,))), (field.PROCESSING_SECONDS.names[0], 1.0)],
    ids=["a histogram for a counter", "a number for a histogram"],
)
def test_a_value_of_another_kind_is_refused(name: str, value: float | Histogram) -> None:
    with pytest.raises(TypeError, match=name):
        MetricsPage([lambda: [Value(name, value)]]).render()


def test_another_number_of_labels_than_declared_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        MetricsPage([lambda: [Value(names.PICKER_REJECTIONS, 1)]]).render()


@given(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]))] * 4), st.floats(), st.floats(0, 1e9))
def test_a_reader_finds_what_was_told(labels: tuple[str, ...], count: float, seconds: float) -> None:
    """Whatever a label or a value is, a page's reader reads the same one, and all lines of a histogram."""
    measured = Histogram((0.5, 2.0, 1e7))
    measured.observe(seconds)
    requests, durations = field.REQUESTS.names[0], field.REQUEST_SECONDS.names[0]
    page = MetricsPage([lambda: [Value(requests, count, labels), Value(durations, measured, labels)]])
    families = list(text_string_to_metric_families(page.render().decode()))
    assert [(family.name, family.type) for family in families] == [
        (requests.removesuffix("_total"), "counter"),
        (durations, "histogram"),
    ]
    told = dict(zip(METRICS[requests].labels, labels, strict=True))
    samples = list(chain.from_iterable(family.samples for family in families))
    assert all(told.items() <= sample.labels.items() for sample in samples)
    assert repr(samples[0].value) == repr(count)
    assert [(sample.labels["le"], sample.value) for sample in samples if "le" in sample.labels] == [
        ("0.5", seconds <= 0.5),
        ("2.0", seconds <= 2),
        ("10000000.0", seconds <= 1e7),
        ("+Inf", 1),
    ]
    assert {sample.name: sample.value for sample in samples[-2:]} == {
        f"{durations}_sum": seconds,
        f"{durations}_count": 1,
    }


def test_a_label_that_is_no_text_spoils_nothing_but_itself() -> None:
    page = MetricsPage([lambda: [Value(names.PICKER_REJECTIONS, 1, ("a\ud800b",))]])
    assert b'{reason="a?b"} 1.0' in page.render()
