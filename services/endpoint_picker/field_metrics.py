"""What the endpoint-picker field measures of requests and pools, told under its own names.

Per request: one look-up of its labels' row and a few additions, twice. Label values from requests are capped.
Names are `metric_names/field`, our own counters are `counters`; nothing is decided by a metric.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Protocol

from services.adapters.metric_names import field as names
from services.adapters.metric_names.field import FieldMetric
from services.adapters.metric_names.picker import PICKER_HELD_BODIES
from services.adapters.system.build import package_version
from services.adapters.telemetry.cardinality import OTHER, CappedLabel
from services.adapters.telemetry.histogram import (
    BYTES,
    LATENCY_SECONDS,
    TOKEN_SECONDS,
    TOKENS,
    Histogram,
)
from services.adapters.telemetry.prometheus import Value
from services.core.pods.table import Pod, PodTable
from services.core.units import NS_PER_S, Duration
from services.endpoint_picker.counters import Counters
from services.wire.openai.usage import Usage

ROWS_MAX = 1000
"""Combinations of labels counted: each label is capped, their product is not. Beyond it a request is counted
under `other` in every label but for the models that configuration names."""
SHAPES_MAX = 64
"""Combinations with histograms of their own: one is 400 lines of the page and 2 ms of rendering it. The histograms
of all later ones are those of `other`, of each model that configuration names."""
ATTEMPTS_MAX = 4096
"""Combinations of model and endpoint counted, for the same reason."""
_SOURCE, _EXTRACTOR = "metrics-data-source", "core-metrics-extractor"
"""The field's words for whatever scrapes model servers, and for what takes their signals out of a page."""
_Labels = tuple[str, str, str, str]


class Shapes:
    """The histograms of one (model, target model, flow, priority)."""

    __slots__ = (
        "cached_tokens",
        "input_tokens",
        "ntpot",
        "output_tokens",
        "request_bytes",
        "response_bytes",
        "seconds",
        "tpot",
        "ttft",
    )

    def __init__(self) -> None:
        self.seconds = Histogram(LATENCY_SECONDS)
        self.request_bytes = Histogram(BYTES)
        self.response_bytes = Histogram(BYTES)
        self.input_tokens = Histogram(TOKENS)
        self.output_tokens = Histogram(TOKENS)
        self.cached_tokens = Histogram(TOKENS)
        self.ntpot = Histogram(TOKEN_SECONDS)
        self.ttft = {"true": Histogram(LATENCY_SECONDS), "false": Histogram(LATENCY_SECONDS)}
        self.tpot = Histogram(TOKEN_SECONDS)

    def ended(
        self,
        took: Duration,
        first_byte: Duration | None,
        usage: Usage,
        *,
        streaming: bool,
        response_bytes: int | None,
    ) -> None:
        """Count an answer: `took` and `first_byte` are since intake."""
        seconds = took / NS_PER_S
        self.seconds.observe(seconds)
        if response_bytes is not None:
            self.response_bytes.observe(response_bytes)
        if first_byte is not None:
            self.ttft["true" if streaming else "false"].observe(first_byte / NS_PER_S)
        if usage.prompt_tokens is not None:
            self.input_tokens.observe(usage.prompt_tokens)
        if usage.cached_tokens is not None:
            self.cached_tokens.observe(usage.cached_tokens)
        generated = usage.completion_tokens
        if generated is not None:
            self.output_tokens.observe(generated)
            if generated > 0:
                self.ntpot.observe(seconds / generated)
            if streaming and first_byte is not None and generated > 1:
                self.tpot.observe((took - first_byte) / NS_PER_S / (generated - 1))


@dataclass(slots=True, eq=False)
class Row:
    """The counts of one (model, target model, flow, priority), and its histograms: its own or those of `other`."""

    shapes: Shapes
    own_shapes: bool = True
    requests: int = 0
    errors: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class FieldMetrics:
    """Rows by label, and what has no request's labels."""

    models: CappedLabel = field(default_factory=CappedLabel)
    targets: CappedLabel = field(default_factory=CappedLabel)
    flows: CappedLabel = field(default_factory=CappedLabel)
    endpoints: CappedLabel = field(default_factory=CappedLabel)
    processing_seconds: Histogram = field(default_factory=lambda: Histogram(LATENCY_SECONDS))
    rewrites: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)
    _rows: dict[_Labels, Row] = field(default_factory=dict)
    _others: dict[_Labels, Shapes] = field(default_factory=dict)
    _attempts: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def row(self, model: str, target: str, flow: str, priority: int) -> Row:
        """Return the series that a request counts in."""
        labels = (self.models.fold(model), self.targets.fold(target), self.flows.fold(flow), str(priority))
        row = self._rows.get(labels)
        return self._new_row(labels) if row is None else row

    def _new_row(self, labels: _Labels) -> Row:
        rows = len(self._rows)
        if rows < SHAPES_MAX:
            return self._rows.setdefault(labels, Row(Shapes()))
        others = (self.models.known(labels[0]), self.targets.known(labels[1]), OTHER, OTHER)
        shapes = self._others.get(others)
        if shapes is None:
            shapes = self._others[others] = Shapes()
        return self._rows.setdefault(labels if rows < ROWS_MAX else others, Row(shapes, own_shapes=False))

    def attempted(self, target: str, address: str = "") -> None:
        """Count a pick for a model: of the endpoint at `address`, or of nobody."""
        status = "success" if address else "failure"
        key = (status, self.targets.fold(target), self.endpoints.fold(address))
        if key not in self._attempts and len(self._attempts) >= ATTEMPTS_MAX:
            key = (status, self.targets.known(target), OTHER if address else "")
        self._attempts[key] += 1

    def values(self) -> Iterable[Value]:
        """Return every value that requests made."""
        for labels, row in self._rows.items():
            yield from _counts(labels, row)
            if row.own_shapes:
                yield from _shapes(labels, row.shapes)
        for labels, shapes in self._others.items():
            yield from _shapes(labels, shapes)
        for model, count in sorted(self.running.items()):
            yield from _each(names.RUNNING, count, (model,))
        yield from _each(names.PROCESSING_SECONDS, self.processing_seconds)
        for (status, target, address), count in sorted(self._attempts.items()):
            host, _, port = address.rpartition(":") if address != OTHER else (OTHER, "", OTHER)
            yield from _each(names.SCHEDULER_ATTEMPTS, count, (status, target, host, "", port))
        for labels_of_rewrite, count in sorted(self.rewrites.items()):
            yield from _each(names.REWRITES, count, labels_of_rewrite)


def _counts(labels: _Labels, row: Row) -> Iterable[Value]:
    yield from _each(names.REQUESTS, row.requests, labels)
    for code, count in sorted(row.errors.items()):
        yield from _each(names.REQUEST_ERRORS, count, (*labels, code))


def _shapes(labels: _Labels, shapes: Shapes) -> Iterable[Value]:
    for metric, found in (
        (names.REQUEST_SECONDS, shapes.seconds),
        (names.REQUEST_BYTES, shapes.request_bytes),
        (names.RESPONSE_BYTES, shapes.response_bytes),
        (names.INPUT_TOKENS, shapes.input_tokens),
        (names.OUTPUT_TOKENS, shapes.output_tokens),
        (names.CACHED_TOKENS, shapes.cached_tokens),
        (names.NTPOT_SECONDS, shapes.ntpot),
        (names.TPOT_SECONDS, shapes.tpot),
    ):
        yield from _each(metric, found, labels)
    for streaming, found in shapes.ttft.items():
        yield from _each(names.TTFT_SECONDS, found, (*labels, streaming))


def pool_values(table: PodTable, pools: Iterable[str]) -> Callable[[], Iterable[Value]]:
    """Return a source of what the field tells of pools; a signal that nobody gives is absent, not 0."""
    declared = tuple(pools)

    def read() -> Iterable[Value]:
        for pool in declared:
            ready = table.ready(pool)
            yield from _each(names.POOL_READY, len(ready), (pool,))
            yield from _spread(pool, ready)
            pods = table.in_pool(pool)
            yield from _each(names.IN_FLIGHT_REQUESTS, sum(pod.in_flight for pod in pods), (pool,))
            yield from _each(names.IN_FLIGHT_TOKENS, sum(pod.in_flight_tokens for pod in pods), (pool,))

    return read


class Streams(Protocol):
    """What the ext_proc door counts. `streams_ended` is by gRPC status, `stream_seconds` how long they lasted."""

    streams_ended: Counter[str]
    stream_seconds: Histogram
    held_bytes: int

    @property
    def streams(self) -> int:
        """Streams open now."""


def process_values(counters: Counters, streams: Streams) -> Callable[[], Iterable[Value]]:
    """Return a source of what the field tells of the process itself: its build, its scrapes, its streams."""
    build = ("", package_version())

    def read() -> Iterable[Value]:
        yield from _each(names.INFO, 1, build)
        failed = counters.scrapes.total() - counters.scrapes["ok"]
        yield from _each(names.POLL_ERRORS, failed, (_SOURCE,))
        yield from _each(names.EXTRACT_ERRORS, counters.incomplete_pages, (_SOURCE, _EXTRACTOR))
        yield from _each(names.STREAMS, streams.streams)
        yield from _each(names.STREAM_SECONDS, streams.stream_seconds)
        for code, count in sorted(streams.streams_ended.items()):
            yield from _each(names.STREAMS_TOTAL, count, (code,))
        yield Value(PICKER_HELD_BODIES, streams.held_bytes)

    return read


def _spread(pool: str, ready: Iterable[Pod]) -> Iterable[Value]:
    readings = [(pod.address, pod.reading) for pod in ready if pod.reading is not None]
    for mean, deviation, found in (
        (
            names.POOL_KV_USE,
            names.POOL_KV_USE_SPREAD,
            [reading.kv_use for _, reading in readings if reading.kv_use is not None],
        ),
        (
            names.POOL_QUEUE,
            names.POOL_QUEUE_SPREAD,
            [reading.waiting for _, reading in readings if reading.waiting is not None],
        ),
        (
            names.POOL_RUNNING,
            names.POOL_RUNNING_SPREAD,
            [reading.running for _, reading in readings if reading.running is not None],
        ),
    ):
        if found:
            yield from _each(mean, fmean(found), (pool,))
            yield from _each(deviation, pstdev(found), (pool,))
    for address, reading in readings:
        if reading.waiting is not None:
            yield from _each(names.POD_QUEUE, reading.waiting, (pool, address))


def _each(metric: FieldMetric, value: float | Histogram, labels: tuple[str, ...] = ()) -> Iterable[Value]:
    """Return the value under every name the metric has."""
    return [Value(name, value, labels) for name in metric.names]
