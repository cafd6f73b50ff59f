"""The consumer side of the bus on Kafka: every partition, no group, always from the beginning.

Positions are kept here and not in Kafka, so a client that fails or stalls is thrown away
and the next one goes on where it stood. Offsets have gaps (compaction), so progress is
judged by positions, never by counting. What records mean is not known here.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaError, OffsetOutOfRangeError
from aiokafka.partitioner import DefaultPartitioner

from services.adapters.kafka.settings import (
    BACKOFF_FIRST_MS,
    CONNECT_TIMEOUT_S,
    METADATA_MAX_AGE_MS,
    REQUEST_TIMEOUT_MS,
    KafkaSettings,
    next_backoff_ms,
)
from services.adapters.kafka.topics import ensure_topics
from services.adapters.ports import BusRecord, CaughtUp, Clock, Topic, UnreachableError
from services.core.units import Instant, ms, seconds, since

POLL_MS = 200
"""Longest wait of one poll; replay and close are noticed in this time."""

BATCH_RECORDS = 500
"""Most records of one batch, so that a replay lets other tasks run."""

LOOK_INTERVAL = seconds(2)
"""How often end offsets are asked for: it shows a broker that is away, and a partition that stands still
while its end moves on. A fetch that fails shows nowhere else in aiokafka."""

LAST_VALUE_TIMEOUT_S = 15.0
"""One pass over a compacted topic of a few thousand records takes well under a second."""

_LOST = (KafkaError, ConsumerStoppedError, OSError, TimeoutError)

_log = logging.getLogger(__name__)


class KafkaBusReader:
    """`BusReader` on Kafka. `rebuilt` counts clients given up for the next one."""

    def __init__(self, settings: KafkaSettings, topics: Collection[Topic], clock: Clock) -> None:
        self._settings = settings
        self._topic_of = {settings.name_of(topic): topic for topic in topics}
        self._clock = clock
        self._consumer: AIOKafkaConsumer | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._caught_up = False
        self._requested, self._number = 0, -1
        self._connected = False
        self._closing = asyncio.Event()
        self._dropping = asyncio.Lock()
        self._looked_at = Instant(0)
        self._last_look: dict[TopicPartition, tuple[int, int]] = {}
        self.skipped = 0
        self.rebuilt = 0

    @property
    def connected(self) -> bool:
        """Whether the brokers answered when last looked at."""
        return self._connected

    async def start(self) -> None:
        """Be ready; `records` connects."""

    async def close(self) -> None:
        """End `records` and disconnect."""
        self._closing.set()
        await self._drop_consumer()

    def replay(self) -> int:
        """Read everything again, with end offsets captured anew."""
        self._requested += 1
        return self._requested

    async def records(self) -> AsyncGenerator[Sequence[BusRecord | CaughtUp], None]:
        """Yield batches until closed, over as many clients as it takes."""
        backoff_ms = BACKOFF_FIRST_MS
        while not self._closing.is_set():
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    consumer = await self._connect()
                backoff_ms = BACKOFF_FIRST_MS
                async for batch in self._batches(consumer):
                    yield batch
            except _LOST as failure:
                if self._closing.is_set():
                    return
                _log.warning("kafka %s: reader starts over: %r", self._settings.bootstrap, failure)
                self.rebuilt += 1
            finally:
                await self._drop_consumer()
            await self._clock.sleep(ms(backoff_ms))
            backoff_ms = next_backoff_ms(backoff_ms)

    async def last_value(self, topic: Topic, key: str) -> bytes | None:
        """Return the newest retained value of `key`, in one pass over its topic.

        The key's own partition wins; another one holds it only if partitions were added since.
        """
        consumer = _new_consumer(self._settings)
        name, wanted = self._settings.name_of(topic), key.encode()
        newest: tuple[bool, int, int] | None = None
        value: bytes | None = None
        try:
            async with asyncio.timeout(LAST_VALUE_TIMEOUT_S):
                await ensure_topics(self._settings)
                await consumer.start()
                partitions = await _partitions(consumer, [name])
                own = DefaultPartitioner()(wanted, [tp.partition for tp in partitions], [])
                async for record in _one_pass(consumer, partitions):
                    # Within one partition the log's order counts; clocks may have stepped back.
                    rank = (
                        (True, 0, record.offset) if record.partition == own else (False, record.timestamp, 0)
                    )
                    if record.key == wanted and (newest is None or rank > newest):
                        newest, value = rank, record.value
        except _LOST as failure:
            place = f"{name} on kafka {self._settings.bootstrap}"
            raise UnreachableError(f"read {place}: {str(failure) or type(failure).__name__}") from failure
        finally:
            await _stop(consumer)
        return value

    async def _connect(self) -> AIOKafkaConsumer:
        await ensure_topics(self._settings)
        consumer = self._consumer = _new_consumer(self._settings)
        await consumer.start()
        await self._assign(consumer)
        self._connected = True
        return consumer

    async def _assign(self, consumer: AIOKafkaConsumer) -> None:
        """Assign every partition at its kept position; new ones, and all of them on a replay, at the beginning."""
        partitions = await _partitions(consumer, self._topic_of)
        number = self._requested
        if number != self._number:
            self._ends = dict(await consumer.end_offsets(partitions))
            self._positions.clear()
            self._number, self._caught_up = number, False
        fresh = [tp for tp in partitions if tp not in self._positions]
        beginnings = dict(await consumer.beginning_offsets(fresh)) if fresh else {}
        self._positions = {tp: beginnings.get(tp) or self._positions.get(tp, 0) for tp in partitions}
        self._ends = {tp: end for tp, end in self._ends.items() if tp in self._positions}
        # Without a pause between the two: the client would complain of partitions without a position.
        consumer.assign(partitions)
        for tp, position in self._positions.items():
            consumer.seek(tp, position)
        self._last_look.clear()
        self._looked_at = self._clock.now()

    async def _batches(
        self, consumer: AIOKafkaConsumer
    ) -> AsyncGenerator[Sequence[BusRecord | CaughtUp], None]:
        while not self._closing.is_set():
            if self._requested != self._number or self._partitions_added(consumer):
                await self._assign(consumer)
            try:
                polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_RECORDS)
            except OffsetOutOfRangeError as failure:
                # The log was cut off or created anew below the position: what it holds now is read whole.
                _log.warning("kafka: %s; reading from the beginning", failure)
                self.replay()
                continue
            batch: list[BusRecord | CaughtUp] = list(self._taken(polled))
            if not self._caught_up and await self._at_captured_ends(consumer):
                self._caught_up = True
                batch.append(CaughtUp(self._number))
            if batch:
                yield batch
            if since(self._looked_at, self._clock.now()) >= LOOK_INTERVAL:
                await self._look(consumer)

    def _taken(self, polled: Mapping[TopicPartition, Iterable[ConsumerRecord]]) -> list[BusRecord]:
        taken = []
        for tp, records in polled.items():
            end = self._ends.get(tp, 0)
            for record in records:
                self._positions[tp] = record.offset + 1
                key = _text(record.key)
                if key is None:
                    self.skipped += 1
                    continue
                topic = self._topic_of[tp.topic]
                live = record.offset >= end
                taken.append(BusRecord(topic, key, record.value, tp.partition, record.offset, live))
        return taken

    async def _at_captured_ends(self, consumer: AIOKafkaConsumer) -> bool:
        """Whether each partition is read up to the end captured at assignment.

        The client's own position counts too: it moves over offsets that compaction has emptied.
        """
        for tp, end in self._ends.items():
            if self._positions[tp] < end:
                self._positions[tp] = await consumer.position(tp)
                if self._positions[tp] < end:
                    return False
        return True

    def _partitions_added(self, consumer: AIOKafkaConsumer) -> bool:
        known = sum(len(consumer.partitions_for_topic(name) or ()) for name in self._topic_of)
        return known > len(self._positions)

    async def _look(self, consumer: AIOKafkaConsumer) -> None:
        """Raise when the brokers do not answer, or when a partition stood still below an earlier end."""
        async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
            ends = await consumer.end_offsets(list(self._positions))
        for tp, (position, end) in self._last_look.items():
            if position < end and await consumer.position(tp) == position:
                raise TimeoutError(f"{tp} stood still at {position} below {end}")
        self._last_look = {tp: (await consumer.position(tp), end) for tp, end in ends.items()}
        self._looked_at = self._clock.now()

    async def _drop_consumer(self) -> None:
        # `close` waits here for a client that an abandoned `records` is stopping already.
        async with self._dropping:
            self._connected = False
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                await _stop(consumer)


async def _stop(consumer: AIOKafkaConsumer) -> None:
    """Stop a client whatever state its connections are in.

    With a fetch waiting out an error, aiokafka's `stop` raises `CancelledError` half way (its own, not
    that of the caller), so it runs as a task of its own and the connections are closed behind it.
    """
    try:
        async with asyncio.TaskGroup() as scope:
            scope.create_task(consumer.stop())
    finally:
        await consumer._client.close()  # noqa: SLF001


def _new_consumer(settings: KafkaSettings) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap,
        client_id=settings.client_id,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        metadata_max_age_ms=METADATA_MAX_AGE_MS,
    )


async def _partitions(consumer: AIOKafkaConsumer, names: Iterable[str]) -> list[TopicPartition]:
    """Return every partition of the topics, asking the brokers anew."""
    # A consumer that neither subscribes nor is assigned yet has no public way to learn of topics.
    await consumer._client.set_topics(names)  # noqa: SLF001
    found = [
        TopicPartition(name, index)
        for name in names
        for index in sorted(consumer.partitions_for_topic(name) or ())
    ]
    if {tp.topic for tp in found} != set(names):
        raise KafkaError(f"topics {sorted(set(names) - {tp.topic for tp in found})} have no partitions yet")
    return found


async def _one_pass(
    consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition]
) -> AsyncIterator[ConsumerRecord]:
    """Yield every record between the beginning and the present end of each partition."""
    ends = await consumer.end_offsets(partitions)
    beginnings = await consumer.beginning_offsets(partitions)
    consumer.assign(partitions)
    for tp, beginning in beginnings.items():
        consumer.seek(tp, beginning)
    while any([await consumer.position(tp) < end for tp, end in ends.items()]):
        for records in (await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_RECORDS)).values():
            for record in records:
                yield record


def _text(key: bytes | None) -> str | None:
    if key is None:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None
