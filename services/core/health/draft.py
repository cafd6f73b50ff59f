"""The fleet state, and a draft of the next one while an event is worked in.

A `FleetState` never changes; a `Draft` copies it once, takes the changes of one event or
tick together with their effects, and becomes the next state. Apart from the rules in
`fleet_state`, so that keeping sums and deadlines right is done in one place.
"""

from dataclasses import dataclass, field, replace
from types import MappingProxyType

from services.core.fleet import HealthState
from services.core.health.effects import (
    BusTrusted,
    ClusterLost,
    Effect,
    Reason,
    RouterIsolated,
    RouterRejoined,
    StateChanged,
)
from services.core.health.outliers import restore
from services.core.health.record import NEVER, NO_TRIALS, ClusterRecord, Trials
from services.core.health.states import Evidence, next_state
from services.core.health.suspicion import NO_COUNTS, Counts, bus_suspect, counted
from services.core.locality import ClusterId
from services.core.policy import HealthPolicy
from services.core.units import Instant, after, ms

PAUSE_CHECK = ms(500)
"""A tick is due at least this often, so that a pause of the process shows as a late tick even when
no cluster has a deadline."""


@dataclass(frozen=True, slots=True)
class FleetState:
    """All clusters of the policy as this router knows them.

    `wake_at` is a lower bound of when time alone may change anything (None: never).
    `resumed_at` is the last restart of the timers; `grace_from` is when silence last began to
    mean something again. `suspects` are the silent clusters for which the bus is suspected.
    """

    policy: HealthPolicy = field(default_factory=HealthPolicy)
    clusters: MappingProxyType[ClusterId, ClusterRecord] = field(default_factory=lambda: MappingProxyType({}))
    counts: Counts = NO_COUNTS
    wake_at: Instant | None = None
    resumed_at: Instant = NEVER
    grace_from: Instant = NEVER
    suspects: frozenset[ClusterId] = frozenset()
    isolated: bool = False

    @property
    def bus_suspect(self) -> bool:
        """Whether the bus is suspected, so that silence says nothing about a cluster."""
        return bool(self.suspects)


EMPTY = FleetState()


class Draft:
    """The next state in the making. Used by one call of `apply` or `tick` and then frozen."""

    def __init__(self, state: FleetState, now: Instant) -> None:
        self.now = now
        self.policy = state.policy
        self.clusters = state.clusters.copy()
        self.counts = state.counts
        self.resumed_at = state.resumed_at
        self.grace_from = state.grace_from
        self.suspects = state.suspects
        self.isolated = state.isolated
        self.effects: list[Effect] = []
        self._wake_at = state.wake_at

    def put(self, record: ClusterRecord) -> None:
        """Set a cluster's record, keeping the sums, the suspects and the next deadline right."""
        cluster = record.spec.id
        before = self.clusters.get(cluster)
        if before is not None:
            self.counts = counted(self.counts, before, -1)
        self.counts = counted(self.counts, record, 1)
        self.clusters[cluster] = record
        if cluster in self.suspects and (not record.silent or record.state is HealthState.UNHEALTHY):
            self.suspects -= {cluster}
        deadline = self.deadline(record)
        if deadline is not None:
            self._wake_at = deadline if self._wake_at is None else Instant(min(self._wake_at, deadline))

    def remove(self, cluster: ClusterId) -> None:
        """Forget a cluster."""
        self.counts = counted(self.counts, self.clusters.pop(cluster), -1)
        self.suspects -= {cluster}

    def move(self, record: ClusterRecord, evidence: Evidence, reason: Reason) -> ClusterRecord:
        """Return `record` after `evidence`, noting what follows from a change of state."""
        state = next_state(record.state, evidence)
        if state is record.state:
            return record
        cluster = record.spec.id
        self.effects.append(StateChanged(cluster, record.state, state, reason))
        if state is HealthState.UNHEALTHY:
            self.effects.append(ClusterLost(cluster, reason))
        return _entered(record, state, self.now)

    def silence_means_nothing(self) -> bool:
        """Whether no cluster may be condemned for silence alone: there is another suspect, or no second cluster."""
        return bool(self.suspects) or self.isolated or self.counts.clusters == 1

    def no_witness_at(self, record: ClusterRecord) -> Instant:
        """Return when a silent cluster has been without report and without good probe for too long."""
        witnessed_at = max(
            record.quiet_since, self.grace_from, record.probes.last_good_at or record.quiet_since
        )
        return after(Instant(witnessed_at), self.policy.silence_unprobed_unhealthy)

    def deadline(self, record: ClusterRecord) -> Instant | None:
        """Return when time alone changes this cluster, or None."""
        deadline = record.outlier.ejected_until
        timer = None
        if not record.silent:
            timer = after(record.quiet_since, self.policy.silence_stale)
        elif record.state in {HealthState.STALE, HealthState.PROBATION} and not self.silence_means_nothing():
            timer = self.no_witness_at(record)
        if timer is None or (deadline is not None and deadline <= timer):
            return deadline
        return timer

    def settle(self) -> None:
        """Draw the conclusions about bus and router that the changes so far allow."""
        if self.isolated is not self.counts.isolated:
            self.isolated = self.counts.isolated
            self.effects.append(RouterIsolated() if self.isolated else RouterRejoined())
            if not self.isolated:
                self._judge_silence_anew()
                self.count_probes_anew()
        if self.suspects and not bus_suspect(len(self.suspects), self.counts.heard):
            self.suspects = frozenset()
            self.effects.append(BusTrusted())
            self._judge_silence_anew()

    def _judge_silence_anew(self) -> None:
        """Let silence mean something from now on: what was missed under suspicion is held against no one."""
        self.grace_from = self.now
        for record in list(self.clusters.values()):
            self.put(record)

    def count_probes_anew(self) -> None:
        """Void the failed probes of every state: they told of this router, not of the clusters."""
        for record in list(self.clusters.values()):
            if record.probes.failed_here:
                self.put(replace(record, probes=replace(record.probes, failed_here=0)))

    def freeze(self, *, ticked: bool) -> tuple[FleetState, tuple[Effect, ...]]:
        """Return the next state and the effects; after a tick the next deadline is computed exactly."""
        if ticked:
            dues = [due for record in self.clusters.values() if (due := self.deadline(record)) is not None]
            self._wake_at = min((*dues, after(self.now, PAUSE_CHECK))) if self.clusters else None
        state = FleetState(
            self.policy,
            MappingProxyType(self.clusters),
            self.counts,
            self._wake_at,
            self.resumed_at,
            self.grace_from,
            self.suspects,
            self.isolated,
        )
        return state, tuple(self.effects)


def _entered(record: ClusterRecord, state: HealthState, now: Instant) -> ClusterRecord:
    """Return `record` in its new state, with the counts that belong to a state begun anew."""
    outlier, trials, ramp_from, returns = record.outlier, NO_TRIALS, record.ramp_from, record.returns
    if state is HealthState.UNHEALTHY:
        # The table keeps the cluster away from here on; its ejection would only hold a place of the share.
        outlier, ramp_from = restore(outlier, now), None
    elif state is HealthState.PROBATION:
        trials = Trials(last_at=now)
        returns = (*returns, now)
    elif record.state is HealthState.PROBATION or (
        record.state is HealthState.UNKNOWN and ramp_from is not None
    ):
        # Back from probation, or from a tombstone.
        ramp_from = now
    return replace(
        record,
        state=state,
        entered_at=now,
        reports_here=0,
        probes=record.probes.counted_anew(),
        outlier=outlier,
        trials=trials,
        ramp_from=ramp_from,
        returns=returns,
    )
