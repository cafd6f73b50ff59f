import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, KafkaError

from services.adapters.kafka.settings import KafkaSettings
from services.adapters.kafka.topics import COMPACTED, KEPT_A_WEEK, ensure_topics
from services.adapters.ports import TOPICS, Topic


async def config_of(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    (answer,) = await admin.describe_configs([resource])
    return {entry[0]: entry[1] for entry in answer.resources[0][4]}


async def partitions_of(admin: AIOKafkaAdminClient, *topics: str) -> dict[str, int]:
    """Wait until the broker knows of every topic's partitions: it learns of them after it has answered."""
    async with asyncio.timeout(10):
        while True:
            described = await admin.describe_topics(list(topics))
            found = {entry["topic"]: len(entry["partitions"]) for entry in described}
            if all(found.values()):
                return found


async def test_what_is_missing_is_created_as_the_table_says_by_any_number_of_services(
    settings: KafkaSettings, admin: AIOKafkaAdminClient
) -> None:
    await asyncio.gather(*(ensure_topics(settings) for _ in range(3)))
    await ensure_topics(settings)
    assert await partitions_of(admin, *(settings.name_of(topic) for topic in TOPICS)) == {
        settings.name_of(topic): spec.partitions for topic, spec in TOPICS.items()
    }
    for topic, spec in TOPICS.items():
        wanted = COMPACTED if spec.compacted else KEPT_A_WEEK
        config = await config_of(admin, settings.name_of(topic))
        assert {name: config[name] for name in wanted} == wanted


async def test_what_an_operator_made_otherwise_stands(
    settings: KafkaSettings, admin: AIOKafkaAdminClient
) -> None:
    name = settings.name_of(Topic.HEALTH)
    await admin.create_topics([NewTopic(name, 3, 1, topic_configs={"cleanup.policy": "compact,delete"})])
    await ensure_topics(settings)
    assert await partitions_of(admin, name) == {name: 3}
    assert (await config_of(admin, name))["cleanup.policy"] == "compact,delete"


async def test_a_refused_topic_is_an_error_that_names_it(settings: KafkaSettings) -> None:
    three_brokers = KafkaSettings(
        settings.bootstrap, topic_prefix=settings.topic_prefix, replication_factor=3
    )
    with pytest.raises(KafkaError, match=settings.name_of(Topic.HEALTH)):
        await ensure_topics(three_brokers)


async def test_without_a_broker_the_error_comes_at_once() -> None:
    with pytest.raises(KafkaConnectionError):
        await ensure_topics(KafkaSettings("127.0.0.1:1"))
