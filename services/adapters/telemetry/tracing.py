"""Spans of requests, by OpenTelemetry, sent to a collector over OTLP.

Sampling follows the caller's `traceparent`, else a ratio. A request that is not sampled has no span object at
all, so that its steps cost one comparison with None; its caller's `traceparent` then travels on untouched.
Contexts are passed by hand, never through context variables: callbacks of many requests share one thread.
Span and attribute names: OpenTelemetry semantic conventions for generative AI; llm-d-router docs/metrics.md.
"""

from collections.abc import Mapping
from typing import Final, Self

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

HEADER: Final = "traceparent"
SAMPLE_RATIO: Final = 0.1
"""One request in ten: the default of other pickers; a trace costs more than the pick it describes."""

Attributes = Mapping[str, str | int | float | bool | tuple[str, ...] | tuple[float, ...]]
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class Span:
    """One sampled span. `end` is called once."""

    __slots__ = ("_context", "_span", "_tracer")

    def __init__(self, tracer: Tracer, span: OtelSpan) -> None:
        self._tracer = tracer
        self._span = span
        self._context = set_span_in_context(span)

    def child(self, name: str, attributes: Attributes | None = None) -> Self:
        """Begin a span inside this one."""
        return type(self)(self._tracer, self._tracer.start_span(name, self._context, attributes=attributes))

    def note(self, attributes: Attributes) -> None:
        """Add attributes."""
        self._span.set_attributes(attributes)

    def end(self, error: str = "") -> None:
        """End the span; `error` says why it failed."""
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()

    @property
    def traceparent(self) -> str:
        """The header by which whoever is called next joins the trace."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, self._context)
        return carrier[HEADER]


class Tracing:
    """Begins spans and sends them. `close` sends what is left, within the exporter's own time limit."""

    def __init__(self, exporter: SpanExporter, service: str, ratio: float = SAMPLE_RATIO) -> None:
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(ratio)), resource=Resource({"service.name": service})
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("gir")

    def begin(self, name: str, traceparent: str | None, attributes: Attributes) -> Span | None:
        """Begin a request's outermost span; None when the request is not sampled.

        A malformed `traceparent` begins a new trace (W3C Trace Context section 4.3).
        """
        context = Context() if traceparent is None else _PROPAGATOR.extract({HEADER: traceparent}, Context())
        span = self._tracer.start_span(name, context, SpanKind.SERVER, attributes=attributes)
        return Span(self._tracer, span) if span.is_recording() else None

    def close(self) -> None:
        """Send what is left and end. Blocks; called when nothing else runs."""
        self._provider.shutdown()


def otlp(url: str, service: str, ratio: float = SAMPLE_RATIO) -> Tracing:
    """Return tracing that posts OTLP to `url`, e.g. `http://127.0.0.1:4318/v1/traces`.

    JSON, because the Protobuf exporter and `xds-protos` both bring `opentelemetry.proto`, of other versions.
    """
    return Tracing(OTLPSpanExporter(endpoint=url), service, ratio)
