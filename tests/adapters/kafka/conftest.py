"""A Kafka of the whole run under names of one test, and clients that write what the port never would."""

from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from deploy.stack.kafka import KafkaServer
from services.adapters.kafka.settings import KafkaSettings


@pytest.fixture
def settings(kafka_server: KafkaServer, fresh_name: str) -> KafkaSettings:
    return KafkaSettings(kafka_server.bootstrap, topic_prefix=f"{fresh_name}.")


@pytest.fixture
async def raw(settings: KafkaSettings) -> AsyncIterator[AIOKafkaProducer]:
    """Writes any key and value to any partition."""
    producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap)
    await producer.start()
    yield producer
    await producer.stop()


@pytest.fixture
async def admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap)
    await client.start()
    yield client
    await client.close()
