"""The only ways the fleet changes: `apply` an event, or `tick` because time has passed.

Both are pure: they return the next state and the effects for the shell to perform. What
time does is here, what an event does is in `rules`. `next_deadline` says when to tick;
ticking earlier changes nothing, and a tick that comes too late restarts the timers,
because a router that was paused has missed what it waits for.
"""

from dataclasses import replace

from services.core.fleet import HealthState
from services.core.health.draft import Draft, FleetState
from services.core.health.effects import BusSuspected, ClusterRestored, Effect, Reason, TimersRestarted
from services.core.health.events import (
    BackPressured,
    ClusterEvent,
    ConnectFailed,
    FleetEvent,
    GatewayErrored,
    ListLoaded,
    PolicyChanged,
    ProbeFinished,
    ReportArrived,
    TrafficSucceeded,
    TrialFinished,
    TrialStarted,
)
from services.core.health.outliers import restore
from services.core.health.record import ClusterRecord
from services.core.health.rules import (
    forget,
    take_connect_failure,
    take_gateway_error,
    take_policy,
    take_probe,
    take_report,
    take_success,
    take_trial_end,
    take_trial_start,
)
from services.core.health.states import Evidence
from services.core.health.suspicion import bus_suspect, fallen_silent
from services.core.locality import ClusterId
from services.core.units import Duration, Instant

Change = tuple[FleetState, tuple[Effect, ...]]


def next_deadline(state: FleetState) -> Instant | None:
    """Return when `tick` is next due; before it, time alone changes nothing. None: no clusters."""
    return state.wake_at


def apply(state: FleetState, event: FleetEvent, now: Instant) -> Change:
    """Return the state after `event`, and what follows from it.

    Time is worked in first, so that the order in which a due tick and an event are handled does
    not matter; only a report that is here comes before the silence it ends.
    """
    effects: tuple[Effect, ...] = ()
    if not isinstance(event, ReportArrived) or _late_by(state, now) > state.policy.late_tick:
        state, effects = tick(state, now)
    if isinstance(event, BackPressured):
        return state, effects
    draft = Draft(state, now)
    if isinstance(event, ReportArrived):
        take_report(draft, event.report, event.arrived_at, live=event.live)
    elif isinstance(event, ListLoaded):
        for report in event.reports:
            take_report(draft, report, event.arrived_at, live=False)
    elif isinstance(event, PolicyChanged):
        take_policy(draft, event.policy)
    else:
        record = draft.clusters.get(event.cluster)
        if record is None:
            return state, effects
        _take_cluster_event(draft, record, event)
    draft.settle()
    state, more = draft.freeze(ticked=isinstance(event, PolicyChanged))
    return state, effects + more


def tick(state: FleetState, now: Instant) -> Change:
    """Return the state at `now`: silences, expired ejections, and suspicion of the bus."""
    if state.wake_at is None or now < state.wake_at:
        return state, ()
    draft = Draft(state, now)
    late_by = _late_by(state, now)
    if late_by > state.policy.late_tick:
        _restart_timers(draft, Duration(late_by))
    fallen = _note_silence(draft)
    _suspect_bus(draft, fallen)
    for cluster, record in list(draft.clusters.items()):
        if record.silent:
            _judge_silence(draft, record, fell=cluster in fallen)
    draft.settle()
    return draft.freeze(ticked=True)


def _late_by(state: FleetState, now: Instant) -> int:
    return 0 if state.wake_at is None else now - state.wake_at


def _take_cluster_event(draft: Draft, record: ClusterRecord, event: ClusterEvent) -> None:
    match event:
        case ProbeFinished():
            take_probe(draft, record, event)
        case TrafficSucceeded():
            take_success(draft, record)
        case ConnectFailed():
            take_connect_failure(draft, record)
        case GatewayErrored():
            take_gateway_error(draft, record)
        case TrialStarted():
            take_trial_start(draft, record)
        case TrialFinished():
            take_trial_end(draft, record)
        case _:
            forget(draft, record, event)


def _restart_timers(draft: Draft, late_by: Duration) -> None:
    """After a pause nobody is judged by what happened meanwhile."""
    draft.effects.append(TimersRestarted(late_by))
    draft.resumed_at = draft.grace_from = draft.now
    draft.count_probes_anew()
    for record in list(draft.clusters.values()):
        if not record.silent:
            draft.put(replace(record, quiet_since=draft.now))


def _note_silence(draft: Draft) -> frozenset[ClusterId]:
    """Mark who has been quiet for too long and end the ejections that are over; return the newly silent."""
    fallen = set()
    for cluster, record in list(draft.clusters.items()):
        changed = record
        if not record.silent and draft.now - record.quiet_since >= draft.policy.silence_stale:
            changed = replace(changed, silent=True, silent_at=draft.now)
            fallen.add(cluster)
        until = record.outlier.ejected_until
        if until is not None and until <= draft.now:
            changed = replace(changed, outlier=restore(changed.outlier, draft.now), ramp_from=draft.now)
            draft.effects.append(ClusterRestored(cluster))
        if changed is not record:
            draft.put(changed)
    return frozenset(fallen)


def _suspect_bus(draft: Draft, fallen: frozenset[ClusterId]) -> None:
    """Judge the bus before the clusters, so that clusters that fall silent together are not judged for it."""
    if not fallen:
        return
    silent = fallen_silent(draft.clusters.values(), draft.policy, draft.now)
    if draft.suspects:
        draft.suspects |= silent
    elif bus_suspect(len(silent), draft.counts.heard):
        draft.suspects = silent
        draft.effects.append(BusSuspected(tuple(sorted(silent))))


def _judge_silence(draft: Draft, record: ClusterRecord, *, fell: bool) -> None:
    """Draw from a cluster's silence what the table allows; `fell` says that it has only now begun."""
    if record.state in {HealthState.HEALTHY, HealthState.DEGRADED}:
        draft.put(draft.move(record, Evidence.SILENCE, Reason.SILENT))
    elif record.state in {HealthState.STALE, HealthState.PROBATION} and not draft.silence_means_nothing():
        if fell and record.state is HealthState.PROBATION:
            draft.put(draft.move(record, Evidence.SILENCE, Reason.SILENT))
        elif draft.no_witness_at(record) <= draft.now:
            draft.put(draft.move(record, Evidence.NO_WITNESS, Reason.SILENT))
