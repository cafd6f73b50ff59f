"""Flow control under the field's names: what waits, for how long it did, what became of it, how full pools are.

Kept while requests leave their queues, read when somebody asks for metrics. Nothing is decided here.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.adapters.metric_names import field as names
from services.adapters.metric_names.field import FieldMetric
from services.adapters.telemetry.cardinality import OTHER, CappedLabel
from services.adapters.telemetry.histogram import LATENCY_SECONDS, Histogram
from services.adapters.telemetry.prometheus import Value
from services.core.admission.figures import FlowFigures
from services.core.admission.tickets import Ticket
from services.core.units import NS_PER_S, Duration

SERIES_MAX = 128
"""Histograms of time in a queue, 70 lines of the page each. Requests of further (flow, priority) count under
`other`; pools and outcomes, which no request names, stay apart."""
_STAGE = "effective"
"""The field's word for the saturation that dispatch goes by; pods do prefill and decode alike here."""
_Labels = tuple[str, str, str, str]


@dataclass(slots=True, eq=False)
class FlowMetrics:
    """`left` is flow control's listener of that name."""

    flows: CappedLabel = field(default_factory=CappedLabel)
    _waited: dict[_Labels, Histogram] = field(default_factory=dict)

    def left(self, ticket: Ticket, outcome: str, waited: Duration) -> None:
        """A request left its queue, sent or not."""
        labels = (self.flows.fold(ticket.flow), str(ticket.priority), ticket.pool, outcome)
        found = self._waited.get(labels)
        if found is None:
            if len(self._waited) >= SERIES_MAX:
                labels = (OTHER, OTHER, ticket.pool, outcome)
            found = self._waited.setdefault(labels, Histogram(LATENCY_SECONDS))
        found.observe(waited / NS_PER_S)

    def values(
        self, figures: FlowFigures, saturations: dict[str, float | None], revocation_seconds: Histogram
    ) -> Iterable[Value]:
        """Return all values; the saturation of a pool without endpoints is absent."""
        sizes: Counter[tuple[str, ...]] = Counter()
        size_bytes: Counter[tuple[str, ...]] = Counter()
        for queue in figures.queues:
            labels = (self.flows.fold(queue.flow), str(queue.priority), queue.pool)
            sizes[labels] += queue.queue_size
            size_bytes[labels] += queue.queue_bytes
        outcomes: Counter[tuple[str, ...]] = Counter()
        for lane in figures.lanes:
            for outcome, count in lane.outcomes:
                outcomes[outcome, str(lane.priority), lane.pool] += count
        for metric, counted in (
            (names.QUEUE_SIZE, sizes),
            (names.QUEUE_BYTES, size_bytes),
            (names.QUEUE_REQUESTS, outcomes),
        ):
            for told, count in counted.items():
                yield from _each(metric, count, told)
        for pool, saturation in saturations.items():
            if saturation is not None:
                yield from _each(names.POOL_SATURATION, saturation, (pool, _STAGE))
        for waited_labels, histogram in self._waited.items():
            yield from _each(names.QUEUE_SECONDS, histogram, waited_labels)
        for band in figures.bands:
            priority = (str(band.priority),)
            yield from _each(names.BAND_USE_REQUESTS, band.capacity_utilization_requests, priority)
            yield from _each(names.BAND_USE_BYTES, band.capacity_utilization_bytes, priority)
        for row in figures.pools:
            yield from _each(names.REVOCATIONS_ISSUED, row.revocations_issued, (row.pool,))
            yield from _each(names.REVOCATIONS, row.revocations_confirmed, ("confirmed", row.pool))
            yield from _each(names.REVOCATIONS, row.revocations_unconfirmed, ("timed_out", row.pool))
        yield from _each(names.REVOCATION_SECONDS, revocation_seconds, ())


def _each(metric: FieldMetric, value: float | Histogram, labels: tuple[str, ...]) -> Iterable[Value]:
    return [Value(name, value, labels) for name in metric.names]
