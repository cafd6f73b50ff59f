"""The metrics page: plain values, read when somebody asks, in Prometheus text form.

Nothing is counted here; owners of counters are asked for their values. Only names of the closed list are
rendered. Apart from tracing because it has no background work.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from services.adapters.metric_names.catalogue import METRICS
from services.adapters.metric_names.spec import Kind
from services.adapters.telemetry.histogram import Histogram

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Value(NamedTuple):
    """One value of a metric; `labels` are in the order that the closed list declares.

    A histogram's value is a `Histogram`, any other metric's a number.
    """

    name: str
    value: float | Histogram
    labels: tuple[str, ...] = ()


ValueSource = Callable[[], Iterable[Value]]


_FAMILIES = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


class MetricsPage:
    """Renders the values of `sources`. A name outside the closed list raises KeyError."""

    def __init__(self, sources: Sequence[ValueSource]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(sources))

    def render(self) -> bytes:
        """Return the page; its content type is `CONTENT_TYPE`."""
        return generate_latest(self._registry)


class _Collector(Collector):
    def __init__(self, sources: Sequence[ValueSource]) -> None:
        self._sources = sources

    def describe(self) -> Iterable[Metric]:
        """Describe nothing, so that registering reads no values."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return one family per name."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily] = {}
        for source in self._sources:
            for name, value, labels in source():
                family = families.get(name)
                if family is None:
                    spec = METRICS[name]
                    family = families[name] = _FAMILIES[spec.kind](name, spec.what, labels=spec.labels)
                if isinstance(value, Histogram) and isinstance(family, HistogramMetricFamily):
                    family.add_metric(labels, value.cumulative(), value.total)
                elif not isinstance(value, Histogram) and not isinstance(family, HistogramMetricFamily):
                    family.add_metric(labels, value)
                else:
                    raise TypeError(f"{name} is a {METRICS[name].kind.value}; its value is {value!r}")
        return families.values()
