import pytest

from services.adapters.memory.bus import BATCH_RECORDS, COMPACT_AT_RECORDS, KEEP_RECORDS, MemoryBus
from services.adapters.memory.clock import VirtualClock
from services.adapters.ports import CaughtUp, Topic
from services.core.units import seconds
from tests.support.bus import caught_up, kept, read_until


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus(VirtualClock())


async def test_f140_compaction_leaves_the_newest_of_each_key_at_its_offset_and_a_replay_ends(
    bus: MemoryBus,
) -> None:
    for number in range(10):
        bus.append(Topic.POLICY, "a" if number % 2 else "b", f"{number}".encode())
    bus.append(Topic.POLICY, "b", None)
    bus.compact()
    read = await read_until(bus.reader([Topic.POLICY]), caught_up)
    assert [(record.key, record.value, record.offset) for record in kept(read)] == [
        ("a", b"9", 9),
        ("b", None, 10),
    ]
    assert read[-1] == CaughtUp(0)


async def test_a_reader_stands_safely_inside_a_gap(bus: MemoryBus) -> None:
    reader = bus.reader([Topic.POLICY])
    bus.append(Topic.POLICY, "a", b"0")
    await read_until(reader, lambda read: len(kept(read)) == 1)
    for number in range(1, 4):
        bus.append(Topic.POLICY, "a", f"{number}".encode())
    bus.compact()
    read = await read_until(reader, lambda read: len(kept(read)) == 1)
    assert [record.value for record in kept(read)] == [b"3"]


async def test_memory_stays_bounded_by_keys_on_compacted_topics_and_by_count_on_others(
    bus: MemoryBus,
) -> None:
    for number in range(20 * COMPACT_AT_RECORDS):
        bus.append(Topic.HEALTH, f"eu-{number % 5}", b"report")
        bus.append(Topic.DEAD_LETTER, f"{number}", b"letter")
    health = kept(await read_until(bus.reader([Topic.HEALTH]), caught_up))
    letters = kept(await read_until(bus.reader([Topic.DEAD_LETTER]), caught_up))
    assert {record.key for record in health} == {f"eu-{number}" for number in range(5)}
    assert len(health) < 5 * COMPACT_AT_RECORDS
    assert len(letters) == KEEP_RECORDS
    assert letters[-1].key == f"{20 * COMPACT_AT_RECORDS - 1}"


async def test_a_long_replay_comes_in_batches(bus: MemoryBus) -> None:
    for number in range(BATCH_RECORDS + 1):
        bus.append(Topic.PODS, f"{number}", b"pods")
    batches = []
    async for batch in bus.reader([Topic.PODS]).records():
        batches.append(len(batch))
        if CaughtUp(0) in batch:
            break
    assert batches == [BATCH_RECORDS, 2]


async def test_a_closed_publisher_sends_nothing_after_an_outage(bus: MemoryBus) -> None:
    publisher = bus.publisher()
    bus.stop()
    publisher.offer(Topic.PODS, "eu-1", b"pods")
    await publisher.close()
    await publisher.close()
    bus.start()
    assert kept(await read_until(bus.reader([Topic.PODS]), caught_up)) == []


async def test_offers_of_an_outage_are_coalesced_and_dropped_by_age() -> None:
    clock = VirtualClock()
    bus = MemoryBus(clock)
    publisher = bus.publisher()
    bus.stop()
    for number in range(3):
        publisher.offer(Topic.HEALTH, "eu-1", f"{number}".encode())
        publisher.offer(Topic.PODS, "eu-1", f"{number}".encode())
    await clock.advance(seconds(2))
    publisher.offer(Topic.HEALTH, "eu-2", b"fresh")
    bus.start()
    assert (publisher.coalesced, publisher.expired) == (4, 1)
    read = kept(await read_until(bus.reader([Topic.HEALTH, Topic.PODS]), caught_up))
    assert {(record.topic, record.value) for record in read} == {(Topic.HEALTH, b"fresh"), (Topic.PODS, b"2")}
