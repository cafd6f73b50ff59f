"""The parts each contract suite runs on: memory always, the real system where the machine has it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from deploy.stack.redis import RedisServer
from services.adapters.memory.store import MemoryFleetStore, MemoryStoreServer
from services.adapters.ports import FleetStore
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
