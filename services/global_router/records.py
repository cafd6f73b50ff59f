"""Decision records: what was decided for a request, and how each attempt went.

No text of a request and no hash of it is ever kept here. Instants are monotonic nanoseconds of
this host, so that a failover can be judged from the recorded dispatches. Filled in place by the
life cycle while the request runs; rendered only when somebody reads it.
"""

from dataclasses import dataclass, field
from typing import Any

import orjson

from services.core.inference import ModelName, RequestId, TenantId, TrafficClass
from services.core.units import Instant, WallMs, in_ms


@dataclass(slots=True)
class AttemptRecord:
    """One attempt: `outcome` is `open` until it ended, then a closed word of the attempt machine."""

    number: int
    cluster: str
    redispatch: bool
    sent_at: Instant
    outcome: str = "open"
    status: int = 0
    ended_at: Instant | None = None


@dataclass(slots=True)
class DecisionRecord:
    """One request from door to end."""

    request_id: RequestId
    client_request_id: str
    door: str
    tenant: TenantId
    model: ModelName
    traffic_class: TrafficClass
    received_at: Instant
    received_ms: WallMs
    policy_revision: int
    snapshot_version: int
    decide_ns: int = 0
    draw: float | None = None
    panic: bool = False
    note: str = ""
    cluster: str = ""
    region: str = ""
    jurisdiction: str = ""
    endpoint: str = ""
    status: int = 0
    drop_reason: str = ""
    first_byte_at: Instant | None = None
    ended_at: Instant | None = None
    usage: bytes | None = None
    """The model server's usage object as JSON bytes, read only when the record is rendered."""
    attempts: list[AttemptRecord] = field(default_factory=list)


def render(record: DecisionRecord) -> bytes:
    """Return the record as one JSON line (no newline)."""
    return orjson.dumps(as_fields(record))


def as_fields(record: DecisionRecord) -> dict[str, Any]:
    """Return the record as plain fields: units last in the names, absent values left out."""
    fields: dict[str, Any] = {
        "request_id": record.request_id,
        "client_request_id": record.client_request_id,
        "door": record.door,
        "tenant": record.tenant,
        "model": record.model,
        "traffic_class": record.traffic_class.value,
        "received_at_ms": record.received_ms,
        "received_at_ns": record.received_at,
        "policy_revision": record.policy_revision,
        "snapshot_version": record.snapshot_version,
        "decide_us": record.decide_ns / 1000,
        "draw": record.draw,
        "panic": record.panic or None,
        "note": record.note,
        "cluster": record.cluster,
        "region": record.region,
        "jurisdiction": record.jurisdiction,
        "endpoint": record.endpoint,
        "status": record.status or None,
        "drop_reason": record.drop_reason,
        "first_byte_ms": _since(record, record.first_byte_at),
        "duration_ms": _since(record, record.ended_at),
        "usage": None if record.usage is None else _readable(record.usage),
        "attempts": [_attempt_fields(attempt) for attempt in record.attempts],
    }
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _readable(usage: bytes) -> Any:
    """Return a usage object as values, or None: what a model server writes may be no JSON that others can read.

    Numbers beyond a double, lone surrogates and bytes that are no UTF-8 fail in reading, deep nesting in writing one level down.
    """
    try:
        values = orjson.loads(usage)
        orjson.dumps([values])
    except (ValueError, TypeError):
        return None
    return values


def _attempt_fields(attempt: AttemptRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "number": attempt.number,
        "cluster": attempt.cluster,
        "redispatch": attempt.redispatch or None,
        "sent_at_ns": attempt.sent_at,
        "outcome": attempt.outcome,
        "status": attempt.status or None,
        "ended_at_ns": attempt.ended_at,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _since(record: DecisionRecord, instant: Instant | None) -> float | None:
    return None if instant is None else in_ms(instant - record.received_at)
