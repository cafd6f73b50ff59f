"""What only a real broker can show: foreign keys, gaps, added partitions, logs made anew, standing still."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from services.adapters.kafka.reader import KafkaBusReader
from services.adapters.kafka.settings import KafkaSettings
from services.adapters.kafka.topics import ensure_topics
from services.adapters.ports import CaughtUp, Topic
from services.adapters.system.clock import SystemClock
from tests.support.bus import Read, caught_up, kept, read_until
from tests.support.wait import eventually

HEALTH = Topic.HEALTH


class Following:
    """A reader of one topic and what it has yielded."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.reader = KafkaBusReader(settings, [HEALTH], SystemClock())
        self.read: Read = []

    async def follow(self) -> None:
        async for batch in self.reader.records():
            self.read += batch

    def values(self) -> list[bytes | None]:
        return [record.value for record in kept(self.read)]


@pytest.fixture
async def following(settings: KafkaSettings) -> AsyncIterator[Following]:
    await ensure_topics(settings)
    following = Following(settings)
    async with asyncio.TaskGroup() as scope:
        scope.create_task(following.follow())
        await eventually(lambda: caught_up(following.read), 30)
        yield following
        await following.reader.close()


@pytest.fixture
def name(settings: KafkaSettings) -> str:
    return settings.name_of(HEALTH)


async def test_f139_records_without_a_usable_key_are_skipped_and_counted(
    settings: KafkaSettings, admin: AIOKafkaAdminClient, raw: AIOKafkaProducer, name: str
) -> None:
    """On our own compacted topics the broker refuses a null key; on one that an operator made it may come."""
    await admin.create_topics([NewTopic(name, 1, 1, topic_configs={"cleanup.policy": "delete"})])
    await raw.send_and_wait(name, b"no key at all")
    await raw.send_and_wait(name, b"a key that is no text", key=b"\xff\xfe")
    await raw.send_and_wait(name, None, key=b"eu-1")
    await raw.send_and_wait(name, b"good", key=b"eu-1")
    reader = KafkaBusReader(settings, [HEALTH], SystemClock())
    read = kept(await read_until(reader, caught_up))
    assert [(record.key, record.value) for record in read] == [("eu-1", None), ("eu-1", b"good")]
    assert reader.skipped == 2


async def test_f140_gaps_from_compaction_and_control_records_at_the_end_do_not_hold_up_a_replay(
    settings: KafkaSettings, admin: AIOKafkaAdminClient, raw: AIOKafkaProducer, name: str, fresh_name: str
) -> None:
    compact_soon = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    await admin.create_topics([NewTopic(name, 1, 1, topic_configs=compact_soon)])
    for number in range(20):
        await raw.send_and_wait(name, f"{number}".encode(), key=b"eu-1" if number % 7 else b"eu-2")
    reads: list[Read] = []

    async def compacted() -> None:
        while True:
            # Each append after the segment's age rolls it; only rolled segments are compacted.
            await raw.send_and_wait(name, b"roll", key=b"roll")
            read = await read_until(KafkaBusReader(settings, [HEALTH], SystemClock()), caught_up)
            reads.append(read)
            if [record.value for record in kept(read) if record.key == "eu-1"] == [b"19"]:
                return

    await asyncio.wait_for(compacted(), 60)
    offsets = [record.offset for record in kept(reads[-1])]
    assert offsets == sorted(offsets)
    assert offsets[-1] - offsets[0] > len(offsets) - 1, "there are gaps"

    transactional = AIOKafkaProducer(bootstrap_servers=settings.bootstrap, transactional_id=fresh_name)
    async with transactional, transactional.transaction():
        await transactional.send_and_wait(name, b"then a control record", key=b"eu-3")
    read = await read_until(KafkaBusReader(settings, [HEALTH], SystemClock()), caught_up)
    assert kept(read)[-1].value == b"then a control record"


async def test_f136_many_replays_at_once_end_in_one_whole_pass(
    following: Following, raw: AIOKafkaProducer, name: str
) -> None:
    await raw.send_and_wait(name, b"report", key=b"eu-1", partition=0)
    numbers = []
    for _ in range(100):
        numbers.append(following.reader.replay())
        await asyncio.sleep(0)
    await eventually(lambda: CaughtUp(numbers[-1]) in following.read)
    assert following.values()[-1] == b"report"
    assert following.reader.rebuilt == 0
    assert numbers == sorted(set(numbers))


async def test_f137_an_idle_reader_leaves_the_loop_to_others(following: Following) -> None:
    """The port polls with a timeout and never uses `getone`; a starved loop would never finish the turns."""
    for _ in range(10_000):
        await asyncio.sleep(0)
    assert following.reader.connected


async def test_f133_f134_there_is_no_group_to_rebalance_or_to_start_from(
    following: Following, admin: AIOKafkaAdminClient, raw: AIOKafkaProducer, name: str
) -> None:
    """The design decides otherwise than the cases assume: a slow caller delays itself, and no offset is committed."""
    await raw.send_and_wait(name, b"report", key=b"eu-1", partition=0)
    await eventually(lambda: following.values() == [b"report"])
    assert await admin.list_consumer_groups() == []


async def test_a_partition_added_later_is_read_from_its_beginning_as_live(
    following: Following, admin: AIOKafkaAdminClient, raw: AIOKafkaProducer, name: str
) -> None:
    await raw.send_and_wait(name, b"old partition", key=b"eu-1", partition=0)
    await eventually(lambda: following.values() == [b"old partition"])
    await admin.create_partitions({name: NewPartitions(13)})
    await raw.client.force_metadata_update()
    await eventually(lambda: len(raw.client.cluster.partitions_for_topic(name) or ()) == 13)
    await raw.send_and_wait(name, b"new partition", key=b"eu-1", partition=12)
    await eventually(lambda: following.values()[-1:] == [b"new partition"], 30)
    assert kept(following.read)[-1].live
    assert following.values() == [b"old partition", b"new partition"], "nothing is read twice"


async def test_the_last_value_is_found_where_it_was_before_partitions_were_added(
    settings: KafkaSettings, admin: AIOKafkaAdminClient, raw: AIOKafkaProducer, name: str
) -> None:
    await admin.create_topics([NewTopic(name, 1, 1, topic_configs={"cleanup.policy": "compact"})])
    keys = [f"eu-{index}" for index in range(8)]
    for key in keys:
        await raw.send_and_wait(name, b"before", key=key.encode())
    await admin.create_partitions({name: NewPartitions(4)})
    reader = KafkaBusReader(settings, [HEALTH], SystemClock())
    assert [await reader.last_value(HEALTH, key) for key in keys] == [b"before"] * len(keys)
    await raw.client.force_metadata_update()
    await eventually(lambda: len(raw.client.cluster.partitions_for_topic(name) or ()) == 4)
    for key in keys:
        # An hour ago by the producer's clock: the key's own partition counts, not the time.
        await raw.send_and_wait(name, b"after", key=key.encode(), timestamp_ms=1)
    assert [await reader.last_value(HEALTH, key) for key in keys] == [b"after"] * len(keys)


async def test_a_topic_made_anew_below_the_position_is_read_whole_and_its_news_are_live(
    following: Following,
    admin: AIOKafkaAdminClient,
    raw: AIOKafkaProducer,
    name: str,
    settings: KafkaSettings,
) -> None:
    for number in range(5):
        await raw.send_and_wait(name, f"{number}".encode(), key=b"eu-1", partition=0)
    await eventually(lambda: len(following.values()) == 5)
    await admin.delete_topics([name])
    following.read.clear()

    async def anew() -> None:
        while True:
            await ensure_topics(settings)
            (described,) = await admin.describe_topics([name])
            if described["partitions"]:
                return
            await asyncio.sleep(0.05)

    await asyncio.wait_for(anew(), 30)
    await raw.client.force_metadata_update()
    await raw.send_and_wait(name, b"anew", key=b"eu-1", partition=0)
    await eventually(lambda: b"anew" in following.values(), 60)
    await eventually(lambda: caught_up(following.read), 30)
    await raw.send_and_wait(name, b"and on", key=b"eu-1", partition=0)
    await eventually(lambda: following.values()[-1:] == [b"and on"])
    assert kept(following.read)[-1].live


async def test_f131_a_partition_that_stands_still_while_its_end_moves_costs_the_client(
    following: Following, raw: AIOKafkaProducer, name: str
) -> None:
    """A paused partition stands for whatever made the client stop fetching without a word."""
    consumer = following.reader._consumer
    assert consumer is not None
    consumer.pause(TopicPartition(name, 0))
    await raw.send_and_wait(name, b"while standing still", key=b"eu-1", partition=0)
    await eventually(lambda: following.values() == [b"while standing still"], 30)
    assert following.reader.rebuilt == 1
