"""What follows from a change of the fleet: effects as values, for the shell to perform in order.

Nothing here acts. `StateChanged` is for logs and metrics, `ClusterLost` for the request
life cycle, the others for the router's own readiness. Apart from the events so that what
happened and what is to be done are never confused.
"""

import enum
from dataclasses import dataclass

from services.core.fleet import HealthState
from services.core.locality import ClusterId, Locality
from services.core.units import NS_PER_S, Duration, in_ms


class Reason(enum.Enum):
    """Why a cluster changed: closed, so that it can label a metric."""

    REPORT = "report"
    SILENT = "silent"
    PROBE_ANSWERED = "probe_answered"
    UNREACHABLE = "unreachable"
    CONNECT_FAILED = "connect_failed"
    GATEWAY_ERRORS = "gateway_errors"
    RETURNED = "returned"
    TRIALS_PASSED = "trials_passed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The cluster moved from one state of the table to another."""

    cluster: ClusterId
    before: HealthState
    after: HealthState
    reason: Reason


@dataclass(frozen=True, slots=True)
class ClusterEjected:
    """Passive ejection for `span`, because of `reason`."""

    cluster: ClusterId
    reason: Reason
    span: Duration


@dataclass(frozen=True, slots=True)
class ClusterRestored:
    """Passive ejection has ended; the cluster is back on a ramp."""

    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class ClusterLost:
    """Nothing more may go there: cancel its attempts without a first byte and send them elsewhere."""

    cluster: ClusterId
    reason: Reason


@dataclass(frozen=True, slots=True)
class PlaceDisputed:
    """The cluster reports another place than policy gives it; nothing goes there until they agree."""

    cluster: ClusterId
    policy: Locality
    reported: Locality


@dataclass(frozen=True, slots=True)
class PlaceAgreed:
    """Report and policy agree on the place again."""

    cluster: ClusterId


@dataclass(frozen=True, slots=True)
class BusSuspected:
    """So many clusters fell silent at once that the bus is the likelier culprit (`fleet_bus_outage`)."""

    silent: tuple[ClusterId, ...]


@dataclass(frozen=True, slots=True)
class BusTrusted:
    """Silence means something again."""


@dataclass(frozen=True, slots=True)
class RouterIsolated:
    """Every cluster is silent and every probe fails: this router suspects itself and is not ready."""


@dataclass(frozen=True, slots=True)
class RouterRejoined:
    """A cluster was heard or answered again; the router trusts its own eyes."""


@dataclass(frozen=True, slots=True)
class TimersRestarted:
    """The router had been paused for `late_by` beyond its deadline; nothing it missed is held against anyone."""

    late_by: Duration


Effect = (
    StateChanged
    | ClusterEjected
    | ClusterRestored
    | ClusterLost
    | PlaceDisputed
    | PlaceAgreed
    | BusSuspected
    | BusTrusted
    | RouterIsolated
    | RouterRejoined
    | TimersRestarted
)


def describe(effect: Effect) -> str:
    """Return the effect as a short line for people: logs, stories."""
    match effect:
        case StateChanged(cluster, before, after, reason):
            return f"{cluster}: {before.name} -> {after.name} ({reason.value})"
        case ClusterEjected(cluster, reason, span):
            return f"{cluster}: ejected for {span // NS_PER_S} s ({reason.value})"
        case ClusterRestored(cluster):
            return f"{cluster}: ejection over"
        case ClusterLost(cluster, reason):
            return f"{cluster}: lost ({reason.value})"
        case PlaceDisputed(cluster, policy, reported):
            return (
                f"{cluster}: place disputed: it reports {reported.region} ({reported.jurisdiction}), "
                f"policy says {policy.region} ({policy.jurisdiction})"
            )
        case PlaceAgreed(cluster):
            return f"{cluster}: place agreed"
        case BusSuspected(silent):
            return f"bus suspected: {' '.join(silent)} silent"
        case BusTrusted():
            return "bus trusted"
        case RouterIsolated():
            return "router isolated"
        case RouterRejoined():
            return "router rejoined"
        case _:
            return f"tick {in_ms(effect.late_by):.0f} ms late: timers restarted"
