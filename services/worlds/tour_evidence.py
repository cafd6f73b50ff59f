"""Evidence of the tour: what routers believed while it ran, what they dispatched, how late the loop was.

Reads the services' own objects and records; changes nothing. Judging is `claims`'.
"""

from collections.abc import Collection, Iterable

from services.core.fleet import HealthState
from services.core.units import Duration, Instant, ms
from services.global_router.process import Router
from services.global_router.records import DecisionRecord
from services.worlds.claims import Dispatch, Sighting
from services.worlds.demo_world import World

LOOK_EVERY = ms(25)
"""A tenth of the finest span that a claim is judged by."""
LAG_PERIOD = ms(10)
LAG_LIMIT = ms(250)
"""From this on the health table itself discards what it measured, so a run proves nothing."""

TRUSTED = frozenset({HealthState.HEALTHY, HealthState.DEGRADED})


class Watch:
    """Notes each change of a router's belief about a cluster. `lag` is the worst lateness since `reset_lag`."""

    def __init__(self, world: World) -> None:
        self.sightings: list[Sighting] = []
        self.lag = Duration(0)
        self._world = world
        self._known: dict[tuple[str, str], tuple[HealthState, Instant]] = {}

    async def look_for_ever(self) -> None:
        """Sample the views."""
        while True:
            self.look()
            await self._world.clock.sleep(LOOK_EVERY)

    async def measure_lag_for_ever(self) -> None:
        """Measure how late the loop runs what is due."""
        clock = self._world.clock
        while True:
            before = clock.now()
            await clock.sleep(LAG_PERIOD)
            self.lag = Duration(max(self.lag, clock.now() - before - LAG_PERIOD))

    def reset_lag(self) -> None:
        """Forget the worst lateness so far."""
        self.lag = Duration(0)

    def sees(self, router: str, clusters: Collection[str], states: Collection[HealthState]) -> bool:
        """Return whether a router holds each of `clusters` to be in one of `states`."""
        found = [self._known.get((router, cluster)) for cluster in clusters]
        return all(known is not None and known[0] in states for known in found)

    def heard_since(self, instant: Instant, pairs: Iterable[tuple[str, str]]) -> bool:
        """Return whether each (router, cluster) has had a live report since `instant` and is trusted."""
        found = [self._known.get(pair) for pair in pairs]
        return all(known is not None and known[0] in TRUSTED and known[1] > instant for known in found)

    def look(self) -> None:
        """Note what has changed since the last look."""
        now = self._world.clock.now()
        for name, region in self._world.regions.items():
            for cluster, record in region.router.view.state.clusters.items():
                key, known = (name, str(cluster)), (record.state, record.quiet_since)
                if self._known.get(key) != known:
                    self._known[key] = known
                    self.sightings.append(Sighting(now, name, cluster, record.state, record.quiet_since))


def dispatches_of(routers: Iterable[Router], streams: Collection[str]) -> list[Dispatch]:
    """Return every attempt in the routers' logs and under way, oldest first; `streams` are request ids."""
    found = []
    for router in routers:
        for record in (*router.log.recent(), *(live.record for live in router.life.live)):
            found += _dispatches(router.settings.region, record, streams)
    return sorted(found, key=lambda dispatch: dispatch.sent_at)


def _dispatches(router: str, record: DecisionRecord, streams: Collection[str]) -> list[Dispatch]:
    attempts = record.attempts
    # An attempt's own end is the judgement of its head; the last one lasts as long as the request.
    ends = [*(attempt.ended_at for attempt in attempts[:-1]), record.ended_at]
    return [
        Dispatch(
            router,
            attempt.cluster,
            record.model,
            record.request_id,
            record.request_id in streams,
            attempt.number,
            attempt.redispatch,
            attempt.sent_at,
            ended_at,
            record.first_byte_at,
        )
        for attempt, ended_at in zip(attempts, ends, strict=bool(attempts))
    ]
