"""The metrics page: plain values, read when somebody asks, in Prometheus text form.

Nothing is counted here; owners of counters are asked for their values. Only names of the closed list are
rendered. Apart from tracing because it has no background work.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.adapters.metric_names import METRICS, Kind

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Value(NamedTuple):
    """One value of a metric; `labels` are in the order that the closed list declares."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


ValueSource = Callable[[], Iterable[Value]]


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
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for source in self._sources:
            for name, value, labels in source():
                family = families.get(name)
                if family is None:
                    spec = METRICS[name]
                    kind = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
                    family = families[name] = kind(name, spec.what, labels=spec.labels)
                family.add_metric(labels, value)
        return families.values()
