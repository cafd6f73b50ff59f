"""Load of a cluster from its report: sums over pools, per model and as a whole, and how it fades.

Unknown is a value of its own: a sum with an unknown part is unknown, a mean is over the
parts that are known. Computed once per report, because snapshots are built more often
than a cluster changes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from services.core.fleet import HealthReport, LoadReport, PoolReport
from services.core.inference import ModelName
from services.core.policy import HealthPolicy

NOTHING_KNOWN = LoadReport(confidence=0.0)
"""Load of a cluster that answers probes but was never read about: unknown, and unknown is not 0."""


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """A report's load: of the whole cluster, and of the pools of each model it serves."""

    whole: LoadReport = NOTHING_KNOWN
    by_model: Mapping[ModelName, LoadReport] = field(default_factory=dict)


NO_LOAD = ClusterLoad()


def load_of(report: HealthReport) -> ClusterLoad:
    """Return the load of `report`. Draining pools neither serve nor count as unready."""
    serving = [pool for pool in report.pools if not pool.draining and pool.total_endpoints > 0]
    by_model: dict[ModelName, list[PoolReport]] = {}
    for pool in serving:
        by_model.setdefault(pool.model, []).append(pool)
    if not serving:
        return ClusterLoad(LoadReport(ready=0, total=0))
    whole = _sum(serving)
    if len(by_model) == 1:
        return ClusterLoad(whole, dict.fromkeys(by_model, whole))
    return ClusterLoad(whole, {model: _sum(pools) for model, pools in by_model.items()})


def strained(load: ClusterLoad, policy: HealthPolicy) -> bool:
    """Return whether a report with this load means DEGRADED: saturated, or too few endpoints ready."""
    whole = load.whole
    if whole.saturation is not None and whole.saturation >= policy.degraded_saturation:
        return True
    return whole.ready < policy.degraded_ready_share * whole.total


def faded(load: ClusterLoad, confidence: float) -> ClusterLoad:
    """Return `load` with the influence its age deserves; at 0 every measure is unknown, the counts stay."""
    if confidence >= 1:
        return load
    whole = _fade(load.whole, confidence)
    return ClusterLoad(
        whole, {model: _fade(of_model, confidence) for model, of_model in load.by_model.items()}
    )


def _fade(load: LoadReport, confidence: float) -> LoadReport:
    if confidence > 0:
        return replace(load, confidence=confidence)
    return LoadReport(
        ready=load.ready,
        total=load.total,
        capacity_requests=load.capacity_requests,
        max_adapters=load.max_adapters,
        confidence=0.0,
    )


def _sum(pools: Sequence[PoolReport]) -> LoadReport:
    return LoadReport(
        ready=sum(pool.ready_endpoints for pool in pools),
        total=sum(pool.total_endpoints for pool in pools),
        waiting=_total(pool.waiting for pool in pools),
        running=_total(pool.running for pool in pools),
        capacity_requests=_total(pool.capacity_requests for pool in pools),
        kv_use=_mean(pools, lambda pool: pool.kv_use_mean),
        saturation=_mean(pools, lambda pool: pool.saturation),
        ttft_ms=_mean(pools, lambda pool: pool.ttft_ms_p50),
        active_adapters=frozenset(name for pool in pools for name in pool.resident_adapters),
        waiting_adapters=frozenset(name for pool in pools for name in pool.waiting_adapters),
    )


def _total(parts: Iterable[float | None]) -> float | None:
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _mean(pools: Sequence[PoolReport], measure: Callable[[PoolReport], float | None]) -> float | None:
    """Return the mean over ready endpoints of the pools that know the measure; None when none does."""
    weight = 0
    weighted = 0.0
    for pool in pools:
        value = measure(pool)
        if value is not None and pool.ready_endpoints > 0:
            weight += pool.ready_endpoints
            weighted += pool.ready_endpoints * value
    return weighted / weight if weight else None
