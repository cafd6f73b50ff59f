"""Creation of the topics, from the one table of the port, idempotently and by any service.

Only what is missing is created; an operator's settings on an existing topic stand. Reading
and writing records is elsewhere.
"""

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import NoError, TopicAlreadyExistsError, for_code

from services.adapters.kafka.settings import REQUEST_TIMEOUT_MS, KafkaSettings
from services.adapters.ports import TOPICS, Topic, TopicSpec

COMPACTED = {
    "cleanup.policy": "compact",
    # The active segment is never compacted, so it is rolled soon: a replay reads little more than the keys.
    "segment.ms": "60000",
    # For so long a late reader still learns of a tombstone.
    "delete.retention.ms": "86400000",
}
KEPT_A_WEEK = {"cleanup.policy": "delete", "retention.ms": "604800000"}


async def ensure_topics(settings: KafkaSettings) -> None:
    """Create the topics of the table that do not exist.

    Raises aiokafka's errors; one that another service creates at the same moment counts as there.
    """
    admin = AIOKafkaAdminClient(
        bootstrap_servers=settings.bootstrap,
        client_id=settings.client_id,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )
    try:
        await admin.start()
        present = set(await admin.list_topics())
        missing = [
            _new_topic(settings, topic, spec)
            for topic, spec in TOPICS.items()
            if settings.name_of(topic) not in present
        ]
        if missing:
            answer = await admin.create_topics(missing)
            for name, code, *message in answer.topic_errors:
                error = for_code(code)
                if error not in (NoError, TopicAlreadyExistsError):
                    raise error(f"create topic {name}: {message}")
    finally:
        await admin.close()


def _new_topic(settings: KafkaSettings, topic: Topic, spec: TopicSpec) -> NewTopic:
    return NewTopic(
        settings.name_of(topic),
        spec.partitions,
        settings.replication_factor,
        topic_configs=dict(COMPACTED if spec.compacted else KEPT_A_WEEK),
    )
