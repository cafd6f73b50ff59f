"""From the fleet state to the snapshot that routing reads.

Built at most a few times a second, so it may walk the fleet; what a report means was
computed when it came. No weights are made here: they belong to scheduling.
"""

from collections.abc import Mapping

from services.core.fleet import Candidate, FleetSnapshot, HealthState
from services.core.health.draft import FleetState
from services.core.health.loads import NO_LOAD, faded
from services.core.health.probation import ramp
from services.core.health.record import ClusterRecord
from services.core.locality import ClusterId, Locality
from services.core.outcomes import DropReason
from services.core.policy import HealthPolicy, PolicySnapshot
from services.core.units import Instant

_SILENT_ROUTABLE = frozenset({HealthState.STALE, HealthState.PROBATION})


def snapshot(
    state: FleetState, policy: PolicySnapshot, here: Locality, now: Instant, version: int
) -> FleetSnapshot:
    """Return all clusters as candidates at `now`, in the order of the policy."""
    candidates = tuple(
        _candidate(record, state, now)
        for spec in policy.clusters
        if (record := state.clusters.get(spec.id)) is not None
    )
    return FleetSnapshot(version, policy.revision, here, candidates)


def exclusions(state: FleetState) -> Mapping[ClusterId, DropReason]:
    """Return the clusters that may take nothing new, with why; the snapshot of this state shows the same."""
    return {
        cluster: reason
        for cluster, record in state.clusters.items()
        if (reason := record.exclusion) is not None
    }


def changes_with_time(state: FleetState, now: Instant) -> bool:
    """Return whether one built after `now` differs though nothing happens: a ramp rises, a load fades."""
    return any(
        (record.silent and record.state in _SILENT_ROUTABLE and _confidence(record, state.policy, now) > 0)
        or (record.ramp_from is not None and now - record.ramp_from < state.policy.ramp_window)
        for record in state.clusters.values()
    )


def _confidence(record: ClusterRecord, policy: HealthPolicy, now: Instant) -> float:
    """Return the influence a load of this age deserves: 1 until silence, then linearly to 0."""
    stale_for = now - record.load_at - policy.silence_stale
    return min(1.0, max(0.0, 1 - stale_for / policy.load_decay))


def _candidate(record: ClusterRecord, state: FleetState, now: Instant) -> Candidate:
    load = faded(record.load, _confidence(record, state.policy, now))
    return Candidate(
        id=record.spec.id,
        locality=record.spec.locality,
        models=None if record.load is NO_LOAD else frozenset(load.by_model),
        load=load.whole,
        state=record.state,
        draining=record.draining,
        ejected=record.outlier.ejected,
        # An isolated router keeps the verdicts from before it suspected itself.
        probing_ok=state.isolated or not record.failing,
        ramp=ramp(record, state.policy, now),
        policy_mismatch=record.policy_mismatch,
        loads=load.by_model,
    )
