from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from services.adapters.memory.store import MemoryStoreServer
from services.adapters.ports import FeedListing, FeedReport, ProbeResult, StoreMeta
from services.core.fleet import HealthState, ReportId
from services.core.health.effects import BusSuspected, BusTrusted
from services.core.locality import ClusterId
from services.core.units import Instant, ms, seconds
from services.global_router.supervise import BURST, Supervisor
from tests.global_router.fleet_world import World, policy

HEALTHY, STALE = HealthState.HEALTHY, HealthState.STALE


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.stop()


def listings(world: World) -> int:
    return sum(isinstance(event, FeedListing) for event in world.fed)


async def test_the_store_is_listed_once_and_then_tailed(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(10))
    assert listings(world) == 1
    versions = [event.change.version for event in world.fed if isinstance(event, FeedReport)]
    assert versions == list(range(versions[0], versions[0] + len(versions)))
    assert len(versions) >= 38
    assert world.supervisor.tallies.changes == len(versions)
    assert world.supervisor.tallies.connected


async def test_arrivals_are_stamped_when_they_come(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(3))
    arrivals = {event.arrived_at for event in world.fed if isinstance(event, FeedReport)}
    assert {arrival % ms(500) for arrival in arrivals} == {0}


async def test_a_store_that_is_not_ready_is_not_listed(world: World) -> None:
    world.view.start()
    world.supervisor.start()
    await world.publish(policy(1, "a"))
    await world.clock.advance(seconds(5))
    assert listings(world) == 0
    await world.fill()
    await world.clock.advance(seconds(1))
    assert listings(world) == 1
    assert set(world.states()) == {"a"}


async def test_a_gap_lists_again_and_touches_nobody(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(2))
    world.server.stream.clear()
    world.server.version += 1000
    await world.clock.advance(seconds(2))
    assert listings(world) == 2
    assert world.states() == {"a": HEALTHY, "b": HEALTHY}
    assert world.lost == []


async def test_a_long_burst_leaves_room_for_others_and_keeps_its_order(world: World) -> None:
    await world.start("a", "b")
    world.reporting.clear()
    await world.clock.settle()
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await world.clock.sleep(ms(0))

    for _ in range(3 * BURST):
        await world.report("a")
    before = len(world.fed)
    world.scope.spawn(other_work(), "other work")
    turns_seen = []
    world.feed.subscribe(lambda _: turns_seen.append(turns))
    await world.clock.settle()
    assert len(world.fed) - before == 3 * BURST
    assert len(set(turns_seen)) >= 3
    assert world.view.state.clusters[ClusterId("a")].report_id == ReportId(1, world.sequences["a"])


async def test_an_outage_of_the_store_is_ridden_out_on_probes(world: World) -> None:
    await world.start("a", "b", "c")
    await world.clock.advance(seconds(2))
    world.server.stop()
    await world.clock.advance(seconds(60))
    assert not world.supervisor.tallies.connected
    assert set(world.states().values()) == {STALE}
    assert world.lost == []
    world.server.start()
    await world.clock.advance(seconds(7))
    assert listings(world) == 1
    assert set(world.states().values()) == {HEALTHY}
    assert [type(e) for e in world.effects if isinstance(e, BusSuspected | BusTrusted)] == [
        BusSuspected,
        BusTrusted,
    ]


async def test_a_store_that_came_back_empty_is_listed_when_it_is_full_again(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(2))
    world.reporting.clear()
    world.server.restart(empty=True)
    await world.clock.advance(seconds(5))
    assert listings(world) == 1
    assert set(world.states()) == {"a", "b"}
    await world.publish(policy(1, "a", "b"), live=False)
    await world.fill()
    world.reporting = {"a", "b"}
    await world.clock.advance(seconds(2))
    assert listings(world) == 2
    assert world.states() == {"a": HEALTHY, "b": HEALTHY}
    assert world.lost == []


class FlushedOnce(MemoryStoreServer):
    """A store that is flushed after it has said that it is ready and before it is listed."""

    flushed = False

    def meta(self) -> StoreMeta:
        meta = super().meta()
        if meta.ready and not self.flushed:
            self.flushed = True
            self.flush()
        return meta


async def test_a_list_that_turns_out_not_ready_is_not_published() -> None:
    world = World(server_kind=FlushedOnce)
    await world.start("a")
    world.reporting.clear()
    await world.clock.advance(seconds(2))
    assert listings(world) == 0
    await world.publish(policy(1, "a"))
    await world.fill()
    await world.clock.advance(seconds(1))
    assert listings(world) == 1
    await world.stop()


async def test_probes_follow_the_cadence_and_never_overlap(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(21))
    calm = [at for cluster, at in world.prober.started if cluster == "a"]
    gaps = {later - earlier for earlier, later in pairwise(calm[1:])}
    assert gaps == {seconds(5)}
    world.reporting.discard("a")
    world.prober.answering.discard("a")
    silent_at = world.view.state.clusters[ClusterId("a")].quiet_since + seconds(1.25)
    await world.clock.advance(seconds(3))
    quick = [at for cluster, at in world.prober.started if cluster == "a" and at >= silent_at]
    assert quick[1] - quick[0] == ms(500)
    assert world.prober.overlaps == 0
    assert world.supervisor.tallies.probes_failed >= 2
    assert world.supervisor.tallies.probes > world.supervisor.tallies.probes_failed


async def test_the_first_quick_probe_starts_with_the_silence(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(7))
    del world.prober.started[:]
    world.reporting.discard("a")
    quiet_since = world.view.state.clusters[ClusterId("a")].quiet_since
    await world.clock.advance(seconds(2))
    assert ("a", Instant(quiet_since + seconds(1.25))) in world.prober.started


async def test_a_cluster_that_left_the_policy_is_probed_no_more(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(1))
    await world.publish(policy(2, "b"))
    await world.clock.advance(seconds(1))
    del world.prober.started[:]
    await world.clock.advance(seconds(20))
    assert {cluster for cluster, _ in world.prober.started} == {"b"}


async def test_a_failure_that_outlasts_its_timeout_is_the_routers_own(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(6))
    world.prober.answering.discard("a")
    world.reporting.discard("a")
    await world.clock.advance(seconds(1.3))
    results = [event for event in world.fed if isinstance(event, ProbeResult) and not event.ok]
    assert world.prober.running == {"a"}
    world.clock.pause(seconds(30))
    await world.clock.advance(ms(1))
    assert world.supervisor.tallies.probes_voided == 1
    assert [event for event in world.fed if isinstance(event, ProbeResult) and not event.ok] == results


async def test_without_a_store_there_are_still_probes() -> None:
    world = World()
    world.supervisor = Supervisor(world.clock, world.feed, world.view, world.prober, world.scope)
    await world.start("a")
    assert world.states() == {}
    await world.clock.advance(seconds(2))
    assert world.supervisor.tallies.listings == 0
    assert not world.supervisor.tallies.connected
    await world.stop()
