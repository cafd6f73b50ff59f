"""What only a real broker can show: refusals, freezes, and brokers that come later than their clients."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from deploy.stack.kafka import KafkaServer
from services.adapters.kafka import publisher as publisher_module
from services.adapters.kafka.publisher import KafkaBusPublisher
from services.adapters.kafka.reader import KafkaBusReader
from services.adapters.kafka.settings import KafkaSettings
from services.adapters.ports import RefusedError, Topic, UnreachableError
from services.adapters.system.clock import SystemClock
from services.core.units import ms, seconds
from tests.support.bus import caught_up, kept, read_until
from tests.support.wait import eventually

PATIENCE = seconds(30)


async def opened(settings: KafkaSettings, closing: AsyncExitStack) -> KafkaBusPublisher:
    publisher = KafkaBusPublisher(settings, SystemClock())
    await publisher.start()
    closing.push_async_callback(publisher.close)
    return publisher


async def values(settings: KafkaSettings, topic: Topic, key: str) -> list[bytes | None]:
    read = await read_until(KafkaBusReader(settings, [topic], SystemClock()), caught_up)
    return [record.value for record in kept(read) if record.key == key]


async def test_f142_a_record_over_the_limit_is_refused_and_counted_and_others_go_on(
    settings: KafkaSettings,
) -> None:
    """Pods are split per pool and cut at 512 KiB before they come here, so this is a defect made visible."""
    at_limit, over_limit = bytes(900_000), bytes(1_100_000)
    async with AsyncExitStack() as closing:
        publisher = await opened(settings, closing)
        with pytest.raises(RefusedError, match=r"gir\.pods"):
            await publisher.publish(Topic.PODS, "big", over_limit, PATIENCE)
        publisher.offer(Topic.PODS, "big", over_limit)
        publisher.offer(Topic.PODS, "big", at_limit)
        publisher.offer(Topic.HEALTH, "eu-1", b"report")
        await eventually(lambda: publisher.refused + publisher.coalesced == 1)
        await publisher.publish(Topic.HEALTH, "eu-2", b"report", PATIENCE)
        assert publisher.connected
        assert publisher.reconnects == 0
    assert await values(settings, Topic.PODS, "big") == [at_limit]
    assert await values(settings, Topic.HEALTH, "eu-1") == [b"report"]


async def test_a_record_the_broker_refuses_is_refused_too(settings: KafkaSettings) -> None:
    """The broker's limit counts the header of the batch, which the client's check does not."""
    async with AsyncExitStack() as closing:
        publisher = await opened(settings, closing)
        sizes = range(1_048_576 - 120, 1_048_576, 10)
        refused = 0
        for size in sizes:
            try:
                await publisher.publish(Topic.PODS, f"k{size}", bytes(size), PATIENCE)
            except RefusedError:
                refused += 1
        await publisher.publish(Topic.PODS, "small", b"goes on", PATIENCE)
        assert 0 < refused < len(sizes)
        assert publisher.reconnects == 0


async def test_an_offer_that_only_the_broker_refuses_is_counted_and_the_key_is_free_again(
    settings: KafkaSettings, admin: AIOKafkaAdminClient
) -> None:
    small = NewTopic(settings.name_of(Topic.PODS), 1, 1, topic_configs={"max.message.bytes": "1000"})
    await admin.create_topics([small])
    async with AsyncExitStack() as closing:
        publisher = await opened(settings, closing)
        publisher.offer(Topic.PODS, "eu-1/llm", bytes(2000))
        await eventually(lambda: publisher.refused == 1)
        publisher.offer(Topic.PODS, "eu-1/llm", b"small")
        await eventually(lambda: publisher.connected and not publisher._waiting and not publisher._in_flight)
        assert publisher.reconnects == 0
    assert await values(settings, Topic.PODS, "eu-1/llm") == [b"small"]


async def test_a_topic_deleted_under_the_producer_is_made_again_and_offering_goes_on(
    settings: KafkaSettings, admin: AIOKafkaAdminClient
) -> None:
    async with AsyncExitStack() as closing:
        publisher = await opened(settings, closing)
        await publisher.publish(Topic.PODS, "eu-1/llm", b"before", PATIENCE)
        await publisher.publish(Topic.POLICY, "snapshot", b"before", PATIENCE)
        await admin.delete_topics([settings.name_of(Topic.PODS), settings.name_of(Topic.POLICY)])

        def given_up() -> bool:
            # The deletion takes its time: until then records go into the log that is about to vanish.
            publisher.offer(Topic.PODS, "eu-1/llm", b"meanwhile")
            return publisher.reconnects >= 1

        await eventually(given_up, 60)
        publisher.offer(Topic.PODS, "eu-1/llm", b"after")
        await publisher.publish(Topic.POLICY, "snapshot", b"after", PATIENCE)
        await eventually(lambda: not publisher._waiting and not publisher._in_flight, 30)
    assert (await values(settings, Topic.PODS, "eu-1/llm"))[-1:] == [b"after"]
    assert (await values(settings, Topic.POLICY, "snapshot"))[-1:] == [b"after"]


async def test_a_frozen_broker_costs_the_producer_and_the_newest_value_arrives_after_it(
    own_kafka: KafkaServer,
) -> None:
    settings = KafkaSettings(own_kafka.bootstrap)
    async with AsyncExitStack() as closing:
        publisher = await opened(settings, closing)
        await publisher.publish(Topic.PODS, "eu-1/llm", b"before", PATIENCE)
        own_kafka.pause()
        publisher.offer(Topic.PODS, "eu-1/llm", b"in flight")
        with pytest.raises(UnreachableError, match=r"gir\.policy.*300 ms"):
            await publisher.publish(Topic.POLICY, "snapshot", b"1", ms(300))
        for number in range(10):
            publisher.offer(Topic.PODS, "eu-1/llm", f"{number}".encode())
        await eventually(lambda: not publisher.connected, 30)
        own_kafka.resume()
        await publisher.publish(Topic.POLICY, "snapshot", b"2", PATIENCE)
        await eventually(lambda: not publisher._waiting and not publisher._in_flight, 30)
        assert publisher.reconnects >= 1
        assert publisher.coalesced >= 9
    assert (await values(settings, Topic.PODS, "eu-1/llm"))[-1] == b"9"
    assert (await values(settings, Topic.POLICY, "snapshot"))[-1] == b"2"


async def test_a_publisher_may_start_before_its_broker(own_kafka: KafkaServer) -> None:
    await asyncio.to_thread(own_kafka.stop)
    settings = KafkaSettings(own_kafka.bootstrap)
    async with AsyncExitStack() as closing:
        publisher = await opened(settings, closing)
        await publisher.start()
        assert not publisher.connected
        publisher.offer(Topic.PODS, "eu-1/llm", b"early")
        await asyncio.to_thread(own_kafka.start)
        await publisher.publish(Topic.PODS, "eu-2/llm", b"late", PATIENCE)
        await eventually(lambda: not publisher._waiting and not publisher._in_flight)
    assert await values(settings, Topic.PODS, "eu-1/llm") == [b"early"]


async def test_closing_delivers_what_was_offered(settings: KafkaSettings) -> None:
    async with AsyncExitStack() as closing:
        publisher = await opened(settings, closing)
        await publisher.publish(Topic.HEALTH, "eu-1", b"connected", PATIENCE)
        for index in range(50):
            publisher.offer(Topic.PODS, f"eu-{index}/llm", b"last words")
    assert await values(settings, Topic.PODS, "eu-49/llm") == [b"last words"]
    await publisher.close()


async def test_closing_without_a_broker_ends() -> None:
    publisher = KafkaBusPublisher(KafkaSettings("127.0.0.1:1"), SystemClock())
    await publisher.close()
    await publisher.start()
    publisher.offer(Topic.PODS, "eu-1/llm", b"never sent")
    await publisher.close()
    assert not publisher.connected


async def test_a_publisher_outlives_whatever_its_client_raises(caplog: pytest.LogCaptureFixture) -> None:
    """An address the client cannot parse raises no error of Kafka's; a pump that died of it would never be missed."""
    publisher = KafkaBusPublisher(KafkaSettings("127.0.0.1:port"), SystemClock())
    await publisher.start()
    publisher.offer(Topic.HEALTH, "eu-1", b"report")
    await eventually(lambda: caplog.text.count("publisher starts over") >= 2, what="a second try")
    assert not publisher.connected
    await publisher.close()


async def test_what_waits_for_a_bus_that_is_away_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letters have a key each; the oldest gives way and is counted."""
    monkeypatch.setattr(publisher_module, "WAITING_MAX", 2)
    away = KafkaBusPublisher(KafkaSettings("127.0.0.1:1"), SystemClock())
    for key in ("a", "b", "b", "c"):
        away.offer(Topic.DEAD_LETTER, key, b"x")
    assert [key for _, key in away._waiting] == ["b", "c"]
    assert (away.coalesced, away.expired) == (1, 1)
