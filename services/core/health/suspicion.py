"""Whom to suspect when many clusters fall silent: the bus, or this router itself.

Counts over the whole fleet, kept as sums so that one event costs the same in any fleet.
Suspicion changes what silence means and nothing else; it never vetoes failed probes or
passive ejection. Apart from the table, which knows one cluster.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from services.core.fleet import HealthState
from services.core.health.record import ClusterRecord
from services.core.locality import ClusterId
from services.core.policy import HealthPolicy
from services.core.units import Instant

SUSPECTS_MIN = 2
"""One silent cluster is never the bus's fault."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many clusters there are, are silent, have a probe, fail it, and are ejected."""

    clusters: int = 0
    silent: int = 0
    probed: int = 0
    failing: int = 0
    ejected: int = 0

    @property
    def heard(self) -> int:
        """Clusters whose live reports are arriving."""
        return self.clusters - self.silent

    @property
    def every_probe_fails(self) -> bool:
        """Whether each probed cluster's latest probe failed, and there is one."""
        return self.probed > 0 and self.failing == self.probed

    @property
    def isolated(self) -> bool:
        """Whether nobody is heard and nobody answers: the common cause is this router."""
        return self.silent == self.clusters and self.every_probe_fails


NO_COUNTS = Counts()


def counted(counts: Counts, record: ClusterRecord, sign: int) -> Counts:
    """Return `counts` with `record` added (`sign` 1) or taken out (-1)."""
    probed = bool(record.spec.probe_url)
    return Counts(
        counts.clusters + sign,
        counts.silent + sign * record.silent,
        counts.probed + sign * probed,
        counts.failing + sign * (probed and record.failing),
        counts.ejected + sign * record.outlier.ejected,
    )


def fallen_silent(
    records: Iterable[ClusterRecord], policy: HealthPolicy, now: Instant
) -> frozenset[ClusterId]:
    """Return the clusters that fell silent within the last silence window and are not known to be dead."""
    return frozenset(
        record.spec.id
        for record in records
        if record.silent
        and record.heard
        and record.state is not HealthState.UNHEALTHY
        and now - record.silent_at <= policy.silence_stale
    )


def bus_suspect(silent: int, heard: int) -> bool:
    """Return whether `silent` clusters against `heard` ones point to the bus: at least two and at least half."""
    return silent >= SUSPECTS_MIN and silent >= heard
