import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import orjson
import pytest

from services.adapters.memory.bus import MemoryBus
from services.adapters.memory.clock import VirtualClock
from services.adapters.memory.store import MemoryFleetStore, MemoryStoreServer
from services.adapters.ports import BusRecord, ChangeKind, StreamGapError, Topic
from services.core.units import Instant, ms, seconds
from services.global_router.project import (
    KNOWN_POISON_MAX,
    PROJECTED_TOPICS,
    Projector,
)
from tests.support.bus import caught_up, kept, read_until
from tests.support.reports import health_bytes, pods_bytes, policy_bytes

NOW = Instant(5)


def record(topic: Topic, key: str, value: bytes | None, *, live: bool = True, offset: int = 7) -> BusRecord:
    return BusRecord(topic, key, value, partition=3, offset=offset, live=live)


def is_ready(projector: Projector) -> bool:
    return projector.ready


@dataclass
class Region:
    """One region in memory and virtual time, with a bus of its own."""

    clock: VirtualClock
    bus: MemoryBus
    server: MemoryStoreServer
    scope: asyncio.TaskGroup
    closing: AsyncExitStack

    async def projector(self) -> Projector:
        reader = self.bus.reader(PROJECTED_TOPICS)
        projector = Projector(reader, MemoryFleetStore(self.server), self.bus.publisher(), self.clock)
        self.scope.create_task(projector.run())
        self.closing.push_async_callback(reader.close)
        await self.clock.settle()
        return projector

    async def say(self, topic: Topic, key: str, value: bytes | None) -> None:
        self.bus.append(topic, key, value)
        await self.clock.settle()

    async def health(self, cluster: str, epoch: int, sequence: int) -> None:
        await self.say(Topic.HEALTH, cluster, health_bytes(cluster, epoch, sequence))

    async def listed(self) -> dict[tuple[ChangeKind, str], bytes | None]:
        listing = await MemoryFleetStore(self.server).list()
        return {(entry.kind, entry.key): entry.payload for entry in listing.entries}

    async def meta_ready(self) -> bool:
        return (await MemoryFleetStore(self.server).meta()).ready


@pytest.fixture
async def region() -> AsyncIterator[Region]:
    clock = VirtualClock()
    async with asyncio.TaskGroup() as scope, AsyncExitStack() as closing:
        yield Region(clock, MemoryBus(clock), MemoryStoreServer(clock), scope, closing)


HEALTH, PODS, POLICY = ChangeKind.HEALTH, ChangeKind.PODS, ChangeKind.POLICY


class TestProjector:
    async def test_every_kind_is_moved_byte_for_byte_and_the_store_declared_ready(
        self, region: Region
    ) -> None:
        await region.health("eu-1", 1, 1)
        await region.say(Topic.PODS, "eu-1/llm", pods_bytes("eu-1", "llm", 1, 1))
        await region.say(Topic.POLICY, "snapshot", policy_bytes(3))
        projector = await region.projector()
        assert await region.listed() == {
            (HEALTH, "eu-1"): health_bytes("eu-1", 1, 1),
            (PODS, "eu-1/llm"): pods_bytes("eu-1", "llm", 1, 1),
            (POLICY, "snapshot"): policy_bytes(3),
        }
        assert is_ready(projector)
        assert projector.bus_connected
        assert await region.meta_ready()
        assert projector.counters.applied == 3

    async def test_an_empty_bus_makes_a_ready_store(self, region: Region) -> None:
        projector = await region.projector()
        assert is_ready(projector)
        assert await region.meta_ready()

    async def test_replayed_records_are_not_live_and_later_ones_are(self, region: Region) -> None:
        await region.health("eu-1", 1, 1)
        await region.projector()
        await region.health("eu-1", 1, 2)
        changes = await MemoryFleetStore(region.server).tail(0, ms(0))
        assert [(change.payload, change.live) for change in changes] == [
            (health_bytes("eu-1", 1, 1), False),
            (health_bytes("eu-1", 1, 2), True),
        ]

    async def test_f143_reordered_and_repeated_records_and_older_epochs_change_nothing(
        self, region: Region
    ) -> None:
        projector = await region.projector()
        for epoch, sequence in ((1, 5), (1, 4), (1, 5), (2, 1), (1, 99)):
            await region.health("eu-1", epoch, sequence)
        assert await region.listed() == {(HEALTH, "eu-1"): health_bytes("eu-1", 2, 1)}
        assert (projector.counters.applied, projector.counters.superseded) == (2, 3)

    async def test_a_tombstone_removes_and_a_returning_publisher_may_start_lower(
        self, region: Region
    ) -> None:
        projector = await region.projector()
        await region.health("eu-1", 5, 1)
        await region.say(Topic.HEALTH, "eu-1", None)
        assert await region.listed() == {}
        await region.health("eu-1", 4, 1)
        assert await region.listed() == {(HEALTH, "eu-1"): health_bytes("eu-1", 4, 1)}
        assert projector.counters.removed == 1

    async def test_two_projectors_write_each_change_once(self, region: Region) -> None:
        first, second = await region.projector(), await region.projector()
        for sequence in range(1, 21):
            await region.health("eu-1", 1, sequence)
        assert region.server.version == 20
        assert first.counters.applied + second.counters.applied == 20
        assert first.counters.superseded + second.counters.superseded == 20

    async def test_a_restarted_projector_does_not_make_a_living_cluster_vanish(self, region: Region) -> None:
        await region.projector()
        await region.health("eu-1", 1, 1)
        await region.say(Topic.HEALTH, "eu-1", None)
        await region.health("eu-1", 1, 2)
        version = region.server.version
        second = await region.projector()
        assert is_ready(second)
        assert region.server.version == version, "the second one changed nothing"

    async def test_poison_is_counted_once_reported_without_content_and_passed(self, region: Region) -> None:
        projector = await region.projector()
        await region.say(Topic.HEALTH, "eu-1", b"poison")
        await region.health("eu-2", 1, 1)
        assert await region.listed() == {(HEALTH, "eu-2"): health_bytes("eu-2", 1, 1)}
        region.server.flush()
        await region.clock.advance(seconds(1))
        assert projector.counters.replays == 1
        assert projector.counters.undecodable == 1
        letters = kept(await read_until(region.bus.reader([Topic.DEAD_LETTER]), caught_up))
        assert len(letters) == 1
        letter = orjson.loads(letters[0].value or b"")
        assert (letter["topic"], letter["key"], letter["size_bytes"]) == ("gir.health", "eu-1", 6)
        assert b"poison" not in (letters[0].value or b"")

    async def test_remembered_poison_is_bounded(self, region: Region) -> None:
        projector = await region.projector()
        for index in range(KNOWN_POISON_MAX + 5):
            region.bus.append(Topic.HEALTH, f"eu-{index}", b"poison")
        await region.clock.settle()
        assert projector.counters.undecodable == KNOWN_POISON_MAX + 5
        assert len(projector._known_poison) == KNOWN_POISON_MAX

    async def test_policy_keys_of_later_builds_and_a_removed_policy_are_passed_over(
        self, region: Region
    ) -> None:
        projector = await region.projector()
        await region.say(Topic.POLICY, "snapshot", policy_bytes(2))
        await region.say(Topic.POLICY, "drain/eu-1", b"not for this build")
        await region.say(Topic.POLICY, "snapshot", None)
        await region.say(Topic.POLICY, "snapshot", policy_bytes(1))
        assert await region.listed() == {(POLICY, "snapshot"): policy_bytes(2)}
        assert projector.counters.ignored == 2
        assert projector.counters.undecodable == 0


class TestStoreTrouble:
    async def test_a_flushed_store_is_refilled_and_only_then_ready(self, region: Region) -> None:
        projector = await region.projector()
        await region.health("eu-1", 1, 1)
        await region.say(Topic.POLICY, "snapshot", policy_bytes(1))
        before = await region.listed()
        view = MemoryFleetStore(region.server)
        version = (await view.list()).meta.version
        region.server.flush()
        assert not await region.meta_ready()
        with pytest.raises(StreamGapError):
            await view.tail(version, ms(0))
        await region.clock.advance(seconds(1))
        assert await region.listed() == before
        assert await region.meta_ready()
        assert is_ready(projector)
        changes = await MemoryFleetStore(region.server).tail(0, ms(0))
        assert not any(change.live for change in changes), "a replay is no sign of life"

    async def test_a_store_that_restarts_empty_is_refilled_by_each_of_two(self, region: Region) -> None:
        projectors = [await region.projector(), await region.projector()]
        await region.health("eu-1", 1, 1)
        region.server.stop()
        await region.clock.advance(seconds(3))
        region.server.restart(empty=True)
        await region.clock.advance(seconds(2))
        assert await region.listed() == {(HEALTH, "eu-1"): health_bytes("eu-1", 1, 1)}
        assert [projector.counters.replays for projector in projectors] == [1, 1]
        assert all(projector.ready for projector in projectors)
        assert all(projector.counters.store_failures > 0 for projector in projectors)

    async def test_a_store_that_restarts_with_its_data_is_not_ready_until_replayed(
        self, region: Region
    ) -> None:
        projector = await region.projector()
        await region.health("eu-1", 1, 1)
        region.server.restart(empty=False)
        assert not await region.meta_ready()
        await region.clock.advance(seconds(1))
        assert await region.meta_ready()
        assert projector.counters.replays == 1

    async def test_with_the_store_away_only_the_newest_of_each_key_is_kept_and_then_written(
        self, region: Region
    ) -> None:
        projector = await region.projector()
        await region.health("eu-1", 1, 1)
        region.server.stop()
        for sequence in range(2, 500):
            await region.health("eu-1", 1, sequence)
        assert len(projector._pending) == 1
        await region.clock.advance(seconds(10))
        region.server.start()
        await region.clock.advance(seconds(2))
        assert await region.listed() == {(HEALTH, "eu-1"): health_bytes("eu-1", 1, 499)}
        # What lay for ten seconds is no sign of life; what comes now is.
        changes = await MemoryFleetStore(region.server).tail(1, ms(0))
        assert [change.live for change in changes] == [False]
        await region.health("eu-1", 1, 500)
        assert [change.live for change in await MemoryFleetStore(region.server).tail(2, ms(0))] == [True]

    async def test_a_projector_that_starts_without_a_store_waits_for_it(self, region: Region) -> None:
        region.server.stop()
        await region.health("eu-1", 1, 1)
        projector = await region.projector()
        await region.clock.advance(seconds(5))
        assert not is_ready(projector)
        region.server.start()
        await region.clock.advance(seconds(2))
        assert is_ready(projector)
        assert await region.listed() == {(HEALTH, "eu-1"): health_bytes("eu-1", 1, 1)}

    async def test_a_store_flushed_in_the_middle_of_the_first_replay_is_not_called_ready_too_early(
        self, region: Region
    ) -> None:
        for index in range(3):
            await region.health(f"eu-{index}", 1, 1)
        region.server.stop()
        projector = await region.projector()
        region.server.start()
        await region.clock.advance(ms(150))
        region.server.flush()
        assert not await region.meta_ready()
        await region.clock.advance(seconds(1))
        assert len(await region.listed()) == 3
        assert await region.meta_ready()
        assert is_ready(projector)


class TestBusTrouble:
    async def test_in_a_bus_outage_the_region_stays_ready_and_reading_goes_on_after_it(
        self, region: Region
    ) -> None:
        projector = await region.projector()
        await region.health("eu-1", 1, 1)
        region.bus.stop()
        await region.clock.advance(seconds(60))
        assert is_ready(projector)
        assert not projector.bus_connected
        region.bus.start()
        await region.health("eu-1", 1, 2)
        assert await region.listed() == {(HEALTH, "eu-1"): health_bytes("eu-1", 1, 2)}
        assert projector.counters.replays == 0

    async def test_a_store_emptied_in_a_bus_outage_stays_unready_until_the_bus_is_back(
        self, region: Region
    ) -> None:
        projector = await region.projector()
        await region.health("eu-1", 1, 1)
        region.bus.stop()
        region.server.flush()
        await region.clock.advance(seconds(60))
        assert not is_ready(projector)
        assert not await region.meta_ready()
        region.bus.start()
        await region.clock.advance(seconds(1))
        assert is_ready(projector)
        assert await region.listed() == {(HEALTH, "eu-1"): health_bytes("eu-1", 1, 1)}
