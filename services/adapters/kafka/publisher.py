"""The producer side of the bus on Kafka: newest value per key, one send in flight, a real deadline.

aiokafka's idempotent producer retries a batch for ever and never expires it. Here a send
that is not acknowledged in time condemns its producer: a new one starts from the bootstrap
list, and what is still of use is sent again. Readers order by (epoch, sequence), so a
record that arrives twice or late is harmless. What records mean is not known here.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)

from services.adapters.kafka.settings import (
    BACKOFF_FIRST_MS,
    CONNECT_TIMEOUT_S,
    METADATA_MAX_AGE_MS,
    REQUEST_TIMEOUT_MS,
    KafkaSettings,
    next_backoff_ms,
)
from services.adapters.kafka.topics import ensure_topics
from services.adapters.ports import TOPICS, Clock, RefusedError, Topic, UnreachableError
from services.core.units import NS_PER_S, Duration, Instant, in_ms, ms, seconds, since

DELIVERY_TIMEOUT = seconds(5)
"""An unacknowledged send older than this condemns the producer: longer than a leader election."""

LOOK_INTERVAL_S = 1.0
"""How often sends in flight are looked at when nothing else wakes the pump."""

CLOSE_FLUSH_S = 2.0
"""How long `close` lets sends in flight finish."""

LINGER_MS = 5

_REFUSALS = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidTopicError)

_log = logging.getLogger(__name__)

_Key = tuple[Topic, str]


WAITING_MAX = 10_000
"""Keys that wait for a bus that is away. A fleet has fewer; dead letters, each with a key of its own, may not
fill the memory. Beyond it the oldest is dropped and counted as expired."""


@dataclass(slots=True)
class _Offer:
    value: bytes | None
    offered_at: Instant


@dataclass(slots=True, eq=False)
class _Connection:
    """One producer and what it has in flight; condemned once it fails or is too slow."""

    producer: AIOKafkaProducer
    sent_at: dict["asyncio.Future[object]", Instant] = field(default_factory=dict)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    delivered: bool = False

    def answered(self, done: "asyncio.Future[object]") -> None:
        """Take note of an answer; one whose caller has given up waiting is read here, so that it is not reported lost."""
        del self.sent_at[done]
        if not done.cancelled():
            self.delivered |= done.exception() is None


class KafkaBusPublisher:
    """`BusPublisher` on Kafka: acks from all in-sync replicas, idempotent, 5 ms of linger."""

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._waiting: dict[_Key, _Offer] = {}
        self._in_flight: dict[_Key, _Offer] = {}
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._settled = asyncio.Event()
        self._connection: _Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self.coalesced = 0
        self.expired = 0
        self.refused = 0
        self.reconnects = 0

    @property
    def connected(self) -> bool:
        """Whether a producer is connected and not condemned."""
        return self._connection is not None and not self._connection.lost.is_set()

    async def start(self) -> None:
        """Begin to connect in the background."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="kafka-publisher")

    async def close(self) -> None:
        """Let sends finish for a moment, then drop the rest and disconnect."""
        if self._task is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_FLUSH_S):
                while self.connected and (self._waiting or self._in_flight):
                    self._settled.clear()
                    await self._settled.wait()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    def offer(self, topic: Topic, key: str, value: bytes | None) -> None:
        """Send soon; a value of the same key that still waits is replaced and counted."""
        waiting = self._waiting
        if (topic, key) in waiting:
            self.coalesced += 1
        elif len(waiting) >= WAITING_MAX:
            del waiting[next(iter(waiting))]
            self.expired += 1
        waiting[topic, key] = _Offer(value, self._clock.now())
        self._wake.set()

    async def publish(self, topic: Topic, key: str, value: bytes | None, timeout: Duration) -> None:
        """Send and wait for the acknowledgement, over as many producers as it takes."""
        what = f"publish to {self._settings.name_of(topic)} on kafka {self._settings.bootstrap}"
        try:
            async with asyncio.timeout(timeout / NS_PER_S):
                while not await self._published(topic, key, value, what):
                    pass
        except TimeoutError:
            raise UnreachableError(f"{what}: not acknowledged within {in_ms(timeout):.0f} ms") from None

    async def _published(self, topic: Topic, key: str, value: bytes | None, what: str) -> bool:
        await self._ready.wait()
        connection = self._connection
        if connection is None:
            return False
        try:
            future = await self._send(connection, topic, key, value)
            async with asyncio.TaskGroup() as scope:
                lost = scope.create_task(connection.lost.wait())
                await asyncio.wait((future, lost), return_when=asyncio.FIRST_COMPLETED)
                lost.cancel()
            # An abandoned producer never answers; its record may be on the bus all the same.
            if not future.done():
                return False
            future.result()
        except _REFUSALS as refusal:
            raise RefusedError(f"{what}: {refusal}") from refusal
        except KafkaError as failure:
            self._condemn(connection, failure)
            return False
        return True

    async def _run(self) -> None:
        """Connect, pump until the producer is condemned, pause, start over; for ever."""
        backoff_ms = BACKOFF_FIRST_MS
        while True:
            try:
                producer = await self._connect()
                if producer is not None and await self._serve(producer):
                    backoff_ms = BACKOFF_FIRST_MS
            except Exception:  # noqa: BLE001 -- whatever the client library raises, a publisher never falls silent for good
                _log.exception("kafka %s: publisher starts over", self._settings.bootstrap)
            await self._clock.sleep(ms(backoff_ms))
            backoff_ms = next_backoff_ms(backoff_ms)

    async def _serve(self, producer: AIOKafkaProducer) -> bool:
        """Pump until the producer is condemned; return whether it delivered anything."""
        connection = self._connection = _Connection(producer)
        self._ready.set()
        try:
            while not connection.lost.is_set():
                await self._pump(connection)
        finally:
            self._ready.clear()
            self._connection = None
            self.reconnects += 1
            await _abandon(producer)
            self._take_back()
        return connection.delivered

    async def _connect(self) -> AIOKafkaProducer | None:
        settings = self._settings
        producer = AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap,
            client_id=settings.client_id,
            acks="all",
            enable_idempotence=True,
            linger_ms=LINGER_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
        )
        started = False
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await ensure_topics(settings)
                await producer.start()
            started = True
        except (KafkaError, OSError, TimeoutError) as failure:
            _log.warning("kafka %s: publisher cannot connect: %r", settings.bootstrap, failure)
            return None
        finally:
            if not started:
                await _abandon(producer)
        return producer

    async def _pump(self, connection: _Connection) -> None:
        """Send what may be sent, then wait for an offer or an acknowledgement; condemn a slow producer."""
        self._wake.clear()
        for key in [key for key in self._waiting if key not in self._in_flight]:
            await self._send_offer(connection, key)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_INTERVAL_S):
                await self._wake.wait()
        oldest = min(connection.sent_at.values(), default=None)
        if oldest is not None and since(oldest, self._clock.now()) > DELIVERY_TIMEOUT:
            self._condemn(connection, KafkaTimeoutError("a send was not acknowledged in time"))

    async def _send_offer(self, connection: _Connection, key: _Key) -> None:
        offer = self._waiting.pop(key)
        life = TOPICS[key[0]].useful_life
        if life is not None and since(offer.offered_at, self._clock.now()) > life:
            self.expired += 1
            self._settled.set()
            return
        self._in_flight[key] = offer
        try:
            future = await self._send(connection, *key, offer.value)
        except _REFUSALS as refusal:
            self._refuse(key, offer, refusal)
        except KafkaError as failure:
            self._condemn(connection, failure)
        else:
            future.add_done_callback(lambda done: self._acknowledged(connection, key, offer, done))

    async def _send(
        self, connection: _Connection, topic: Topic, key: str, value: bytes | None
    ) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = await connection.producer.send(
            self._settings.name_of(topic), value, key=key.encode()
        )
        connection.sent_at[future] = self._clock.now()
        future.add_done_callback(connection.answered)
        return future

    def _acknowledged(
        self, connection: _Connection, key: _Key, offer: _Offer, done: "asyncio.Future[object]"
    ) -> None:
        failure = done.exception()
        if failure is None:
            self._settle(key, offer)
        elif isinstance(failure, _REFUSALS):
            self._refuse(key, offer, failure)
        else:
            self._condemn(connection, failure)

    def _refuse(self, key: _Key, offer: _Offer, refusal: BaseException) -> None:
        self.refused += 1
        _log.error("kafka: record %s of %s refused: %s", key[1], key[0].value, refusal)
        self._settle(key, offer)

    def _settle(self, key: _Key, offer: _Offer) -> None:
        # An answer of a condemned producer may come when the key is in flight again on the next one.
        if self._in_flight.get(key) is offer:
            del self._in_flight[key]
        self._settled.set()
        self._wake.set()

    def _condemn(self, connection: _Connection, failure: BaseException) -> None:
        if not connection.lost.is_set():
            connection.lost.set()
            _log.warning("kafka %s: producer given up: %r", self._settings.bootstrap, failure)
        if connection is self._connection:
            self._ready.clear()
        self._settled.set()
        self._wake.set()

    def _take_back(self) -> None:
        """Let unacknowledged offers wait again, unless something newer already waits."""
        in_flight, self._in_flight = self._in_flight, {}
        for key, offer in in_flight.items():
            if key in self._waiting:
                self.coalesced += 1
            else:
                self._waiting[key] = offer


async def _abandon(producer: AIOKafkaProducer) -> None:
    """Stop a producer without waiting for deliveries that may never come.

    aiokafka's `stop` flushes for as long as it takes and has no public way to give up, so its sender is
    ended first (which waits for the requests under way, each bounded) and what it still held is dropped.
    """
    sender_task = producer._sender.sender_task  # noqa: SLF001
    if sender_task is not None:
        sender_task.cancel()
        await asyncio.wait([sender_task])
    producer._message_accumulator._batches.clear()  # noqa: SLF001
    producer._message_accumulator._pending_batches.clear()  # noqa: SLF001
    await producer.stop()
