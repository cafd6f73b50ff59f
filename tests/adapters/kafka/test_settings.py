from services.adapters.kafka.settings import (
    BACKOFF_FIRST_MS,
    BACKOFF_MAX_MS,
    KafkaSettings,
    next_backoff_ms,
)
from services.adapters.ports import Topic


def test_a_prefix_keeps_fleets_apart_and_without_one_the_names_are_the_fixed_ones() -> None:
    assert KafkaSettings("k:9092").name_of(Topic.HEALTH) == "gir.health"
    assert KafkaSettings("k:9092", topic_prefix="blue.").name_of(Topic.PODS) == "blue.gir.pods"


def test_the_pause_between_attempts_doubles_up_to_its_bound() -> None:
    assert next_backoff_ms(BACKOFF_FIRST_MS) == 2 * BACKOFF_FIRST_MS
    assert next_backoff_ms(BACKOFF_MAX_MS - 1) == BACKOFF_MAX_MS
    assert next_backoff_ms(BACKOFF_MAX_MS) == BACKOFF_MAX_MS
