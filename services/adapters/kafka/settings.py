"""Where Kafka is and how its clients are bounded: one frozen value for publishers, readers and topics.

No client is built here. Apart so that every client of one process has the same limits.
"""

from dataclasses import dataclass

from services.adapters.ports import Topic

REQUEST_TIMEOUT_MS = 3000
"""One request to a broker; long enough for a leader election step, short enough that a frozen broker is
noticed before anybody waits for its reports in vain."""

METADATA_MAX_AGE_MS = 5000
"""How old the picture of topics may grow; an added partition is read at most this much later."""

BACKOFF_FIRST_MS = 100
BACKOFF_MAX_MS = 2000
"""Pause between connection attempts; at most 2 s, so that a returned broker is used at once."""

CONNECT_TIMEOUT_S = 10.0
"""One whole attempt (topics, metadata, producer id), after which it starts from the bootstrap list again."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """`bootstrap` is `host:port[,host:port]`; `topic_prefix` keeps several fleets apart on one Kafka."""

    bootstrap: str
    client_id: str = "gir"
    topic_prefix: str = ""
    replication_factor: int = 1

    def name_of(self, topic: Topic) -> str:
        """Return the topic's name on this Kafka."""
        return f"{self.topic_prefix}{topic.value}"


def next_backoff_ms(current_ms: int) -> int:
    """Return the pause after one more failed attempt."""
    return min(2 * current_ms, BACKOFF_MAX_MS)
