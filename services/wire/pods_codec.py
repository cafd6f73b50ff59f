"""Pod lists: `PodsReport` values <-> bytes of topic `gir.pods`, one record per (cluster, pool).

The list is for people and for Endpoint Mode; no health is judged by it. A state this build does
not know counts as FAILED: a newer picker's new state must not make a pod look ready.
"""

from services.core.fleet import PodRecord, PodsReport, PodState, ReportId
from services.core.locality import ClusterId
from services.core.units import WallMs
from services.wire.errors import OversizeError, UndecodableError
from services.wire.gen.gir.v1 import pods_pb2
from services.wire.messages import name, optional_text, ordinal, parse, text, wall_ms

MAX_PODS_BYTES = 512 << 10
"""Half of Kafka's default record bound; about 4000 pods of one pool."""

_WHAT = "pods report"
_STATES = {state: pods_pb2.PodState.Value(f"POD_STATE_{state.value}") for state in PodState}
_BY_NUMBER = {number: state for state, number in _STATES.items()}


def pods_key(cluster: str, pool: str) -> str:
    """Return the record key of one pool; neither name can hold a slash."""
    return f"{cluster}/{pool}"


def encode_pods(report: PodsReport) -> bytes:
    """Return the message bytes, at most `MAX_PODS_BYTES`; pods that do not fit are cut from the end and marked."""
    message = pods_message(report)
    if message.ByteSize() <= MAX_PODS_BYTES:
        return message.SerializeToString()
    message.pods_truncated = True
    fits, too_many = 0, len(report.pods)
    pods = [_pod_message(pod) for pod in report.pods]
    while too_many - fits > 1:
        kept = (fits + too_many) // 2
        del message.pods[:]
        message.pods.extend(pods[:kept])
        if message.ByteSize() <= MAX_PODS_BYTES:
            fits = kept
        else:
            too_many = kept
    del message.pods[:]
    message.pods.extend(pods[:fits])
    if message.ByteSize() > MAX_PODS_BYTES:
        raise OversizeError(f"{_WHAT} of {report.cluster}: the names alone exceed {MAX_PODS_BYTES} bytes")
    return message.SerializeToString()


def pods_message(report: PodsReport) -> pods_pb2.PodsReport:
    """Return the whole report as a message, whatever its size (`WatchFleet` nests it)."""
    return pods_pb2.PodsReport(
        cluster=report.cluster,
        pool=report.pool,
        epoch=report.id.epoch,
        sequence=report.id.sequence,
        pods=[_pod_message(pod) for pod in report.pods],
        pods_truncated=report.pods_truncated,
    )


def decode_pods(data: bytes) -> PodsReport:
    """Return the pod list in `data`; raise `UndecodableError` when there is none or it contradicts itself."""
    return pods_of(parse(pods_pb2.PodsReport, data, _WHAT, MAX_PODS_BYTES))


def pods_of(message: pods_pb2.PodsReport) -> PodsReport:
    """Return the pod list a message carries; raise `UndecodableError` as `decode_pods` does."""
    pods = tuple(_pod_of(pod) for pod in message.pods)
    if len({pod.id for pod in pods}) != len(pods):
        raise UndecodableError(_WHAT, "two entries are for the same pod")
    return PodsReport(
        cluster=ClusterId(name(message.cluster, _WHAT, "cluster")),
        pool=name(message.pool, _WHAT, "pool"),
        id=ReportId(ordinal(message.epoch, _WHAT, "epoch"), ordinal(message.sequence, _WHAT, "sequence")),
        pods=pods,
        pods_truncated=message.pods_truncated,
    )


def _pod_message(pod: PodRecord) -> pods_pb2.PodRecord:
    return pods_pb2.PodRecord(
        id=pod.id,
        address=pod.address,
        state=_STATES[pod.state],
        engine=pod.engine,
        version=pod.version,
        since_ms=pod.since_ms,
        reason=pod.reason,
    )


def _pod_of(message: pods_pb2.PodRecord) -> PodRecord:
    return PodRecord(
        id=text(message.id, _WHAT, "pod id"),
        address=text(message.address, _WHAT, "address"),
        state=_BY_NUMBER.get(message.state, PodState.FAILED),
        engine=optional_text(message.engine, _WHAT, "engine"),
        version=optional_text(message.version, _WHAT, "version"),
        since_ms=WallMs(wall_ms(message.since_ms, _WHAT, "since_ms")),
        reason=optional_text(message.reason, _WHAT, "reason"),
    )
