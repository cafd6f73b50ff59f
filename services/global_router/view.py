"""One worker's view of the fleet: feed in, prepared snapshot out.

Applies what the feed brings and what requests experience to the fleet state, ticks it on
its deadlines, and swaps in a new prepared snapshot at most five times a second; what must
act at once (UNHEALTHY, ejected, draining, misplaced) does so through `excluded`. All of it
in callbacks of one event loop; the judging is in `core/health`, the routing in
`core/scheduling`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from services.adapters.ports import (
    Change,
    ChangeKind,
    Clock,
    Feed,
    FeedEvent,
    FeedListing,
    FeedReport,
)
from services.adapters.system.tasks import TaskScope
from services.core.failover.effects import OutcomeKind
from services.core.fleet import FleetSnapshot, HealthReport, HealthState
from services.core.health.draft import EMPTY, FleetState
from services.core.health.effects import ClusterLost, Effect, Reason, StateChanged, TimersRestarted, describe
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
    ReportRemoved,
    TrafficSucceeded,
    TrialFinished,
    TrialStarted,
)
from services.core.health.fleet_state import apply, next_deadline, tick
from services.core.health.probation import trial_allowed
from services.core.health.record import ClusterRecord
from services.core.health.snapshot import changes_with_time, exclusions, snapshot
from services.core.locality import ClusterId, Locality
from services.core.outcomes import DropReason
from services.core.policy import PolicySnapshot
from services.core.scheduling.prepare import Prepared, prepare
from services.core.units import Instant, WallMs, after, ms, seconds
from services.global_router.alarm import Alarm
from services.global_router.policy_file import PolicyFile, PolicyKeeper
from services.wire.errors import UndecodableError
from services.wire.health_codec import decode_report
from services.wire.policy_codec import decode_policy

log = logging.getLogger(__name__)

REBUILD_INTERVAL: Final = ms(200)
"""At most five snapshots a second: a snapshot costs milliseconds in a large fleet, and what cannot wait
goes through `excluded`."""
DRIFT_INTERVAL: Final = seconds(1)
"""How often ramps and fading loads alone renew the snapshot: 2 % of a ramp, 10 % of a load's life."""
POLICY_KEY: Final = "snapshot"

_SIGNALS: Final[Mapping[OutcomeKind, Callable[[ClusterId], FleetEvent]]] = {
    OutcomeKind.ANSWERED: TrafficSucceeded,
    OutcomeKind.CONNECT_FAILED: ConnectFailed,
    OutcomeKind.RESET: ConnectFailed,
    OutcomeKind.GATEWAY_ERROR: GatewayErrored,
}
"""What an attempt's outcome says of its cluster's health; kinds that are absent say nothing."""

# Enum members are reached through a descriptor, which costs more than the comparison they serve.
_ANSWERED, _PROBATION = OutcomeKind.ANSWERED, HealthState.PROBATION
_FLEETWIDE: Final = (ListLoaded, PolicyChanged)


def _cluster_of(event: ReportArrived | BackPressured | ClusterEvent) -> ClusterId:
    return event.report.cluster if isinstance(event, ReportArrived) else event.cluster


def _nobody(_: object) -> None:
    """Nobody listens yet."""


@dataclass(slots=True)
class ViewTallies:
    """Plain counters, read by the metrics collector at scrape time."""

    rebuilds: int = 0
    undecodable: int = 0
    late_ticks: int = 0
    moves: dict[tuple[HealthState, Reason], int] = field(default_factory=dict)


class View:
    """The fleet as this worker sees it.

    `current` is the prepared snapshot, replaced whole. `excluded` says which clusters have left since
    it was built, and why; `unroutable` names everyone who may take nothing new, and is what the next
    attempts of running requests go by. `on_policy`, `on_cluster_lost` and `on_effects` are set by
    whoever performs what follows; they are called in the event loop, after both are right.
    """

    def __init__(
        self,
        clock: Clock,
        feed: Feed,
        here: Locality,
        scope: TaskScope,
        policy_file: PolicyFile | None = None,
    ) -> None:
        self.state: FleetState = EMPTY
        self.policy: PolicySnapshot | None = None
        self.policy_confirmed_at: Instant | None = None
        self.current: Prepared = prepare(FleetSnapshot(0, 0, here, ()), None)
        self.excluded: Mapping[str, DropReason] = {}
        self.unroutable: Mapping[str, DropReason] = {}
        self.tallies = ViewTallies()
        self.on_policy: Callable[[PolicySnapshot], None] = _nobody
        self.on_cluster_lost: Callable[[ClusterId], None] = _nobody
        self.on_effects: Callable[[Sequence[Effect]], None] = _nobody
        self._clock = clock
        self._feed = feed
        self._here = here
        self._scope = scope
        self._keeper = None if policy_file is None else PolicyKeeper(policy_file, clock, scope)
        self._alarm = Alarm(clock, scope, "view alarm")
        self._built_at = Instant(0)
        self._built_exclusions: Mapping[ClusterId, DropReason] = {}
        self._dirty = False
        self._from_disk = False
        self._dispatched = 0
        self._trials_run = False  # Whether any cluster is on probation: else no attempt asks about its own.
        self._dispatched_before: dict[ClusterId, int] = {}
        self._unsubscribe: Callable[[], None] | None = None

    # --- Life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the policy from disk, subscribe to the feed and keep time. Raises `OSError` for an unreadable file."""
        self._load_policy()
        self._unsubscribe = self._feed.subscribe(self._take)
        self._scope.spawn(self._keep_time(), "view")

    def stop(self) -> None:
        """Leave the feed; the scope ends the rest."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    @property
    def ready(self) -> bool:
        """Whether this router should be sent traffic: it has a policy and does not suspect itself."""
        return self.policy is not None and not self.state.isolated

    @property
    def policy_published_at_ms(self) -> WallMs:
        """When the policy in force was published; 0 without one."""
        return WallMs(0) if self.policy is None else self.policy.published_at_ms

    async def _keep_time(self) -> None:
        while True:
            now = self._clock.now()
            self._tick(now)
            due = self._rebuild_due()
            if due is not None and due <= now:
                self._rebuild(now)
                due = self._rebuild_due()
            wakes = [at for at in (due, next_deadline(self.state)) if at is not None]
            await self._alarm.wait_until(min(wakes, default=after(now, DRIFT_INTERVAL)))

    # --- The feed -------------------------------------------------------------------------------------

    def _take(self, event: FeedEvent) -> None:
        now = self._clock.now()
        if isinstance(event, FeedReport):
            if event.change.live:
                self._confirm_policy(now)
            self._take_change(event.change, event.arrived_at, now)
        elif isinstance(event, FeedListing):
            self._confirm_policy(now)
            self._take_listing(event, now)
        else:
            self._apply(ProbeFinished(event.cluster, event.ok, event.finished_at, event.rtt), now)

    def _take_change(self, change: Change, arrived_at: Instant, now: Instant) -> None:
        if change.kind is ChangeKind.POLICY:
            self._take_policy(change, now)
        elif change.kind is ChangeKind.HEALTH:
            if change.payload is None:
                self._apply(ReportRemoved(ClusterId(change.key)), now)
                return
            report = self._decode(change.key, change.payload)
            if report is not None:
                self._apply(ReportArrived(report, arrived_at, change.live), now)

    def _take_listing(self, event: FeedListing, now: Instant) -> None:
        """The policy of a list comes first: only clusters of the policy are kept."""
        reports = []
        for entry in event.listing.entries:
            if entry.kind is ChangeKind.POLICY:
                self._take_policy(entry, now)
            elif entry.kind is ChangeKind.HEALTH and entry.payload is not None:
                report = self._decode(entry.key, entry.payload)
                if report is not None:
                    reports.append(report)
        self._apply(ListLoaded(reports, event.arrived_at), now)

    def _decode(self, key: str, payload: bytes) -> HealthReport | None:
        try:
            return decode_report(payload)
        except UndecodableError as error:
            self.tallies.undecodable += 1
            log.warning("report of %r is not understood and is skipped: %s", key, error)
            return None

    # --- Policy ---------------------------------------------------------------------------------------

    def _load_policy(self) -> None:
        stored = None if self._keeper is None else self._keeper.load()
        if stored is None:
            return
        try:
            policy = decode_policy(stored.payload)
        except UndecodableError as error:
            log.warning("the policy on disk is not understood; waiting for the store: %s", error)
            return
        now = self._clock.now()
        self._from_disk = True
        self.policy_confirmed_at = Instant(now - stored.confirmed_ago)
        self._use_policy(policy, now)

    def _take_policy(self, change: Change, now: Instant) -> None:
        """Use a policy of the store if it is newer, or if all there was came from disk."""
        if change.key != POLICY_KEY or change.payload is None:
            return
        try:
            policy = decode_policy(change.payload)
        except UndecodableError as error:
            self.tallies.undecodable += 1
            log.warning("a policy is not understood; the one in force stays: %s", error)
            return
        from_store = None if self._from_disk else self.policy
        if from_store is not None and not change.live and policy.revision <= from_store.revision:
            # A replay passes through older revisions; what a narrower policy forbade stays forbidden.
            return
        self._from_disk = False
        self.policy_confirmed_at = now
        if self._keeper is not None:
            self._keeper.save(change.payload)
        if policy != self.policy:
            self._use_policy(policy, now)

    def _use_policy(self, policy: PolicySnapshot, now: Instant) -> None:
        self.policy = policy
        self._apply(PolicyChanged(policy), now)
        self._rebuild(now)
        log.info("policy revision %d in force: %d clusters", policy.revision, len(policy.clusters))
        self.on_policy(policy)

    def _confirm_policy(self, now: Instant) -> None:
        """The store speaks, so the policy it last gave is the current one."""
        if self.policy is not None and not self._from_disk:
            self.policy_confirmed_at = now
            if self._keeper is not None:
                self._keeper.confirm()

    # --- What requests experience -----------------------------------------------------------------------

    def outcome(self, cluster: str, kind: OutcomeKind) -> None:
        """Take an attempt's outcome as a passive signal. A success that changes nothing costs two lookups."""
        # `ClusterId(…)` would be a call that does nothing.
        record = self.state.clusters.get(cluster)  # type: ignore[call-overload]
        if record is None:
            return
        if kind is _ANSWERED and not (record.outlier.counting or record.state is _PROBATION):
            return
        signal = _SIGNALS.get(kind)
        if signal is not None:
            self._apply(signal(ClusterId(cluster)), self._clock.now())

    def may_try(self, cluster: str) -> bool:
        """Return whether a cluster on probation has a trial free."""
        record = self.state.clusters.get(ClusterId(cluster))
        if record is None or record.state is not HealthState.PROBATION:
            return False
        requests = self._dispatched - self._dispatched_before.get(record.spec.id, 0)
        return trial_allowed(record.trials, requests, self.state.policy)

    def attempt_started(self, cluster: str) -> Instant | None:
        """Count an attempt; at a cluster on probation it is a trial, named by when the probation began."""
        self._dispatched += 1
        record = self._on_probation(cluster) if self._trials_run else None
        if record is None:
            return None
        self._apply(TrialStarted(record.spec.id), self._clock.now())
        return record.entered_at

    def trial_ended(self, cluster: str, trial: Instant) -> None:
        """The trial holds nothing any more; one of an earlier probation frees nothing in this one."""
        record = self._on_probation(cluster)
        if record is not None and record.entered_at == trial:
            self._apply(TrialFinished(record.spec.id), self._clock.now())

    def _on_probation(self, cluster: str) -> ClusterRecord | None:
        record = self.state.clusters.get(ClusterId(cluster))
        return record if record is not None and record.state is _PROBATION else None

    # --- State, effects, snapshot -------------------------------------------------------------------------

    def _apply(self, event: FleetEvent, now: Instant) -> None:
        state, effects = apply(self.state, event, now)
        if state is self.state:
            return
        self._dirty = True
        self._perform(state, effects, None if isinstance(event, _FLEETWIDE) else _cluster_of(event))
        rebuild_at = after(self._built_at, REBUILD_INTERVAL)
        wake = next_deadline(state)
        self._alarm.ring_by(rebuild_at if wake is None else min(wake, rebuild_at))

    def _tick(self, now: Instant) -> None:
        state, effects = tick(self.state, now)
        if effects:
            self._dirty = True
        self._perform(state, effects, None)

    def _perform(self, state: FleetState, effects: Sequence[Effect], cluster: ClusterId | None) -> None:
        """Make `state` the present one, exclude what it forbids, then do what follows from the change.

        `cluster` is the only one that can have been concerned when there are no effects.
        """
        self.state = state
        if effects or cluster is None:
            self._trials_run = any(record.state is _PROBATION for record in state.clusters.values())
            self._exclude(state.clusters)
        else:
            self._exclude((cluster,))
        if not effects:
            return
        for effect in effects:
            log.info("%s", describe(effect))
            if isinstance(effect, StateChanged):
                self._note_move(effect)
            elif isinstance(effect, TimersRestarted):
                self.tallies.late_ticks += 1
        self.on_effects(effects)
        for effect in effects:
            if isinstance(effect, ClusterLost):
                self.on_cluster_lost(effect.cluster)

    def _note_move(self, effect: StateChanged) -> None:
        key = (effect.after, effect.reason)
        self.tallies.moves[key] = self.tallies.moves.get(key, 0) + 1
        if effect.after is HealthState.PROBATION:
            self._dispatched_before[effect.cluster] = self._dispatched

    def _exclude(self, clusters: Iterable[ClusterId]) -> None:
        """Exclude who has left since the snapshot; whom it shows as left already, its plans handle."""
        excluded = None
        for cluster in clusters:
            record = self.state.clusters.get(cluster)
            reason = None if record is None else record.exclusion
            if reason is self._built_exclusions.get(cluster):
                reason = None
            if reason is not self.excluded.get(cluster):
                if excluded is None:
                    excluded = dict(self.excluded)
                if reason is None:
                    del excluded[cluster]
                else:
                    excluded[cluster] = reason
        if excluded is not None:
            self.excluded = excluded
            self.unroutable = dict([*self._built_exclusions.items(), *excluded.items()])

    def _rebuild_due(self) -> Instant | None:
        if self._dirty:
            return after(self._built_at, REBUILD_INTERVAL)
        if changes_with_time(self.state, self._built_at):
            return after(self._built_at, DRIFT_INTERVAL)
        return None

    def _rebuild(self, now: Instant) -> None:
        if self.policy is None:
            self._dirty = False
            return
        version = self.current.snapshot.version + 1
        built = snapshot(self.state, self.policy, self._here, now, version)
        self.current = prepare(built, self.policy)
        self._built_exclusions = exclusions(self.state)
        self.excluded = {}
        self.unroutable = dict(self._built_exclusions.items())
        self._built_at = now
        self._dirty = False
        self.tallies.rebuilds += 1
