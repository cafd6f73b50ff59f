"""What the fleet state is told: events that have happened, in past tense.

Values only. Every event carries the cluster it is about and the instants that were read
when it happened; `apply` gets `now` separately. Apart from the table, which speaks of
evidence (what an event proves), because one event may prove nothing or several things.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.core.fleet import HealthReport
from services.core.locality import ClusterId
from services.core.policy import PolicySnapshot
from services.core.units import Duration, Instant


@dataclass(frozen=True, slots=True)
class ReportArrived:
    """A report came in on the change stream. `live` is False for what a projector replayed."""

    report: HealthReport
    arrived_at: Instant
    live: bool = True


@dataclass(frozen=True, slots=True)
class ListLoaded:
    """A whole list came in: what is known, not what is alive. Clusters it lacks are left alone."""

    reports: Sequence[HealthReport]
    arrived_at: Instant


@dataclass(frozen=True, slots=True)
class ReportRemoved:
    """The cluster's tombstone came in; what was known of it is forgotten."""

    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class ProbeFinished:
    """An active probe ended; it began `rtt` before `finished_at`, also when it failed."""

    cluster: ClusterId
    ok: bool
    finished_at: Instant
    rtt: Duration


@dataclass(frozen=True, slots=True)
class TrafficSucceeded:
    """A request was answered by the cluster."""

    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """No connection to the cluster's gateway could be made, or it was reset before the request was read."""

    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class GatewayErrored:
    """The cluster's gateway answered with a server error (500, 502, 503, 504 that is not a drain)."""

    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class BackPressured:
    """The cluster answered 429: it is alive and full, which is never ill health."""

    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """A request was admitted to a cluster on probation."""

    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class TrialFinished:
    """A trial ended, however it ended; its outcome comes as a traffic event of its own."""

    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """A policy revision came into force."""

    policy: PolicySnapshot


ClusterEvent = (
    ReportRemoved
    | ProbeFinished
    | TrafficSucceeded
    | ConnectFailed
    | GatewayErrored
    | TrialStarted
    | TrialFinished
)
FleetEvent = ReportArrived | ListLoaded | PolicyChanged | BackPressured | ClusterEvent
