"""Requests and decisions of the gRPC surface: messages of `routing` and `picker` <-> core values.

Identity never comes from a message: the request id, the tenant and, in tier 1, the allowed set
are arguments. On the path of every gRPC request, so values are checked once and copied once.
"""

from collections.abc import Iterable

from services.core.fleet import Candidate, HealthState, PoolReport
from services.core.inference import InferenceRequest, ModelName, RequestId, Tenant, TrafficClass
from services.core.outcomes import Explanation, Rejected
from services.core.residency import ResidencyRule, narrow
from services.core.units import NS_PER_MS, Duration, Tokens
from services.wire.errors import UndecodableError
from services.wire.gen.gir.v1 import picker_pb2, routing_pb2
from services.wire.health_codec import encode_pool
from services.wire.messages import optional_text, text
from services.wire.residency_codec import decode_residency
from services.wire.status import STATUS

MAX_CLIENT_REQUEST_ID_CHARS = 128
"""It is echoed in headers and logs; visible ASCII only."""

_CLASSES = {
    routing_pb2.TRAFFIC_CLASS_UNSPECIFIED: TrafficClass.INTERACTIVE,
    routing_pb2.TRAFFIC_CLASS_INTERACTIVE: TrafficClass.INTERACTIVE,
    routing_pb2.TRAFFIC_CLASS_STANDARD: TrafficClass.STANDARD,
    routing_pb2.TRAFFIC_CLASS_BATCH: TrafficClass.BATCH,
}
_STATES = {state: routing_pb2.HealthState.Value(f"HEALTH_STATE_{state.name}") for state in HealthState}


def decode_route(
    message: routing_pb2.RouteRequest, request_id: RequestId, tenant: Tenant
) -> InferenceRequest:
    """Return the request of one Route call; its residency is the tenant's, narrowed by the message.

    Raises `UndecodableError` (answered INVALID_ARGUMENT) naming the field.
    """
    what = "route request"
    client_request_id = message.client_request_id
    if len(client_request_id) > MAX_CLIENT_REQUEST_ID_CHARS or not _visible(client_request_id):
        raise UndecodableError(
            what,
            f"client_request_id: at most {MAX_CLIENT_REQUEST_ID_CHARS} visible ASCII characters are allowed",
        )
    residency = tenant.grants.residency
    if message.HasField("residency"):
        residency = narrow(residency, decode_residency(message.residency, what))
    return _request(message, request_id, tenant, residency, what)


def decode_pick(
    message: picker_pb2.PickRequest, request_id: RequestId, tenant: Tenant, allowed: ResidencyRule
) -> InferenceRequest:
    """Return the request of one Pick call; `allowed` comes from the hand-off token. Raises as `decode_route`."""
    return _request(message, request_id, tenant, allowed, "pick request")


def encode_explanation(explanation: Explanation) -> routing_pb2.Explanation:
    """Return the explanation as a message; reasons are the words of `x-gir-drop-reason`."""
    return routing_pb2.Explanation(
        request_id=explanation.request_id,
        snapshot_version=explanation.snapshot_version,
        policy_revision=explanation.policy_revision,
        verdicts=[
            routing_pb2.Verdict(
                candidate=verdict.candidate,
                reason=verdict.reason.value if verdict.reason is not None else "",
                weight=verdict.weight,
                level=verdict.level,
                scores=[routing_pb2.Score(scorer=scorer, value=value) for scorer, value in verdict.scores],
                note=verdict.note,
            )
            for verdict in explanation.verdicts
        ],
        draw=explanation.draw,
        panic=explanation.panic,
        note=explanation.note,
        excluded=explanation.excluded,
        trial=explanation.trial,
    )


def encode_rejection(rejected: Rejected, *, explain: bool) -> routing_pb2.Rejection:
    """Return a refusal as `RouteStream` carries it, with the gRPC code of the status table."""
    return routing_pb2.Rejection(
        code=STATUS[rejected.reason].grpc,
        drop_reason=rejected.reason.value,
        message=rejected.message,
        retry_after_ms=None if rejected.retry_after is None else whole_ms(rejected.retry_after),
        request_id=rejected.explanation.request_id,
        explanation=encode_explanation(rejected.explanation) if explain else None,
    )


def encode_cluster_status(
    candidate: Candidate, pools: Iterable[PoolReport], silence: Duration | None
) -> routing_pb2.ClusterStatus:
    """Return one cluster of `WatchFleet`; `silence` is the time since its last live report, None before the first."""
    return routing_pb2.ClusterStatus(
        cluster=candidate.id,
        region=candidate.locality.region,
        jurisdiction=candidate.locality.jurisdiction,
        state=_STATES[candidate.state],
        draining=candidate.draining,
        ejected=candidate.ejected,
        probing_ok=candidate.probing_ok,
        policy_mismatch=candidate.policy_mismatch,
        ramp=candidate.ramp,
        silence_ms=None if silence is None else whole_ms(silence),
        pools=[encode_pool(pool) for pool in pools],
    )


def whole_ms(span: Duration) -> int:
    """Return a span in whole milliseconds, rounded up: a caller told to wait must not come back early."""
    return max(0, -(-span // NS_PER_MS))


def _request(
    message: routing_pb2.RouteRequest | picker_pb2.PickRequest,
    request_id: RequestId,
    tenant: Tenant,
    residency: ResidencyRule,
    what: str,
) -> InferenceRequest:
    traffic_class = _CLASSES.get(message.traffic_class)
    if traffic_class is None:
        raise UndecodableError(what, f"traffic_class {message.traffic_class} is not known")
    return InferenceRequest(
        request_id=request_id,
        tenant=tenant,
        model=ModelName(text(message.model, what, "model")),
        residency=residency,
        traffic_class=traffic_class,
        priority=min(message.priority, tenant.grants.priority_ceiling),
        prompt_tokens=Tokens(message.prompt_tokens) if message.HasField("prompt_tokens") else None,
        max_output_tokens=Tokens(message.max_output_tokens)
        if message.HasField("max_output_tokens")
        else None,
        stream=message.stream,
        session=optional_text(message.session, what, "session") or None,
    )


def _visible(value: str) -> bool:
    return value.isascii() and value.isprintable() and " " not in value
