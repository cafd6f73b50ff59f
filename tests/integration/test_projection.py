"""Bus to store on real Apache Kafka and real Redis: two projectors, and everything that happens to them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import orjson
import pytest

from deploy.stack.kafka import KafkaServer
from deploy.stack.redis import RedisServer
from services.adapters.kafka.publisher import KafkaBusPublisher
from services.adapters.kafka.reader import KafkaBusReader
from services.adapters.kafka.settings import KafkaSettings
from services.adapters.ports import ChangeKind, Listing, StreamGapError, Topic, UnreachableError
from services.adapters.redis.store import RedisFleetStore
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.core.pods import fencing
from services.core.units import WallMs, ms, seconds
from services.global_router.project import PROJECTED_TOPICS, Projector
from tests.support.bus import caught_up, kept, read_until
from tests.support.reports import health_bytes, pods_bytes, policy_bytes
from tests.support.wait import eventually

PATIENCE = seconds(60)
PATIENCE_S = 60.0
CLOCK = SystemClock()


@dataclass
class Region:
    """A region's projectors on real parts, a publisher, and a view that lists again at every gap."""

    kafka: KafkaServer
    redis: RedisServer
    scope: asyncio.TaskGroup
    closing: AsyncExitStack
    projectors: list[Projector] = field(default_factory=list)
    lists: list[Listing] = field(default_factory=list)
    seen: dict[tuple[ChangeKind, str], bytes | None] = field(default_factory=dict)
    live: list[bytes | None] = field(default_factory=list)

    @property
    def settings(self) -> KafkaSettings:
        return KafkaSettings(self.kafka.bootstrap)

    async def publisher(self) -> KafkaBusPublisher:
        publisher = KafkaBusPublisher(self.settings, CLOCK)
        await publisher.start()
        self.closing.push_async_callback(publisher.close)
        return publisher

    def store(self) -> RedisFleetStore:
        store = RedisFleetStore(self.redis.url, "fleet", "eu-west", SystemIds())
        self.closing.push_async_callback(store.close)
        return store

    async def project(self) -> Projector:
        reader = KafkaBusReader(self.settings, PROJECTED_TOPICS, CLOCK)
        projector = Projector(reader, self.store(), await self.publisher(), CLOCK)
        running = self.scope.create_task(projector.run())
        self.closing.push_async_callback(asyncio.wait, (running,))
        self.closing.push_async_callback(reader.close)
        self.projectors.append(projector)
        return projector

    async def view(self) -> None:
        """List when ready, then tail; the router's own view does more with it."""
        store = self.store()
        version: int | None = None
        while True:
            try:
                if version is None:
                    if not (await store.meta()).ready:
                        await CLOCK.sleep(ms(50))
                        continue
                    listing = await store.list()
                    version = listing.meta.version
                    self.seen |= {(entry.kind, entry.key): entry.payload for entry in listing.entries}
                    self.lists.append(listing)
                for change in await store.tail(version, seconds(1)):
                    version = change.version
                    self.seen[change.kind, change.key] = change.payload
                    if change.live:
                        self.live.append(change.payload)
            except StreamGapError:
                version = None
            except UnreachableError:
                await CLOCK.sleep(ms(50))

    async def sees(self, key: str, payload: bytes | None, kind: ChangeKind = ChangeKind.HEALTH) -> None:
        await eventually(lambda: self.seen.get((kind, key)) == payload, PATIENCE_S, f"{key} in the view")

    async def listed_again(self, lists_before: int) -> None:
        await eventually(lambda: len(self.lists) > lists_before, PATIENCE_S, "another list")

    async def ready(self) -> None:
        await eventually(lambda: all(projector.ready for projector in self.projectors), PATIENCE_S)


@pytest.fixture
async def region(own_kafka: KafkaServer, own_redis: RedisServer) -> AsyncIterator[Region]:
    async with asyncio.TaskGroup() as scope, AsyncExitStack() as closing:
        region = Region(own_kafka, own_redis, scope, closing)
        viewing = scope.create_task(region.view())
        for _ in range(2):
            await region.project()
        yield region
        viewing.cancel()
        await asyncio.wait((viewing,))


@pytest.mark.scenario
async def test_reports_reach_the_view_once_through_two_projectors_and_poison_is_set_aside(
    region: Region,
) -> None:
    publisher = await region.publisher()
    await publisher.publish(Topic.POLICY, "snapshot", policy_bytes(1), PATIENCE)
    await publisher.publish(Topic.HEALTH, "eu-9", b"poison", PATIENCE)
    await region.ready()
    for sequence in (1, 2, 5, 4, 5):
        await publisher.publish(Topic.HEALTH, "eu-1", health_bytes("eu-1", 1, sequence), PATIENCE)
    await publisher.publish(Topic.PODS, "eu-1/llm", pods_bytes("eu-1", "llm", 1, 1), PATIENCE)
    await region.sees("snapshot", policy_bytes(1), ChangeKind.POLICY)
    await region.sees("eu-1/llm", pods_bytes("eu-1", "llm", 1, 1), ChangeKind.PODS)
    await region.sees("eu-1", health_bytes("eu-1", 1, 5))
    assert [payload for payload in region.live if payload == health_bytes("eu-1", 1, 5)] == [
        health_bytes("eu-1", 1, 5)
    ]
    assert health_bytes("eu-1", 1, 4) not in region.live
    await publisher.publish(Topic.HEALTH, "eu-1", None, PATIENCE)
    await region.sees("eu-1", None)
    assert (ChangeKind.HEALTH, "eu-9") not in region.seen
    assert all(projector.counters.undecodable == 1 for projector in region.projectors)
    letters = await read_until(
        KafkaBusReader(region.settings, [Topic.DEAD_LETTER], CLOCK),
        lambda read: caught_up(read) and len(kept(read)) >= 2,
    )
    assert {orjson.loads(letter.value or b"")["key"] for letter in kept(letters)} == {"eu-9"}


@pytest.mark.scenario
async def test_redis_flushed_then_restarted_empty_is_refilled_before_anybody_lists_it(region: Region) -> None:
    publisher = await region.publisher()
    await publisher.publish(Topic.HEALTH, "eu-1", health_bytes("eu-1", 1, 1), PATIENCE)
    await publisher.publish(Topic.POLICY, "snapshot", policy_bytes(1), PATIENCE)
    await region.sees("eu-1", health_bytes("eu-1", 1, 1))
    await region.sees("snapshot", policy_bytes(1), ChangeKind.POLICY)

    for trouble in (region.redis.flush, region.redis.restart):
        lists, replays = len(region.lists), [projector.counters.replays for projector in region.projectors]
        await asyncio.to_thread(trouble)
        await region.listed_again(lists)
        assert {entry.key for entry in region.lists[-1].entries} == {"eu-1", "snapshot"}
        await region.ready()
        assert all(
            projector.counters.replays > before
            for projector, before in zip(region.projectors, replays, strict=True)
        )
    await publisher.publish(Topic.HEALTH, "eu-1", health_bytes("eu-1", 1, 2), PATIENCE)
    await region.sees("eu-1", health_bytes("eu-1", 1, 2))


@pytest.mark.scenario
async def test_the_broker_killed_and_back_with_redis_emptied_meanwhile(region: Region) -> None:
    publisher = await region.publisher()
    await publisher.publish(Topic.HEALTH, "eu-1", health_bytes("eu-1", 1, 1), PATIENCE)
    await region.sees("eu-1", health_bytes("eu-1", 1, 1))
    await region.ready()

    await asyncio.to_thread(region.kafka.kill)
    await eventually(lambda: not any(p.bus_connected for p in region.projectors), PATIENCE_S)
    assert all(projector.ready for projector in region.projectors), "a region stays ready without its bus"
    await asyncio.to_thread(region.redis.restart)
    await eventually(lambda: not any(projector.ready for projector in region.projectors), PATIENCE_S)
    assert not (await region.store().meta()).ready

    await asyncio.to_thread(region.kafka.start)
    await region.ready()
    listing = await region.store().list()
    assert listing.meta.ready
    assert {entry.key: entry.payload for entry in listing.entries} == {"eu-1": health_bytes("eu-1", 1, 1)}
    await publisher.publish(Topic.HEALTH, "eu-1", health_bytes("eu-1", 1, 2), PATIENCE)
    await region.sees("eu-1", health_bytes("eu-1", 1, 2))
    assert health_bytes("eu-1", 1, 2) in region.live


@pytest.mark.scenario
async def test_a_publisher_taking_over_with_its_clock_an_hour_back_is_heard(region: Region) -> None:
    publisher = await region.publisher()
    hour_ms = 3_600_000
    first = fencing.take_over(CLOCK.wall_ms(), None)
    await publisher.publish(Topic.HEALTH, "eu-1", health_bytes("eu-1", first.epoch, 7), PATIENCE)
    await region.sees("eu-1", health_bytes("eu-1", first.epoch, 7))

    successor = await region.publisher()
    last = await KafkaBusReader(region.settings, [Topic.HEALTH], CLOCK).last_value(Topic.HEALTH, "eu-1")
    assert last == health_bytes("eu-1", first.epoch, 7)
    second = fencing.take_over(WallMs(CLOCK.wall_ms() - hour_ms), first.epoch)
    await successor.publish(Topic.HEALTH, "eu-1", health_bytes("eu-1", second.epoch, 1), PATIENCE)
    await region.sees("eu-1", health_bytes("eu-1", second.epoch, 1))
    # What the fenced one still says changes nothing.
    await publisher.publish(Topic.HEALTH, "eu-1", health_bytes("eu-1", first.epoch, 8), PATIENCE)
    await successor.publish(Topic.HEALTH, "eu-1", health_bytes("eu-1", second.epoch, 2), PATIENCE)
    await region.sees("eu-1", health_bytes("eu-1", second.epoch, 2))
    assert health_bytes("eu-1", first.epoch, 8) not in region.live
