"""The cluster's account of itself: pool reports and pod lists from the table, and when each is due.

A report is complete; what is unknown stays `None` and is never 0. Encoding, epochs and sending are not
here. Apart from the table so that what is said and what is judged change separately.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.core.fleet import PodRecord, PodState, PoolReport
from services.core.inference import ModelName
from services.core.pods.reading import pod_saturation
from services.core.pods.starting import ORDER
from services.core.pods.table import Pod, PodTable
from services.core.pods.ttft import merge, quantile_ms
from services.core.units import NS_PER_MS, Duration, Instant, WallMs, ms, seconds

REPORT_EVERY = ms(500)
"""Routers call a cluster silent after 1.25 s: two reports may be lost."""
REPORT_APART = ms(100)
"""However fast things change, a cluster is at most ten records a second on the bus."""
PODS_EVERY = seconds(5)
"""Pod lists are long and for people; they repeat slowly and go out at once when a pod changes state."""
LOAD_CHANGE = 0.10
LEAST_LOAD = 10
"""Below ten requests, one more or less is not news."""


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A declared pool: pods that serve the same models.

    `start_takes` is the declared length of a pod's whole start, used until starts have been measured.
    """

    name: str
    models: tuple[ModelName, ...]
    tier: str = ""
    start_takes: Duration | None = None


def pool_reports(
    table: PodTable, pools: Iterable[PoolSpec], *, draining: bool, now: Instant | None = None
) -> tuple[PoolReport, ...]:
    """Return the report of every (pool, model); without `now` none says when its warming pods will be ready."""
    return tuple(_report(table, pool, model, draining, now) for pool in pools for model in pool.models)


def _report(
    table: PodTable, pool: PoolSpec, model: ModelName, draining: bool, now: Instant | None
) -> PoolReport:
    # A pod that is being deleted is no part of what the pool has: a rolling update is not a shortage.
    pods = [pod for pod in table.in_pool(pool.name) if not pod.terminating]
    ready = table.ready(pool.name)
    # A reading is load only while it is current; a stale pod serves, and its load is unknown.
    readings = [pod.reading for pod in ready if pod.reading is not None and pod.state is not PodState.STALE]
    kv = [reading.kv_use for reading in readings if reading.kv_use is not None]
    saturations = [pod_saturation(reading.waiting, reading.kv_use) for reading in readings]
    ttft = merge(pod.ttft.recent() for pod in ready if pod.ttft is not None)
    return PoolReport(
        pool=pool.name,
        model=model,
        ready_endpoints=len(ready),
        total_endpoints=len(pods),
        waiting=_sum([reading.waiting for reading in readings], len(ready)),
        running=_sum([reading.running for reading in readings], len(ready)),
        capacity_requests=_capacity([pod.declared_requests for pod in pods]),
        capacity_tokens_per_s=_throughput([pod.declared_tokens_per_s for pod in pods]),
        kv_use_mean=sum(kv) / len(kv) if kv else None,
        kv_use_max=max(kv, default=None),
        saturation=_mean(saturations),
        ttft_ms_p50=quantile_ms(ttft, 0.50),
        ttft_ms_p95=quantile_ms(ttft, 0.95),
        resident_adapters=_union(reading.active_adapters for reading in readings),
        waiting_adapters=_union(reading.waiting_adapters for reading in readings),
        engine=next((reading.engine for reading in readings), ""),
        tier=pool.tier,
        warming_endpoints=sum(pod.state is PodState.WARMING for pod in pods),
        warming_eta_ms=None if now is None else warming_eta_ms(table, pool, now),
        draining=draining,
    )


def warming_eta_ms(table: PodTable, pool: PoolSpec, now: Instant) -> int | None:
    """Return when the first of the pool's warming pods will be ready, in milliseconds from `now`; None when unknown."""
    etas = [
        eta
        for pod in table.in_pool(pool.name)
        if pod.state is PodState.WARMING and (eta := _start_left(table, pool, pod, now)) is not None
    ]
    return min(etas) // NS_PER_MS if etas else None


def _start_left(table: PodTable, pool: PoolSpec, pod: Pod, now: Instant) -> Duration | None:
    times = table.starts.get(pool.name)
    if pod.phase in ORDER and times is not None:
        measured = times.remaining(pod.phase, Duration(now - pod.phase_since))
        if measured is not None:
            return measured
    begun = pod.starting_since if pod.phase in ORDER else pod.since
    if pool.start_takes is None or now - begun > pool.start_takes:
        return None
    return Duration(pool.start_takes - (now - begun))


def _sum(values: Sequence[int | None], count: int) -> int | None:
    """Sum over `count` pods; one that does not say counts as the mean of those that do."""
    known = [value for value in values if value is not None]
    return round(sum(known) * count / len(known)) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _capacity(values: Sequence[int | None]) -> int | None:
    """Sum declared sizes; one undeclared pod makes the whole unknown, and no pod makes it 0."""
    return None if None in values else sum(value for value in values if value is not None)


def _throughput(values: Sequence[float | None]) -> float | None:
    return None if None in values else sum(value for value in values if value is not None)


def _union(sets: Iterable[frozenset[str]]) -> tuple[str, ...]:
    return tuple(sorted(frozenset[str]().union(*sets)))


def pod_records(pods: Iterable[Pod], now: Instant, wall_ms: WallMs) -> tuple[PodRecord, ...]:
    """Return the pod list; `wall_ms` is the wall time at `now`."""
    return tuple(
        PodRecord(
            id=pod.id,
            address=pod.address,
            state=pod.state,
            engine=_engine(pod),
            version=pod.identity.version if pod.identity is not None else "",
            since_ms=WallMs(wall_ms - (now - pod.since) // NS_PER_MS),
            reason=pod.reason,
        )
        for pod in pods
    )


def _engine(pod: Pod) -> str:
    if pod.identity is not None:
        return pod.identity.engine
    return pod.reading.engine if pod.reading is not None else ""


def report_due(
    last: tuple[PoolReport, ...] | None, sent_at: Instant, current: tuple[PoolReport, ...], now: Instant
) -> bool:
    """Whether to publish now: the interval is over, or the state changed or the load moved by over 10 %."""
    if last is None:
        return True
    age = now - sent_at
    return age >= REPORT_EVERY or (age >= REPORT_APART and _newsworthy(last, current))


def _newsworthy(last: tuple[PoolReport, ...], current: tuple[PoolReport, ...]) -> bool:
    return len(last) != len(current) or any(
        _state(old) != _state(new) or _load_moved(old, new) for old, new in zip(last, current, strict=True)
    )


def _state(report: PoolReport) -> tuple[object, ...]:
    return (
        report.pool,
        report.model,
        report.ready_endpoints,
        report.total_endpoints,
        report.warming_endpoints,
        report.draining,
        report.resident_adapters,
        report.waiting is None,
        report.running is None,
        report.saturation is None,
    )


def _load_moved(old: PoolReport, new: PoolReport) -> bool:
    before = (old.waiting or 0) + (old.running or 0)
    moved = abs((new.waiting or 0) + (new.running or 0) - before)
    scale = max(before, new.capacity_requests or LEAST_LOAD)
    return moved > LOAD_CHANGE * scale or abs((new.saturation or 0) - (old.saturation or 0)) > LOAD_CHANGE


def pods_due(
    last: tuple[PodRecord, ...] | None, sent_at: Instant, current: tuple[PodRecord, ...], now: Instant
) -> bool:
    """Whether to publish a pool's pod list now: something but its timestamps changed, or 5 s have passed."""
    if last is None:
        return True
    age: Duration = Duration(now - sent_at)
    return age >= PODS_EVERY or (age >= REPORT_APART and _essence(last) != _essence(current))


def _essence(records: tuple[PodRecord, ...]) -> tuple[tuple[object, ...], ...]:
    """A pod list without `since_ms`, whose last millisecond depends on rounding."""
    return tuple(
        (record.id, record.address, record.state, record.engine, record.version, record.reason)
        for record in records
    )
