"""What is told of each request while it runs: our counters, the field's metrics, and its spans.

The life cycle says what happened; here it becomes numbers and spans. Nothing is decided here, and nothing of a
prompt is told. Names of spans and attributes: llm-d-router docs/metrics.md.
"""

from dataclasses import dataclass, field

from services.adapters.telemetry.tracing import Span, Tracing
from services.core.models.routing import ResolvedModel
from services.core.outcomes import DropReason
from services.core.units import NS_PER_S, Duration, Instant
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.field_metrics import FieldMetrics, Row
from services.endpoint_picker.intake import Intake
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import Pick
from services.wire.openai.usage import Usage
from services.wire.status import STATUS, DoorReason

_CODES = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    412: "PreconditionFailed",
    429: "ResourceExhausted",
    503: "ServiceUnavailable",
}
"""The field's names of errors, by status; any other is `Internal`."""
_FAILED = {
    Outcome.CONNECT_FAILED: "ServiceUnavailable",
    Outcome.GATEWAY_ERROR: "Internal",
    Outcome.BROKEN_OFF: "Internal",
    Outcome.SATURATED: "ResourceExhausted",
}


ENDPOINTS_TOLD = 5
"""Endpoints that a span names, the best first: as many as other pickers name."""


@dataclass(slots=True, eq=False)
class Told:
    """What is told of one request. Only a sampled one has a `span`, and inside it those of the steps it is at."""

    telling: "Telling"
    row: Row
    model: str
    target: str
    streaming: bool
    started_at: Instant
    span: Span | None = None
    orchestration: Span | None = None
    profile: Span | None = None
    first_byte_at: Instant | None = None

    def scheduling(self, candidates: int) -> None:
        """A sampled request is about to get its pod, one of `candidates`."""
        if self.orchestration is not None:
            told = {"llm_d.epp.filter.candidate_endpoints": candidates}
            self.profile = self.orchestration.child("run_scheduler_profile", told)

    def picked(self, now: Instant, pick: Pick) -> None:
        """The request has its pod."""
        metrics = self.telling.metrics
        metrics.attempted(self.target, pick.pod.address)
        metrics.processing_seconds.observe((now - self.started_at) / NS_PER_S)
        if self.profile is not None:
            best = (pick.pod, *pick.fallbacks[: ENDPOINTS_TOLD - 1])
            self.profile.note({"llm_d.epp.picker.top_endpoints": tuple([pod.address for pod in best])})
        if self.span is not None:
            self._leave_steps("")

    def first_byte(self, now: Instant) -> None:
        """The answer has begun."""
        if self.first_byte_at is None:
            self.first_byte_at = now

    def ended(self, now: Instant, outcome: Outcome, usage: Usage, response_bytes: int | None) -> None:
        """The request is over, with an answer or without."""
        self.telling.counters.outcomes[outcome.value] += 1
        error = _FAILED.get(outcome, "")
        if outcome is Outcome.SUCCEEDED:
            first = None if self.first_byte_at is None else Duration(self.first_byte_at - self.started_at)
            took = Duration(now - self.started_at)
            self.row.shapes.ended(took, first, usage, streaming=self.streaming, response_bytes=response_bytes)
        self._close(error)

    def dropped(self, _now: Instant, reason: DropReason | DoorReason) -> None:
        """The request got no pod."""
        self.telling.metrics.attempted(self.target)
        self._close(_CODES.get(STATUS[reason].http, "Internal"))

    def _close(self, error: str) -> None:
        if error:
            self.row.errors[error] += 1
        self.telling.metrics.running[self.model] -= 1
        if self.span is not None:
            self._leave_steps(error)
            self.span.end(error)

    def _leave_steps(self, error: str) -> None:
        for step in (self.profile, self.orchestration):
            if step is not None:
                step.end(error)
        self.profile = self.orchestration = None


@dataclass(slots=True, eq=False)
class Telling:
    """Begins what is told. `tracing` is None where nobody collects spans."""

    counters: Counters
    metrics: FieldMetrics = field(default_factory=FieldMetrics)
    tracing: Tracing | None = None

    def begin(self, intake: Intake, resolved: ResolvedModel, now: Instant) -> Told:
        """A request for a known model was taken in."""
        metrics, inference = self.metrics, intake.inference
        if resolved.rewrite_name:
            metrics.targets.know(resolved.target_model)
        row = metrics.row(resolved.client_model, resolved.target_model, intake.flow, inference.priority)
        row.requests += 1
        row.shapes.request_bytes.observe(len(intake.body))
        model = metrics.models.fold(resolved.client_model)
        metrics.running[model] += 1
        if resolved.rewrite_name:
            metrics.rewrites[resolved.rewrite_name, model, metrics.targets.fold(resolved.target_model)] += 1
        span = None
        if self.tracing is not None:
            span = self.tracing.begin(
                "gateway.request",
                intake.traceparent,
                {
                    "gen_ai.request.model": resolved.client_model,
                    "gen_ai.request.id": inference.request_id,
                    "target_model": resolved.target_model,
                    "request_prio": inference.priority,
                },
            )
        told = Told(self, row, model, resolved.target_model, inference.stream, now, span)
        if span is not None:
            told.orchestration = span.child("gateway.request_orchestration")
        return told
