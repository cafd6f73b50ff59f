"""One request's numbers and span: counted when it begins, once when it ends, whatever its end."""

from collections.abc import Callable

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.adapters.telemetry.tracing import Tracing
from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.models.routing import ResolvedModel
from services.core.outcomes import DropReason, Explanation
from services.core.pods.table import Pod
from services.core.residency import ANYWHERE
from services.core.units import Instant, seconds
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.field_metrics import Row
from services.endpoint_picker.intake import Intake
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import Pick
from services.endpoint_picker.telling import Telling, Told
from services.wire.openai.usage import NO_USAGE, Usage

MODEL, TARGET = ModelName("m"), ModelName("m-2")
REQUEST = InferenceRequest(
    RequestId("r"), Tenant(TenantId("t"), Grants()), MODEL, ANYWHERE, priority=3, stream=True
)
INTAKE = Intake(REQUEST, b"x" * 100, flow="team-a")
RESOLVED = ResolvedModel("chat", MODEL, TARGET, MODEL, rewrite_name="canary")
AT = [Instant(seconds(number)) for number in range(10)]


def pick(pods: int = 1) -> Pick:
    first, *fallbacks = [Pod(f"p{number}", f"10.0.0.{number}:8000", "chat") for number in range(1, pods + 1)]
    return Pick(REQUEST, first, tuple(fallbacks), Explanation(RequestId("r"), 0, 0, ()))


def begun(tracing: Tracing | None = None) -> tuple[Telling, Told]:
    telling = Telling(Counters(), tracing=tracing)
    return telling, telling.begin(INTAKE, RESOLVED, AT[1])


def row(telling: Telling) -> Row:
    return telling.metrics.row("m", "m-2", "team-a", 3)


def test_a_request_counts_as_running_from_its_intake() -> None:
    telling, told = begun()
    assert row(telling).requests == 1
    assert telling.metrics.running["m"] == 1
    assert telling.metrics.rewrites == {("canary", "m", "m-2"): 1}
    assert (sum(row(telling).shapes.request_bytes.counts), row(telling).shapes.request_bytes.total) == (
        1,
        100,
    )
    told.ended(AT[2], Outcome.CANCELLED, NO_USAGE, None)
    assert telling.metrics.running["m"] == 0


def test_without_a_rewrite_none_is_counted() -> None:
    telling = Telling(Counters())
    telling.begin(INTAKE, ResolvedModel("chat", MODEL, MODEL, MODEL), AT[0])
    assert telling.metrics.rewrites == {}


def test_an_answer_is_measured_from_the_intake() -> None:
    telling, told = begun()
    told.picked(AT[2], pick())
    told.first_byte(AT[3])
    told.first_byte(AT[4])
    told.ended(AT[7], Outcome.SUCCEEDED, Usage(10, 5, 4), 700)
    made = row(telling)
    assert telling.counters.outcomes == {"succeeded": 1}
    assert telling.metrics.processing_seconds.total == 1.0
    assert (made.shapes.seconds.total, made.shapes.ttft["true"].total, made.shapes.tpot.total) == (
        6.0,
        2.0,
        1.0,
    )
    assert (
        made.shapes.input_tokens.total,
        made.shapes.output_tokens.total,
        made.shapes.cached_tokens.total,
    ) == (10, 5, 4)
    assert (made.shapes.response_bytes.total, made.errors) == (700, {})


def test_an_answer_of_which_no_byte_was_seen_has_no_time_to_first_token() -> None:
    telling, told = begun()
    told.ended(AT[2], Outcome.SUCCEEDED, NO_USAGE, None)
    assert (sum(row(telling).shapes.seconds.counts), sum(row(telling).shapes.ttft["true"].counts)) == (1, 0)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Outcome.CONNECT_FAILED, "ServiceUnavailable"),
        (Outcome.GATEWAY_ERROR, "Internal"),
        (Outcome.BROKEN_OFF, "Internal"),
        (Outcome.SATURATED, "ResourceExhausted"),
        (Outcome.CANCELLED, ""),
    ],
)
def test_what_failed_counts_as_an_error_by_the_fields_name_and_not_as_an_answer(
    outcome: Outcome, error: str
) -> None:
    telling, told = begun()
    told.ended(AT[2], outcome, Usage(1, 1), 5)
    assert row(telling).errors == ({error: 1} if error else {})
    assert (sum(row(telling).shapes.seconds.counts), sum(row(telling).shapes.output_tokens.counts)) == (0, 0)
    assert telling.counters.outcomes == {outcome.value: 1}


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (DropReason.NO_ENDPOINTS, "ServiceUnavailable"),
        (DropReason.QUEUED_TOO_LONG, "ResourceExhausted"),
        (DropReason.CACHE_MISS, "PreconditionFailed"),
        (DropReason.DEADLINE_EXCEEDED, "Internal"),
    ],
)
def test_a_request_without_a_pod_is_an_attempt_that_failed(reason: DropReason, error: str) -> None:
    telling, told = begun()
    told.dropped(AT[2], reason)
    assert row(telling).errors == {error: 1}
    assert telling.metrics.running["m"] == 0
    failed = [value for value in telling.metrics.values() if value.labels[:1] == ("failure",)]
    assert {value.value for value in failed} == {1}


def traced(steps: Callable[[Told], None]) -> dict[str, ReadableSpan]:
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter, "test", ratio=1.0)
    steps(begun(tracing)[1])
    tracing.close()
    spans = exporter.get_finished_spans()
    assert len({span.name for span in spans}) == len(spans)
    return {span.name: span for span in spans}


def test_spans_tell_of_model_priority_and_pods_and_of_no_prompt() -> None:
    def steps(told: Told) -> None:
        told.scheduling(9)
        told.picked(AT[2], pick(7))
        told.ended(AT[3], Outcome.BROKEN_OFF, NO_USAGE, None)

    spans = traced(steps)
    assert list(spans) == ["run_scheduler_profile", "gateway.request_orchestration", "gateway.request"]
    profile, orchestration, request = spans.values()
    assert [span.status.description for span in spans.values()] == [None, None, "Internal"]
    assert request.parent is None
    assert request.context is not None
    assert orchestration.context is not None
    assert orchestration.parent is not None
    assert profile.parent is not None
    assert orchestration.parent.span_id == request.context.span_id
    assert profile.parent.span_id == orchestration.context.span_id
    assert dict(request.attributes or {}) == {
        "gen_ai.request.model": "m",
        "gen_ai.request.id": "r",
        "target_model": "m-2",
        "request_prio": 3,
    }
    assert dict(orchestration.attributes or {}) == {}
    assert dict(profile.attributes or {}) == {
        "llm_d.epp.filter.candidate_endpoints": 9,
        "llm_d.epp.picker.top_endpoints": tuple(f"10.0.0.{number}:8000" for number in range(1, 6)),
    }


def test_a_request_that_gets_no_pod_fails_in_every_span_it_is_in() -> None:
    def steps(told: Told) -> None:
        told.scheduling(0)
        told.dropped(AT[2], DropReason.NO_ENDPOINTS)

    assert {name: span.status.description for name, span in traced(steps).items()} == {
        "run_scheduler_profile": "ServiceUnavailable",
        "gateway.request_orchestration": "ServiceUnavailable",
        "gateway.request": "ServiceUnavailable",
    }


def test_a_request_whose_caller_left_while_it_waited_was_never_scheduled() -> None:
    spans = traced(lambda told: told.ended(AT[3], Outcome.CANCELLED, NO_USAGE, None))
    assert list(spans) == ["gateway.request_orchestration", "gateway.request"]
    assert all(span.status.description is None for span in spans.values())


def test_a_request_that_is_not_sampled_has_no_span() -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter, "test", ratio=0.0)
    _, told = begun(tracing)
    assert told.span is None
    told.scheduling(3)
    told.dropped(AT[2], DropReason.QUEUE_FULL)
    tracing.close()
    assert exporter.get_finished_spans() == ()
