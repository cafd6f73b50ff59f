"""The second witness: what active probes have shown, and when the next one is due.

A cluster is probed at all times, slowly while it is heard and answers, quickly when it is
suspect; never two probes of one cluster at once. The schedule is a pure function, the
sockets are the supervisor's. Apart from the table, which only learns that probes answered
or failed often enough.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType

from services.core.fleet import HealthState
from services.core.health.record import ClusterRecord
from services.core.locality import ClusterId
from services.core.policy import HealthPolicy
from services.core.units import Duration, Instant, after, seconds

FAILURES_TO_CONDEMN: Mapping[HealthState, int] = MappingProxyType(
    {
        HealthState.UNKNOWN: 2,
        HealthState.HEALTHY: 3,
        HealthState.DEGRADED: 3,
        HealthState.STALE: 2,
        HealthState.PROBATION: 2,
    }
)
"""Consecutive failed probes, counted from the entry of the state, that make a cluster UNHEALTHY. One
more where live reports contradict the probes."""

GOOD_TO_RETURN = 2
"""Consecutive good probes that an UNHEALTHY cluster shows before it may be tried."""

TIMEOUT_MAX = seconds(2)
"""A witness slower than this is no witness: without the limit 2 x RTT p99 could double for ever."""


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """One probe to start now."""

    cluster: ClusterId
    url: str
    timeout: Duration


def suspect(record: ClusterRecord) -> bool:
    """Return whether the cluster is probed at the quick cadence.

    A silent UNHEALTHY cluster is not: it cannot return before it is heard, so that haste only costs.
    """
    if record.state is HealthState.UNHEALTHY:
        return not record.silent
    return record.silent or record.probes.failed > 0


def due_at(record: ClusterRecord, policy: HealthPolicy, started_at: Instant) -> Instant:
    """Return when the probe after the one started at `started_at` is due."""
    return after(started_at, policy.probe_interval_suspect if suspect(record) else policy.probe_interval)


def timeout_of(record: ClusterRecord, policy: HealthPolicy) -> Duration:
    """Return max(floor, 2 x RTT p99), at most `TIMEOUT_MAX`; p99 of so few round trips is their maximum."""
    slowest = max(record.probes.rtts, default=Duration(0))
    return Duration(min(max(policy.probe_timeout_floor, 2 * slowest), TIMEOUT_MAX))


def probes_due(
    clusters: Mapping[ClusterId, ClusterRecord],
    policy: HealthPolicy,
    started: Mapping[ClusterId, Instant],
    in_flight: AbstractSet[ClusterId],
    now: Instant,
) -> tuple[ProbeOrder, ...]:
    """Return the probes to start at `now`; `started` holds the last start of each cluster's probes."""
    orders = []
    for cluster, record in clusters.items():
        if not record.spec.probe_url or cluster in in_flight:
            continue
        last = started.get(cluster)
        if last is None or due_at(record, policy, last) <= now:
            orders.append(ProbeOrder(cluster, record.spec.probe_url, timeout_of(record, policy)))
    return tuple(orders)


def next_probe_at(
    clusters: Mapping[ClusterId, ClusterRecord],
    policy: HealthPolicy,
    started: Mapping[ClusterId, Instant],
    in_flight: AbstractSet[ClusterId],
    now: Instant,
) -> Instant | None:
    """Return when `probes_due` next has something to say, if nothing else happens; None: never."""
    dues = (
        due_at(record, policy, started[cluster]) if cluster in started else now
        for cluster, record in clusters.items()
        if record.spec.probe_url and cluster not in in_flight
    )
    return min(dues, default=None)
