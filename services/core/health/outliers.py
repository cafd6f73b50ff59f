"""Passive ejection by what requests experience, in Envoy's outlier-detection vocabulary.

Consecutive connect failures or gateway errors eject for base x ejections, up to a maximum;
a 429 never counts. Nothing here knows states or probes. Source: Envoy's outlier detection
(consecutive_local_origin_failure, consecutive_gateway_failure, base_ejection_time,
max_ejection_time, max_ejection_percent).
"""

from dataclasses import dataclass, replace

from services.core.health.effects import Reason
from services.core.policy import HealthPolicy
from services.core.units import Duration, Instant, after


@dataclass(frozen=True, slots=True)
class Outlier:
    """What traffic has shown of one cluster. `ejections` is the multiplier the last ejection had."""

    connect_failures: int = 0
    gateway_errors: int = 0
    ejected_until: Instant | None = None
    ejections: int = 0
    restored_at: Instant | None = None

    @property
    def ejected(self) -> bool:
        """Whether the cluster is ejected now."""
        return self.ejected_until is not None

    @property
    def counting(self) -> bool:
        """Whether a success would reset anything."""
        return self.connect_failures > 0 or self.gateway_errors > 0


CLEAN = Outlier()


def connect_failed(outlier: Outlier) -> Outlier:
    """Return `outlier` after one more connect failure."""
    return replace(outlier, connect_failures=outlier.connect_failures + 1)


def gateway_errored(outlier: Outlier) -> Outlier:
    """Return `outlier` after a gateway error; the connection stood, so connect failures start anew."""
    return replace(outlier, connect_failures=0, gateway_errors=outlier.gateway_errors + 1)


def succeeded(outlier: Outlier) -> Outlier:
    """Return `outlier` after a success: both runs of failures end."""
    if not outlier.counting:
        return outlier
    return replace(outlier, connect_failures=0, gateway_errors=0)


def trip_reason(outlier: Outlier, policy: HealthPolicy) -> Reason | None:
    """Return why the cluster should be ejected, or None."""
    if outlier.ejected:
        return None
    if outlier.connect_failures >= policy.connect_failures_to_eject:
        return Reason.CONNECT_FAILED
    if outlier.gateway_errors >= policy.gateway_errors_to_eject:
        return Reason.GATEWAY_ERRORS
    return None


def may_eject(ejected: int, clusters: int, policy: HealthPolicy) -> bool:
    """Return whether one more of `clusters` may be ejected: at most max(1, share of the clusters)."""
    return ejected < max(1, int(clusters * policy.ejection_max_share))


def eject(outlier: Outlier, policy: HealthPolicy, now: Instant) -> tuple[Outlier, Duration]:
    """Return the ejected outlier and the span. The multiplier falls by one per quiet base interval."""
    ejections = outlier.ejections
    if outlier.restored_at is not None:
        ejections = max(0, ejections - (now - outlier.restored_at) // policy.ejection_base)
    ejections += 1
    span = Duration(min(policy.ejection_base * ejections, policy.ejection_max))
    return Outlier(ejected_until=after(now, span), ejections=ejections), span


def restore(outlier: Outlier, now: Instant) -> Outlier:
    """Return `outlier` with its ejection ended and its multiplier remembered."""
    return Outlier(ejections=outlier.ejections, restored_at=now)
