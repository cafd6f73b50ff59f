"""What every `BusPublisher` and `BusReader` promise, on memory and on a real Apache Kafka."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from services.adapters.ports import (
    TOPICS,
    BusReader,
    BusRecord,
    CaughtUp,
    Topic,
    UnreachableError,
)
from services.adapters.system.clock import SystemClock
from services.core.units import ms, seconds
from tests.contracts.conftest import BusPart
from tests.support.bus import Read, caught_up, kept, read_until
from tests.support.wait import eventually

HEALTH, PODS, POLICY = Topic.HEALTH, Topic.PODS, Topic.POLICY
PATIENCE = seconds(30)


class Following:
    """Collects what a reader yields while the test goes on."""

    def __init__(self, reader: BusReader, scope: asyncio.TaskGroup) -> None:
        self.read: Read = []
        self._task = scope.create_task(self._follow(reader.records()))

    async def _follow(self, records: AsyncIterator[Sequence[BusRecord | CaughtUp]]) -> None:
        async for batch in records:
            self.read += batch

    def values(self, key: str) -> list[bytes | None]:
        return [record.value for record in kept(self.read) if record.key == key]

    def stop(self) -> None:
        self._task.cancel()


async def test_an_empty_bus_is_caught_up_at_once(bus: BusPart) -> None:
    reader = await bus.open_reader(HEALTH, PODS, POLICY)
    assert await read_until(reader, caught_up) == [CaughtUp()]


async def test_what_was_there_comes_as_replay_and_what_comes_later_as_live(bus: BusPart) -> None:
    publisher = await bus.open_publisher()
    for key in ("eu-1", "eu-2"):
        await publisher.publish(HEALTH, key, b"old", PATIENCE)
    reader = await bus.open_reader(HEALTH)
    async with asyncio.TaskGroup() as scope:
        following = Following(reader, scope)
        await eventually(lambda: caught_up(following.read), 30)
        assert {(record.key, record.value, record.live) for record in kept(following.read)} == {
            ("eu-1", b"old", False),
            ("eu-2", b"old", False),
        }
        await publisher.publish(HEALTH, "eu-1", b"new", PATIENCE)
        await eventually(lambda: following.values("eu-1") == [b"old", b"new"])
        following.stop()
    assert following.read.count(CaughtUp()) == 1
    assert kept(following.read)[-1].live


async def test_records_of_a_key_stay_in_order_and_in_one_partition(bus: BusPart) -> None:
    publisher = await bus.open_publisher()
    sent = [f"{index}".encode() for index in range(50)]
    for value in sent:
        await publisher.publish(HEALTH, "eu-1", value, PATIENCE)
    read = kept(await read_until(await bus.open_reader(HEALTH), caught_up))
    assert [record.value for record in read] == sent
    assert len({record.partition for record in read}) == 1
    offsets = [record.offset for record in read]
    assert offsets == sorted(set(offsets))


async def test_f139_tombstones_travel_also_as_the_very_first_record_of_a_key(bus: BusPart) -> None:
    """A null key cannot be published through this port; the adapter's own tests send one."""
    publisher = await bus.open_publisher()
    for value in (None, b"report", None):
        await publisher.publish(HEALTH, "eu-1", value, PATIENCE)
    read = kept(await read_until(await bus.open_reader(HEALTH), caught_up))
    assert [record.value for record in read] == [None, b"report", None]


async def test_a_replay_brings_everything_again_and_says_so_once_more(bus: BusPart) -> None:
    publisher = await bus.open_publisher()
    await publisher.publish(HEALTH, "eu-1", b"first", PATIENCE)
    reader = await bus.open_reader(HEALTH)
    async with asyncio.TaskGroup() as scope:
        following = Following(reader, scope)
        await eventually(lambda: caught_up(following.read), 30)
        await publisher.publish(HEALTH, "eu-1", b"second", PATIENCE)
        await eventually(lambda: following.values("eu-1") == [b"first", b"second"])
        following.read.clear()
        number = reader.replay()
        await eventually(lambda: caught_up(following.read))
        assert number > 0
        assert following.read[-1] == CaughtUp(number)
        assert [(record.value, record.live) for record in kept(following.read)] == [
            (b"first", False),
            (b"second", False),
        ]
        await publisher.publish(HEALTH, "eu-1", b"third", PATIENCE)
        await eventually(lambda: following.values("eu-1")[2:] == [b"third"])
        assert kept(following.read)[-1].live
        following.stop()


async def test_f134_two_readers_without_a_group_each_read_everything(bus: BusPart) -> None:
    """Nothing is ever committed, so no earlier reader can make a later one start anywhere but at the beginning."""
    publisher = await bus.open_publisher()
    await publisher.publish(POLICY, "snapshot", b"1", PATIENCE)
    for _ in range(2):
        read = kept(await read_until(await bus.open_reader(POLICY), caught_up))
        assert [record.value for record in read] == [b"1"]


async def test_topics_do_not_mix(bus: BusPart) -> None:
    publisher = await bus.open_publisher()
    for topic in TOPICS:
        await publisher.publish(topic, "key", topic.value.encode(), PATIENCE)
    read = kept(await read_until(await bus.open_reader(PODS, POLICY), caught_up))
    assert {(record.topic, record.value) for record in read} == {(PODS, b"gir.pods"), (POLICY, b"gir.policy")}


async def test_offers_arrive_newest_last_and_what_was_replaced_is_counted(bus: BusPart) -> None:
    publisher = await bus.open_publisher()
    await publisher.publish(HEALTH, "other", b"", PATIENCE)
    for index in range(200):
        publisher.offer(HEALTH, "eu-1", f"{index}".encode())
    reader = await bus.open_reader(HEALTH)
    async with asyncio.TaskGroup() as scope:
        following = Following(reader, scope)
        await eventually(lambda: following.values("eu-1")[-1:] == [b"199"], 30)
        following.stop()
    assert len(following.values("eu-1")) == 200 - publisher.coalesced
    numbers = [int(value or b"") for value in following.values("eu-1")]
    assert numbers == sorted(numbers)


async def test_the_last_value_of_a_key_is_its_newest_also_when_that_is_a_tombstone(bus: BusPart) -> None:
    publisher = await bus.open_publisher()
    reader = await bus.open_reader(HEALTH)
    assert await reader.last_value(HEALTH, "eu-1") is None
    for value in (b"1", b"2"):
        await publisher.publish(HEALTH, "eu-1", value, PATIENCE)
        await publisher.publish(HEALTH, "eu-2", b"noise", PATIENCE)
    assert await reader.last_value(HEALTH, "eu-1") == b"2"
    await publisher.publish(HEALTH, "eu-1", None, PATIENCE)
    assert await reader.last_value(HEALTH, "eu-1") is None


async def test_a_closed_reader_ends_its_records(bus: BusPart) -> None:
    reader = await bus.open_reader(HEALTH)
    async with asyncio.TaskGroup() as scope:
        following = Following(reader, scope)
        await eventually(lambda: caught_up(following.read), 30)
        await reader.close()
    assert following.read == [CaughtUp()]


async def test_an_outage_shows_and_publishing_says_unreachable_in_time(own_bus: BusPart) -> None:
    publisher = await own_bus.open_publisher()
    await publisher.publish(HEALTH, "eu-1", b"before", PATIENCE)
    await own_bus.stop()
    with pytest.raises(UnreachableError):
        await publisher.publish(POLICY, "snapshot", b"1", ms(300))
    reader = await own_bus.open_reader(HEALTH)
    with pytest.raises(UnreachableError):
        await reader.last_value(HEALTH, "eu-1")
    assert not reader.connected


async def test_f131_after_an_outage_reading_goes_on_where_it_stood_and_offers_are_delivered(
    own_bus: BusPart,
) -> None:
    """One broker stands for the rolling restart of three: whichever a client lost, it is rebuilt by its own watchdog."""
    clock = SystemClock()
    publisher = await own_bus.open_publisher()
    reader = await own_bus.open_reader(HEALTH, PODS, POLICY)
    async with asyncio.TaskGroup() as scope:
        following = Following(reader, scope)
        for number in range(5):
            await publisher.publish(PODS, "eu-1/llama", f"before {number}".encode(), PATIENCE)
        await eventually(lambda: len(following.values("eu-1/llama")) == 5, 30)
        assert reader.connected
        await own_bus.stop()
        for number in range(100):
            publisher.offer(PODS, "eu-1/llama", f"during {number}".encode())
        publisher.offer(HEALTH, "eu-1", b"of use for a second only")
        offered_at = clock.now()
        await eventually(lambda: not reader.connected)
        # The offer outlives its use while the bus is away.
        useful_life = TOPICS[HEALTH].useful_life or 0
        await eventually(lambda: clock.now() > offered_at + useful_life)
        await own_bus.start()
        await eventually(lambda: following.values("eu-1/llama")[-1:] == [b"during 99"], 60)
        await eventually(lambda: reader.connected)
        await publisher.publish(HEALTH, "eu-1", b"after", PATIENCE)
        await eventually(lambda: following.values("eu-1")[-1:] == [b"after"])
        following.stop()
    assert following.values("eu-1/llama")[:5] == [f"before {number}".encode() for number in range(5)]
    offsets = [record.offset for record in kept(following.read) if record.key == "eu-1/llama"]
    assert offsets == sorted(set(offsets)), "nothing is read twice"
    assert following.read.count(CaughtUp()) == 1
    assert publisher.coalesced >= 98
    assert following.values("eu-1") == [b"after"]
    assert publisher.expired == 1
