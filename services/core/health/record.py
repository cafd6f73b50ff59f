"""One cluster's record: everything the fleet state remembers about it, immutable.

Data and the questions that need no policy. The rules that replace one record by the next
live in `draft` and `judgements`. Apart so that every rule file may read a record without
knowing the others.
"""

from dataclasses import dataclass, replace

from services.core.fleet import HealthReport, HealthState, ReportId
from services.core.health.lag import NO_LAG_KNOWN, LagWindow
from services.core.health.loads import NO_LOAD, ClusterLoad
from services.core.health.outliers import CLEAN, Outlier
from services.core.locality import Locality
from services.core.outcomes import DropReason
from services.core.policy import ClusterSpec
from services.core.units import Duration, Instant

RTTS_KEPT = 32
"""Round trips remembered per cluster: at the slow cadence, those of the last three minutes."""

NEVER = Instant(0)
"""The instant of what has not happened; every clock reading lies after it."""


@dataclass(frozen=True, slots=True)
class ProbeMemory:
    """What probes have shown. `failed` runs on across states; the `_here` counts start at each entry."""

    failed: int = 0
    failed_here: int = 0
    good_here: int = 0
    last_good_at: Instant | None = None
    rtts: tuple[Duration, ...] = ()

    def answered(self, finished_at: Instant, rtt: Duration) -> "ProbeMemory":
        """Return the memory after a good probe."""
        return ProbeMemory(0, 0, self.good_here + 1, finished_at, (*self.rtts, rtt)[-RTTS_KEPT:])

    def missed(self) -> "ProbeMemory":
        """Return the memory after a failed probe."""
        return replace(self, failed=self.failed + 1, failed_here=self.failed_here + 1, good_here=0)

    def counted_anew(self) -> "ProbeMemory":
        """Return the memory with the counts of the present state at zero."""
        if not self.failed_here and not self.good_here:
            return self
        return replace(self, failed_here=0, good_here=0)


NOT_PROBED = ProbeMemory()


@dataclass(frozen=True, slots=True)
class Trials:
    """Trials of the present probation. `last_at` is when one last began or ended, or probation did."""

    in_flight: int = 0
    admitted: int = 0
    successes: int = 0
    last_at: Instant = NEVER


NO_TRIALS = Trials()


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A cluster as this router knows it.

    `quiet_since` is the arrival of the last live report, or the last restart of the timers.
    `silent` and `silent_at` say that it has been quiet for too long, and since when that is
    known; `heard` that a live report ever came. `load_at` is when the load was true on this
    host's clock. `reports_here` counts live reports since the state was entered.
    """

    spec: ClusterSpec
    state: HealthState
    entered_at: Instant
    quiet_since: Instant
    silent: bool = True
    silent_at: Instant = NEVER
    heard: bool = False
    report_id: ReportId | None = None
    reported_from: Locality | None = None
    draining: bool = False
    load: ClusterLoad = NO_LOAD
    load_at: Instant = NEVER
    lag: LagWindow = NO_LAG_KNOWN
    reports_here: int = 0
    probes: ProbeMemory = NOT_PROBED
    outlier: Outlier = CLEAN
    trials: Trials = NO_TRIALS
    returns: tuple[Instant, ...] = ()
    ramp_from: Instant | None = None

    @property
    def policy_mismatch(self) -> bool:
        """Whether the cluster says it is elsewhere than policy says; then it is eligible for nothing."""
        return self.reported_from is not None and self.reported_from != self.spec.locality

    @property
    def exclusion(self) -> DropReason | None:
        """Why nothing new may be sent there, whatever an older snapshot says; None when it may."""
        if self.draining:
            return DropReason.DRAINED
        if self.policy_mismatch:
            return DropReason.REPORT_POLICY_MISMATCH
        if self.state is HealthState.UNHEALTHY or self.outlier.ejected:
            return DropReason.NO_HEALTHY_CLUSTER
        return None

    @property
    def failing(self) -> bool:
        """Whether its latest probe failed."""
        return self.probes.failed > 0


def unknown(spec: ClusterSpec, now: Instant, report_id: ReportId | None = None) -> ClusterRecord:
    """Return the record of a cluster nothing is known of; `report_id` keeps older reports out."""
    return ClusterRecord(spec, HealthState.UNKNOWN, now, now, report_id=report_id)


def informed(
    record: ClusterRecord,
    report: HealthReport,
    load: ClusterLoad,
    load_at: Instant,
    lag: LagWindow | None = None,
) -> ClusterRecord:
    """Return `record` with what `report` says of load, place and drain; state and silence are not touched.

    `lag` is the window with a live report in it; None leaves it as it is.
    """
    place = record.reported_from
    if place is None or place.region != report.region or place.jurisdiction != report.jurisdiction:
        place = Locality(report.region, report.jurisdiction)
    return replace(
        record,
        report_id=report.id,
        reported_from=place,
        draining=report.draining,
        load=load,
        load_at=load_at,
        lag=record.lag if lag is None else lag,
    )
