"""A real Kafka as tests and the local stack start it: it serves, keeps its data, and can be frozen."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from deploy.stack import kafka
from deploy.stack.errors import PartMissingError
from deploy.stack.kafka import KafkaServer

DEADLINE_S = 30.0


async def _create_topic(server: KafkaServer, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    finally:
        await admin.close()


@asynccontextmanager
async def _producer(server: KafkaServer) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap, enable_idempotence=True, acks="all")
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def _read(server: KafkaServer, topic: str, count: int) -> list[bytes | None]:
    partition = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=server.bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        async with asyncio.timeout(DEADLINE_S):
            return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


async def test_an_idempotent_producer_and_a_reader_meet(kafka_server: KafkaServer, fresh_name: str) -> None:
    await _create_topic(kafka_server, fresh_name)
    async with _producer(kafka_server) as producer:
        await producer.send_and_wait(fresh_name, b"one", partition=0)
    assert await _read(kafka_server, fresh_name, 1) == [b"one"]


async def test_data_outlive_a_restart_and_a_kill(own_kafka: KafkaServer, fresh_name: str) -> None:
    """Claim: a broker started again serves on the same address what it had acknowledged."""
    address = own_kafka.bootstrap
    await _create_topic(own_kafka, fresh_name)
    async with _producer(own_kafka) as producer:
        await producer.send_and_wait(fresh_name, b"before", partition=0)
        await asyncio.to_thread(own_kafka.restart)
        await producer.send_and_wait(fresh_name, b"between", partition=0)
    await asyncio.to_thread(own_kafka.kill)
    await asyncio.to_thread(own_kafka.start)
    async with _producer(own_kafka) as producer:
        await producer.send_and_wait(fresh_name, b"after", partition=0)
    assert own_kafka.bootstrap == address
    assert await _read(own_kafka, fresh_name, 3) == [b"before", b"between", b"after"]


async def test_a_frozen_broker_answers_nothing_until_it_is_resumed(
    own_kafka: KafkaServer, fresh_name: str
) -> None:
    await _create_topic(own_kafka, fresh_name)
    async with _producer(own_kafka) as producer:
        own_kafka.pause()
        sent = await producer.send(fresh_name, b"late", partition=0)
        done, _ = await asyncio.wait([sent], timeout=0.3)
        assert not done
        own_kafka.resume()
        async with asyncio.timeout(DEADLINE_S):
            await sent
    assert await _read(own_kafka, fresh_name, 1) == [b"late"]


def test_a_machine_without_java_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PartMissingError, match="java is not on PATH"):
        kafka.fetch_jars()
