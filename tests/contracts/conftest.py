"""The parts each contract suite runs on: memory always, the real system where the machine has it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from deploy.stack.kafka import KafkaServer
from deploy.stack.redis import RedisServer
from services.adapters.kafka.publisher import KafkaBusPublisher
from services.adapters.kafka.reader import KafkaBusReader
from services.adapters.kafka.settings import KafkaSettings
from services.adapters.memory.bus import MemoryBus
from services.adapters.memory.store import MemoryFleetStore, MemoryStoreServer
from services.adapters.ports import BusPublisher, BusReader, FleetStore, Topic
from services.adapters.redis.store import RedisFleetStore
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds


@dataclass(frozen=True, slots=True)
class StorePart:
    """One server, and how to open stores on it; `flush` and `restart` only where the test owns it."""

    open: Callable[[], FleetStore]
    flush: Callable[[], object]
    stop: Callable[[], object]
    start: Callable[[], object]
    restart_empty: Callable[[], object]
    stream_max_changes: int


STREAM_MAX_CHANGES = 16


def _memory() -> Callable[[], FleetStore]:
    server = MemoryStoreServer(SystemClock(), STREAM_MAX_CHANGES)
    return lambda: MemoryFleetStore(server)


def _redis(server: RedisServer, fleet: str) -> Callable[[], FleetStore]:
    return lambda: RedisFleetStore(
        server.url, fleet, "eu-west", SystemIds(), stream_max_changes=STREAM_MAX_CHANGES
    )


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.server)])
async def open_store(
    request: pytest.FixtureRequest, fresh_name: str
) -> AsyncIterator[Callable[[], FleetStore]]:
    """Opens stores on one empty server that nobody disturbs."""
    make = (
        _memory()
        if request.param == "memory"
        else _redis(request.getfixturevalue("redis_server"), fresh_name)
    )
    async with AsyncExitStack() as closing:
        yield _closed_at_end(make, closing)


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.server)])
async def own_store(request: pytest.FixtureRequest) -> AsyncIterator[StorePart]:
    """A store server that the test may stop, flush and restart."""
    async with AsyncExitStack() as closing:
        if request.param == "memory":
            memory = MemoryStoreServer(SystemClock(), STREAM_MAX_CHANGES)
            yield StorePart(
                _closed_at_end(lambda: MemoryFleetStore(memory), closing),
                memory.flush,
                memory.stop,
                memory.start,
                lambda: memory.restart(empty=True),
                STREAM_MAX_CHANGES,
            )
        else:
            redis: RedisServer = request.getfixturevalue("own_redis")
            yield StorePart(
                _closed_at_end(_redis(redis, "fleet"), closing),
                redis.flush,
                redis.stop,
                redis.start,
                redis.restart,
                STREAM_MAX_CHANGES,
            )


def _closed_at_end(make: Callable[[], FleetStore], closing: AsyncExitStack) -> Callable[[], FleetStore]:
    def opened() -> FleetStore:
        store = make()
        close: Callable[[], Awaitable[None]] = store.close
        closing.push_async_callback(close)
        return store

    return opened


@dataclass(frozen=True, slots=True)
class BusPart:
    """One bus, and how to open publishers and readers on it."""

    publisher: Callable[[], BusPublisher]
    reader: Callable[[Collection[Topic]], BusReader]
    stop: Callable[[], Awaitable[None]]
    start: Callable[[], Awaitable[None]]
    closing: AsyncExitStack

    async def open_publisher(self) -> BusPublisher:
        """Return a started publisher that is closed with the test."""
        publisher = self.publisher()
        await publisher.start()
        self.closing.push_async_callback(publisher.close)
        return publisher

    async def open_reader(self, *topics: Topic) -> BusReader:
        """Return a started reader that is closed with the test."""
        reader = self.reader(topics)
        await reader.start()
        self.closing.push_async_callback(reader.close)
        return reader


def _memory_bus(closing: AsyncExitStack) -> BusPart:
    bus = MemoryBus(SystemClock())

    async def stop() -> None:
        bus.stop()

    async def start() -> None:
        bus.start()

    return BusPart(bus.publisher, bus.reader, stop, start, closing)


def _kafka_bus(server: KafkaServer, prefix: str, closing: AsyncExitStack) -> BusPart:
    settings = KafkaSettings(server.bootstrap, topic_prefix=prefix)
    return BusPart(
        lambda: KafkaBusPublisher(settings, SystemClock()),
        lambda topics: KafkaBusReader(settings, topics, SystemClock()),
        # In a thread: starting a broker takes seconds, in which the clients under test go on.
        lambda: asyncio.to_thread(server.stop),
        lambda: asyncio.to_thread(server.start),
        closing,
    )


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.server)])
async def bus(request: pytest.FixtureRequest, fresh_name: str) -> AsyncIterator[BusPart]:
    """An empty bus that nobody disturbs; not to be stopped."""
    async with AsyncExitStack() as closing:
        if request.param == "memory":
            yield _memory_bus(closing)
        else:
            yield _kafka_bus(request.getfixturevalue("kafka_server"), f"{fresh_name}.", closing)


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.server)])
async def own_bus(request: pytest.FixtureRequest) -> AsyncIterator[BusPart]:
    """A bus that the test may stop and start."""
    async with AsyncExitStack() as closing:
        if request.param == "memory":
            yield _memory_bus(closing)
        else:
            yield _kafka_bus(request.getfixturevalue("own_kafka"), "", closing)
