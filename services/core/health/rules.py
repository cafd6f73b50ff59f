"""What one event does to one cluster's record: a function per event, worked into a draft.

Only conclusions about one cluster are drawn here; the fleet's (bus, isolation) are drawn
by the draft, and those of time by `fleet_state`. Apart so that each event's rule can be
read on its own.
"""

from dataclasses import replace

from services.core.fleet import HealthReport, HealthState
from services.core.health.draft import Draft
from services.core.health.effects import (
    ClusterEjected,
    ClusterLost,
    PlaceAgreed,
    PlaceDisputed,
    Reason,
    StateChanged,
)
from services.core.health.events import ProbeFinished, ReportRemoved
from services.core.health.lag import estimate, measure
from services.core.health.loads import load_of, strained
from services.core.health.outliers import (
    connect_failed,
    eject,
    gateway_errored,
    may_eject,
    succeeded,
    trip_reason,
)
from services.core.health.probation import (
    probe_credited,
    recent_returns,
    return_earned,
    trial_finished,
    trial_started,
)
from services.core.health.probes import FAILURES_TO_CONDEMN
from services.core.health.record import NEVER, NOT_PROBED, ClusterRecord, informed, unknown
from services.core.health.states import Evidence
from services.core.policy import PolicySnapshot
from services.core.units import Instant

# --- Reports and policy ---------------------------------------------------------------------------


def take_report(draft: Draft, report: HealthReport, arrived_at: Instant, *, live: bool) -> None:
    """Work in a report that is newer than what is known; only a live and timely one breaks silence."""
    record = draft.clusters.get(report.cluster)
    if record is None or (record.report_id is not None and report.id <= record.report_id):
        return
    before, load = record, load_of(report)
    if not live:
        lag = estimate(record.lag, report.id.epoch, arrived_at, report.observed_at_ms)
        load_at = NEVER if lag is None else Instant(arrived_at - lag)
        record = informed(record, report, load, load_at)
        _note_place(draft, before, record)
        draft.put(record)
        return
    window, lag = measure(record.lag, report.id.epoch, arrived_at, report.observed_at_ms)
    record = informed(record, report, load, Instant(arrived_at - lag), window)
    _note_place(draft, before, record)
    if lag <= draft.policy.late_report_lag and draft.now - arrived_at < draft.policy.silence_stale:
        record = _hear(draft, record, arrived_at)
    draft.put(record)


def _note_place(draft: Draft, before: ClusterRecord, record: ClusterRecord) -> None:
    """Note once that report and policy disagree on the place, anew for another one, and once that they agree."""
    if record.reported_from is before.reported_from and record.spec is before.spec:
        return
    reported, policy = record.reported_from, record.spec.locality
    if reported is None or not record.policy_mismatch:
        if before.policy_mismatch:
            draft.effects.append(PlaceAgreed(record.spec.id))
    elif (before.reported_from, before.spec.locality) != (reported, policy):
        draft.effects.append(PlaceDisputed(record.spec.id, policy, reported))


def _hear(draft: Draft, record: ClusterRecord, arrived_at: Instant) -> ClusterRecord:
    record = replace(
        record,
        quiet_since=Instant(max(record.quiet_since, arrived_at)),
        silent=False,
        heard=True,
        reports_here=record.reports_here + 1,
    )
    if record.state is HealthState.UNHEALTHY:
        return _consider_return(draft, record)
    if record.state is HealthState.PROBATION:
        return record
    sound = not strained(record.load, draft.policy)
    return draft.move(record, Evidence.REPORT_SOUND if sound else Evidence.REPORT_STRAINED, Reason.REPORT)


def take_policy(draft: Draft, policy: PolicySnapshot) -> None:
    """Add the clusters that are new, as UNKNOWN, and forget those that are gone."""
    draft.policy = policy.health
    declared = {spec.id: spec for spec in policy.clusters}
    for cluster in [name for name in draft.clusters if name not in declared]:
        draft.remove(cluster)
    for cluster, spec in declared.items():
        known = draft.clusters.get(cluster)
        if known is None:
            draft.put(unknown(spec, draft.now))
            continue
        record = replace(known, spec=spec)
        if known.spec.probe_url != spec.probe_url:
            # What another address answered says nothing about this one.
            record = replace(record, probes=NOT_PROBED)
        _note_place(draft, known, record)
        draft.put(record)


def forget(draft: Draft, record: ClusterRecord, _: ReportRemoved) -> None:
    """Make the cluster UNKNOWN at its tombstone; its last report id stays, to keep older reports
    out, its returns stay counted, and it will come back on a ramp.
    """
    if record.state is not HealthState.UNKNOWN:
        draft.effects.append(
            StateChanged(record.spec.id, record.state, HealthState.UNKNOWN, Reason.REMOVED),
        )
    forgotten = unknown(record.spec, draft.now, record.report_id)
    draft.put(replace(forgotten, ramp_from=draft.now, returns=record.returns))


# --- The second witness ---------------------------------------------------------------------------


def take_probe(draft: Draft, record: ClusterRecord, event: ProbeFinished) -> None:
    """Work in a finished probe; what a pause of this router may have spoilt is not counted."""
    began_at = event.finished_at if event.ok else event.finished_at - event.rtt
    if began_at < draft.resumed_at or not record.spec.probe_url:
        return
    if event.ok:
        record = replace(record, probes=record.probes.answered(event.finished_at, event.rtt))
        draft.put(_answered(draft, record))
        return
    record = replace(record, probes=record.probes.missed())
    draft.put(record)
    draft.settle()
    threshold = FAILURES_TO_CONDEMN.get(record.state)
    if threshold is not None and record.probes.failed_here >= threshold and not _vetoed(draft, record):
        draft.put(draft.move(record, Evidence.PROBES_FAILED, Reason.UNREACHABLE))


def _answered(draft: Draft, record: ClusterRecord) -> ClusterRecord:
    if record.state is HealthState.UNKNOWN:
        return draft.move(record, Evidence.PROBE_ANSWERED, Reason.PROBE_ANSWERED)
    if record.state is HealthState.PROBATION and probe_credited(record.trials, draft.policy, draft.now):
        return _credit(draft, record)
    return _consider_return(draft, record)


def _vetoed(draft: Draft, record: ClusterRecord) -> bool:
    """Whether failed probes condemn the router rather than the cluster."""
    heard = record.state in {HealthState.HEALTHY, HealthState.DEGRADED}
    return draft.isolated or (heard and draft.counts.every_probe_fails)


def _consider_return(draft: Draft, record: ClusterRecord) -> ClusterRecord:
    if not return_earned(record, draft.policy, draft.now):
        return record
    record = replace(record, returns=recent_returns(record, draft.policy, draft.now))
    return draft.move(record, Evidence.RETURN_EARNED, Reason.RETURNED)


# --- What requests experience -----------------------------------------------------------------------


def take_success(draft: Draft, record: ClusterRecord) -> None:
    """End the runs of failures; on probation, count the success."""
    record = replace(record, outlier=succeeded(record.outlier))
    draft.put(_credit(draft, record) if record.state is HealthState.PROBATION else record)


def _credit(draft: Draft, record: ClusterRecord) -> ClusterRecord:
    trials = replace(record.trials, successes=record.trials.successes + 1)
    record = replace(record, trials=trials)
    if trials.successes < draft.policy.probation_successes:
        return record
    return draft.move(record, Evidence.TRIALS_PASSED, Reason.TRIALS_PASSED)


def take_connect_failure(draft: Draft, record: ClusterRecord) -> None:
    """Count a connect failure; on probation the first one is enough."""
    record = replace(record, outlier=connect_failed(record.outlier))
    if record.state is HealthState.PROBATION:
        draft.put(draft.move(record, Evidence.CONNECT_FAILED, Reason.CONNECT_FAILED))
        return
    draft.put(_judge_outlier(draft, record))


def take_gateway_error(draft: Draft, record: ClusterRecord) -> None:
    """Count a gateway error; on probation it also voids the successes so far."""
    trials = replace(record.trials, successes=0) if record.trials.successes else record.trials
    record = replace(record, outlier=gateway_errored(record.outlier), trials=trials)
    draft.put(_judge_outlier(draft, record))


def _judge_outlier(draft: Draft, record: ClusterRecord) -> ClusterRecord:
    reason = trip_reason(record.outlier, draft.policy)
    if reason is None or record.state is HealthState.UNHEALTHY:
        return record
    if not may_eject(draft.counts.ejected, draft.counts.clusters, draft.policy):
        return record
    outlier, span = eject(record.outlier, draft.policy, draft.now)
    draft.effects.append(ClusterEjected(record.spec.id, reason, span))
    if reason is Reason.CONNECT_FAILED:
        draft.effects.append(ClusterLost(record.spec.id, reason))
    return replace(record, outlier=outlier)


def take_trial_start(draft: Draft, record: ClusterRecord) -> None:
    """Count a trial in."""
    draft.put(replace(record, trials=trial_started(record.trials, draft.now)))


def take_trial_end(draft: Draft, record: ClusterRecord) -> None:
    """Count a trial out."""
    draft.put(replace(record, trials=trial_finished(record.trials, draft.now)))
