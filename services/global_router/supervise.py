"""The supervisor role of one router process group: the store's tail and the probe schedule.

Lists the regional store once and follows its change stream, and probes every cluster when
the schedule says so; both go to the feed with their instants. It judges nothing: the view it
is given knows who is suspect. Apart from the view because there is one per process group,
and workers have none of these connections.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from services.adapters.ports import (
    Clock,
    Feed,
    FeedListing,
    FeedReport,
    FleetStore,
    Prober,
    StreamGapError,
    UnreachableError,
)
from services.adapters.system.tasks import TaskScope
from services.core.health.effects import Effect
from services.core.health.probes import ProbeOrder, next_probe_at, probes_due
from services.core.locality import ClusterId
from services.core.units import Duration, Instant, after, ms, seconds
from services.global_router.alarm import Alarm
from services.global_router.view import View

log = logging.getLogger(__name__)

TAIL_WAIT: Final = seconds(1)
"""How long the store may hold a tail that has nothing to say."""
BURST: Final = 256
"""Changes fed in one go: a reader that fell behind by thousands must not hold up requests meanwhile."""
READY_POLL: Final = ms(250)
"""How often a store that is being refilled is asked whether it is ready."""
BACKOFF_FIRST: Final = ms(100)
BACKOFF_MAX: Final = seconds(5)
"""An unreachable store is asked again after 0.1 s, doubling to 5 s: its return is seen soon, its
restart is not stampeded."""
LOOK_AGAIN: Final = ms(250)
"""The schedule is looked at at least this often; a cluster that reports again after its death changes
its cadence without an effect that would say so."""


@dataclass(slots=True)
class SupervisorTallies:
    """Plain counters and states, read by the metrics collector at scrape time."""

    connected: bool = False
    listings: int = 0
    changes: int = 0
    probes: int = 0
    probes_failed: int = 0
    probes_voided: int = 0


class Supervisor:
    """Feeds the views of this process group. `store` None: none is configured, and probes are all there is."""

    def __init__(
        self,
        clock: Clock,
        feed: Feed,
        view: View,
        prober: Prober,
        scope: TaskScope,
        store: FleetStore | None = None,
    ) -> None:
        self.tallies = SupervisorTallies()
        self._clock = clock
        self._feed = feed
        self._view = view
        self._prober = prober
        self._scope = scope
        self._store = store
        self._alarm = Alarm(clock, scope, "probe alarm")
        self._started: dict[ClusterId, Instant] = {}
        self._in_flight: set[ClusterId] = set()

    def start(self) -> None:
        """Begin to follow the store and to probe."""
        if self._store is not None:
            self._scope.spawn(self._follow(self._store), "store tail")
        self._scope.spawn(self._probe_on_schedule(), "prober")

    def note_effects(self, _: Sequence[Effect]) -> None:
        """The fleet has changed, so the schedule may have too; meant for `View.on_effects`."""
        self._alarm.ring_by(self._clock.now())

    # --- The store ----------------------------------------------------------------------------------------

    async def _follow(self, store: FleetStore) -> None:
        version: int | None = None
        backoff = BACKOFF_FIRST
        while True:
            try:
                if version is None:
                    version = await self._list(store)
                else:
                    version = await self._tail(store, version)
                self.tallies.connected = True
                backoff = BACKOFF_FIRST
            except StreamGapError as gap:
                log.info("listing the store again: %s", gap)
                version = None
            except UnreachableError as error:
                if self.tallies.connected or backoff == BACKOFF_FIRST:
                    log.warning("the store is away, keeping what is known: %s", error)
                self.tallies.connected = False
                await self._clock.sleep(backoff)
                backoff = Duration(min(2 * backoff, BACKOFF_MAX))

    async def _list(self, store: FleetStore) -> int | None:
        """Publish a whole list and return its version; None after a pause while the store is not ready.

        A store that is being refilled would seem to lack clusters and policy that it only lacks yet.
        """
        listing = None
        if (await store.meta()).ready:
            listing = await store.list()
        if listing is None or not listing.meta.ready:
            await self._clock.sleep(READY_POLL)
            return None
        self.tallies.listings += 1
        self._feed.publish(FeedListing(listing, self._clock.now()))
        return listing.meta.version

    async def _tail(self, store: FleetStore, version: int) -> int:
        changes = await store.tail(version, TAIL_WAIT)
        arrived_at = self._clock.now()
        for number, change in enumerate(changes, 1):
            if number % BURST == 0:
                await self._clock.sleep(Duration(0))
            self.tallies.changes += 1
            self._feed.publish(FeedReport(change, arrived_at))
            version = change.version
        return version

    # --- The second witness -------------------------------------------------------------------------------

    async def _probe_on_schedule(self) -> None:
        while True:
            state, now = self._view.state, self._clock.now()
            for cluster in [known for known in self._started if known not in state.clusters]:
                del self._started[cluster]
            for order in probes_due(state.clusters, state.policy, self._started, self._in_flight, now):
                self._started[order.cluster] = now
                self._in_flight.add(order.cluster)
                self._scope.spawn(self._probe(order, now), f"probe {order.cluster}")
            due = next_probe_at(state.clusters, state.policy, self._started, self._in_flight, now)
            look_again = after(now, LOOK_AGAIN)
            await self._alarm.wait_until(look_again if due is None else min(due, look_again))

    async def _probe(self, order: ProbeOrder, started_at: Instant) -> None:
        try:
            result = await self._prober.probe(order.cluster, order.url, order.timeout)
        finally:
            self._in_flight.discard(order.cluster)
            self._alarm.ring_by(self._clock.now())
        self.tallies.probes += 1
        allowed = order.timeout + self._view.state.policy.late_tick
        if not result.ok and self._clock.now() - started_at > allowed:
            # This process was paused over the probe's timeout: the failure is its own.
            self.tallies.probes_voided += 1
            return
        self.tallies.probes_failed += not result.ok
        self._feed.publish(result)
