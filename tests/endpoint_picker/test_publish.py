"""Speaking for a cluster over a bus in memory and in virtual time: due times, election, fencing, outages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

from services.adapters.memory.bus import MemoryBus
from services.adapters.memory.clock import VirtualClock
from services.adapters.memory.lease import MemoryElection, StaticLease
from services.adapters.ports import BusRecord, PublisherLease, Topic
from services.adapters.system.tasks import TaskScope
from services.core.fleet import HealthReport, PodsReport, PodState
from services.core.inference import ModelName
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.pods.reading import EngineReading
from services.core.pods.report import PoolSpec
from services.core.pods.table import Pod, PodTable
from services.core.units import Duration, WallMs, ms, seconds
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.publish import Publisher
from services.wire.health_codec import decode_report
from services.wire.pods_codec import decode_pods

CLUSTER = ClusterId("eu-west-1")
PLACE = Locality(Region("eu-west"), Jurisdiction("eu"))
POOLS = (PoolSpec("pool", (ModelName("m"),)),)
HOUR_MS = 3_600_000


class World:
    """A bus, its clock, and every record that was put on it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.bus = MemoryBus(self.clock)
        self.scope = TaskScope(lambda _, failure: self.failures.append(failure))
        self.failures: list[BaseException] = []
        self.health: list[tuple[int, HealthReport]] = []
        self.pods: list[tuple[int, PodsReport]] = []
        self.scope.spawn(self._keep(), "keep")

    async def _keep(self) -> None:
        async for batch in self.bus.reader((Topic.HEALTH, Topic.PODS)).records():
            for record in batch:
                if isinstance(record, BusRecord) and record.value not in (None, b"\xff\xff"):
                    assert record.value is not None
                    now = self.clock.now()
                    if record.topic is Topic.HEALTH:
                        self.health.append((now, decode_report(record.value)))
                    else:
                        self.pods.append((now, decode_pods(record.value)))

    def picker(self, lease: PublisherLease | None = None) -> Publisher:
        """Start one picker's publisher."""
        table = PodTable([Pod("p", "10.0.0.1:8000", "pool", declared_requests=10)], self.clock.now())
        publisher = Publisher(
            CLUSTER,
            PLACE,
            POOLS,
            table,
            lease or StaticLease(),
            self.bus.publisher(),
            self.bus.reader((Topic.HEALTH,)),
            self.clock,
            Counters(),
        )
        self.scope.spawn(publisher.listen(), "listen")
        self.scope.spawn(publisher.run(), "run")
        return publisher

    async def run(self, span: Duration) -> None:
        await self.clock.advance(span)

    def epochs(self) -> list[int]:
        return [report.id.epoch for _, report in self.health]


@asynccontextmanager
async def region() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.scope.close()
    assert world.failures == []


def load(world: World, publisher: Publisher, waiting: int) -> None:
    publisher.table.read("p", EngineReading("vllm", waiting, 1, 0.1), world.clock.now())


async def test_a_report_goes_out_every_half_second_and_is_complete() -> None:
    async with region() as world:
        publisher = world.picker()
        load(world, publisher, 0)
        await world.run(seconds(5))
        assert len(world.health) == 11
        gaps = {later - earlier for (earlier, _), (later, _) in pairwise(world.health)}
        assert gaps == {ms(500)}
        report = world.health[-1][1]
        assert (report.cluster, report.region, report.jurisdiction) == (CLUSTER, "eu-west", "eu")
        assert report.pools[0].ready_endpoints == 1
        assert [item.id.sequence for _, item in world.health] == list(range(1, 12))
        assert publisher.counters.reports == 11
        assert publisher.counters.publishing


async def test_news_goes_out_early_and_never_closer_than_a_tenth_of_a_second() -> None:
    async with region() as world:
        publisher = world.picker()
        load(world, publisher, 0)
        await world.run(ms(200))
        for step in range(100):
            load(world, publisher, 5 * (step % 2))
            await world.run(ms(20))
        instants = [at for at, _ in world.health]
        assert min(later - earlier for earlier, later in pairwise(instants)) >= ms(100)
        assert len(instants) > 10
        before = len(instants)
        await world.run(ms(450))
        publisher.draining = True
        await world.run(ms(150))
        assert len(world.health) > before
        assert world.health[-1][1].draining


async def test_pod_lists_repeat_every_five_seconds_and_follow_changes() -> None:
    async with region() as world:
        publisher = world.picker()
        load(world, publisher, 0)
        await world.run(seconds(4))
        assert len(world.pods) == 1
        await world.run(seconds(1.5))
        assert len(world.pods) == 2
        publisher.table.connect_failed("p", world.clock.now())
        await world.run(ms(200))
        assert [item.pods[0].state for _, item in world.pods] == [
            PodState.READY,
            PodState.READY,
            PodState.EXCLUDED,
        ]
        assert world.pods[-1][1].id > world.pods[0][1].id


async def test_only_the_holder_of_the_lease_publishes_and_its_successor_has_a_higher_epoch() -> None:
    async with region() as world:
        election = MemoryElection()
        first, second = world.picker(election.candidate()), world.picker(election.candidate())
        await world.run(seconds(2))
        assert len(set(world.epochs())) == 1
        assert (first.counters.publishing, second.counters.publishing) == (True, False)
        election.revoke()
        await world.run(seconds(2))
        assert sorted(set(world.epochs())) == list(dict.fromkeys(world.epochs()))
        assert len(set(world.epochs())) == 2


async def test_a_restart_with_the_clock_an_hour_back_speaks_above_its_own_past() -> None:
    async with region() as world:
        past = world.picker()
        await world.run(seconds(2))
        last = world.health[-1][1].id
        past.frozen = True
        world.clock.set_wall_ms(WallMs(world.clock.wall_ms() - HOUR_MS))
        world.picker()
        await world.run(seconds(2))
        assert world.health[-1][1].id > last
        assert world.health[-1][1].id.epoch == last.epoch + 1


async def test_the_newer_of_two_publishers_is_killed_and_the_older_succeeds_it() -> None:
    async with region() as world:
        older = world.picker()
        await world.run(seconds(1))
        newer = world.picker()
        await world.run(seconds(2))
        assert older.standing is not None
        assert not older.standing.may_publish
        assert older.counters.fenced == 1
        newest = world.epochs()[-1]
        assert world.epochs().count(newest) >= 3
        newer.frozen = True
        await world.run(seconds(2))
        assert world.epochs()[-1] == newest + 1
        gaps = [later - earlier for (earlier, _), (later, _) in pairwise(world.health)]
        assert max(gaps) <= seconds(1.25)
        ids = [report.id for _, report in world.health]
        assert ids == sorted(set(ids))


async def test_a_bus_that_is_away_stops_nothing_and_is_spoken_to_when_it_returns() -> None:
    async with region() as world:
        world.bus.stop()
        publisher = world.picker()
        await world.run(seconds(5))
        assert not publisher.counters.publishing
        world.bus.start()
        await world.run(seconds(2))
        assert world.health
        world.bus.stop()
        await world.run(seconds(10))
        count = len(world.health)
        world.bus.start()
        await world.run(seconds(2))
        assert len(world.health) > count
        assert world.health[-1][1].observed_at_ms > world.clock.wall_ms() - 1_000


async def test_what_cannot_be_read_under_the_own_key_neither_fences_nor_stops() -> None:
    async with region() as world:
        world.bus.append(Topic.HEALTH, CLUSTER, b"\xff\xff")
        publisher = world.picker()
        await world.run(seconds(1))
        assert publisher.counters.publishing
        world.bus.append(Topic.HEALTH, CLUSTER, b"\xff\xff")
        world.bus.append(Topic.HEALTH, CLUSTER, None)
        await world.run(seconds(1))
        assert publisher.counters.publishing
        assert publisher.counters.fenced == 0


async def test_a_frozen_publisher_says_nothing() -> None:
    async with region() as world:
        publisher = world.picker()
        await world.run(seconds(1))
        publisher.frozen = True
        count = len(world.health)
        await world.run(seconds(3))
        assert len(world.health) == count
        assert not publisher.counters.publishing
