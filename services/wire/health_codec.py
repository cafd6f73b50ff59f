"""Health reports: `HealthReport` values <-> bytes of topic `gir.health`.

A report is complete, so decoding needs nothing but the bytes. Unknown stays unknown: an absent,
NaN, infinite or negative measured number decodes to `None`, never to 0. Ordering by
(epoch, sequence) and everything about time is left to the readers.
"""

from typing import Any

from services.core.fleet import HealthReport, PoolReport, ReportId
from services.core.inference import ModelName
from services.core.locality import ClusterId, Jurisdiction, Region
from services.core.units import WallMs
from services.wire.errors import OversizeError, UndecodableError
from services.wire.gen.gir.v1 import health_pb2
from services.wire.messages import jurisdiction, measured, name, optional_text, ordinal, parse, text, wall_ms

MAX_REPORT_BYTES = 64 << 10
"""A region reads hundreds of reports a second and keeps each in Redis; more would be a pod list in disguise."""

_WHAT = "health report"
_COUNTS = ("waiting", "running", "capacity_requests", "warming_eta_ms")
_MEASURES = ("capacity_tokens_per_s", "kv_use_mean", "kv_use_max", "saturation", "ttft_ms_p50", "ttft_ms_p95")


def encode_report(report: HealthReport) -> bytes:
    """Return the message bytes, at most `MAX_REPORT_BYTES`.

    Adapter lists are cut to the longest common length that fits, and the pools that lost some are
    marked `adapters_truncated`. Raises `OversizeError` when the pools alone do not fit.
    """
    longest = max((max(len(p.resident_adapters), len(p.waiting_adapters)) for p in report.pools), default=0)
    message = _report_message(report, longest)
    if message.ByteSize() <= MAX_REPORT_BYTES:
        return message.SerializeToString()
    fits, too_long = -1, longest
    while too_long - fits > 1:
        kept = (fits + too_long) // 2
        if _report_message(report, kept).ByteSize() <= MAX_REPORT_BYTES:
            fits = kept
        else:
            too_long = kept
    if fits < 0:
        raise OversizeError(
            f"{_WHAT} of {report.cluster}: {len(report.pools)} pools exceed {MAX_REPORT_BYTES} bytes"
        )
    return _report_message(report, fits).SerializeToString()


def decode_report(data: bytes) -> HealthReport:
    """Return the report in `data`; raise `UndecodableError` when there is none or it contradicts itself."""
    message = parse(health_pb2.HealthReport, data, _WHAT, MAX_REPORT_BYTES)
    pools = tuple(decode_pool(pool, _WHAT) for pool in message.pools)
    if len({(pool.pool, pool.model) for pool in pools}) != len(pools):
        raise UndecodableError(_WHAT, "two entries are for the same pool and model")
    return HealthReport(
        cluster=ClusterId(name(message.cluster, _WHAT, "cluster")),
        id=ReportId(ordinal(message.epoch, _WHAT, "epoch"), ordinal(message.sequence, _WHAT, "sequence")),
        region=Region(name(message.region, _WHAT, "region")),
        jurisdiction=Jurisdiction(jurisdiction(message.jurisdiction, _WHAT)),
        observed_at_ms=WallMs(wall_ms(message.observed_at_ms, _WHAT, "observed_at_ms")),
        pools=pools,
        draining=message.draining,
    )


def encode_pool(pool: PoolReport, max_adapters: int | None = None) -> health_pb2.PoolReport:
    """Return the message of one pool with at most `max_adapters` names per adapter list (None: all)."""
    resident, waiting = pool.resident_adapters[:max_adapters], pool.waiting_adapters[:max_adapters]
    cut = len(resident) < len(pool.resident_adapters) or len(waiting) < len(pool.waiting_adapters)
    message = health_pb2.PoolReport(
        pool=pool.pool,
        model=pool.model,
        ready_endpoints=pool.ready_endpoints,
        total_endpoints=pool.total_endpoints,
        waiting=pool.waiting,
        running=pool.running,
        capacity_requests=pool.capacity_requests,
        draining=pool.draining,
        resident_adapters=resident,
        waiting_adapters=waiting,
        adapters_truncated=pool.adapters_truncated or cut,
        engine=pool.engine,
        tier=pool.tier,
        warming_endpoints=pool.warming_endpoints,
        warming_eta_ms=pool.warming_eta_ms,
    )
    for field in _MEASURES:
        value: float | None = getattr(pool, field)
        if value is not None and measured(value) is not None:
            setattr(message, field, value)
    return message


def decode_pool(message: health_pb2.PoolReport, what: str) -> PoolReport:
    """Return one pool's load; `what` names the enclosing message in errors."""
    if message.ready_endpoints > message.total_endpoints:
        raise UndecodableError(
            what,
            f"pool {message.pool!r} has {message.ready_endpoints} ready of {message.total_endpoints} endpoints",
        )
    present = {descriptor.name for descriptor, _ in message.ListFields()}
    counts: dict[str, Any] = {field: getattr(message, field) for field in _COUNTS if field in present}
    measures: dict[str, Any] = {
        field: measured(getattr(message, field)) for field in _MEASURES if field in present
    }
    return PoolReport(
        pool=name(message.pool, what, "pool"),
        model=ModelName(text(message.model, what, "model")),
        ready_endpoints=message.ready_endpoints,
        total_endpoints=message.total_endpoints,
        resident_adapters=tuple(text(value, what, "resident adapter") for value in message.resident_adapters),
        waiting_adapters=tuple(text(value, what, "waiting adapter") for value in message.waiting_adapters),
        adapters_truncated=message.adapters_truncated,
        engine=optional_text(message.engine, what, "engine"),
        tier=optional_text(message.tier, what, "tier"),
        warming_endpoints=message.warming_endpoints,
        draining=message.draining,
        **counts,
        **measures,
    )


def _report_message(report: HealthReport, max_adapters: int) -> health_pb2.HealthReport:
    return health_pb2.HealthReport(
        cluster=report.cluster,
        epoch=report.id.epoch,
        sequence=report.id.sequence,
        region=report.region,
        jurisdiction=report.jurisdiction,
        observed_at_ms=report.observed_at_ms,
        pools=[encode_pool(pool, max_adapters) for pool in report.pools],
        draining=report.draining,
    )
