"""What every `PrefixFeed` promises, in memory and on a real Redis."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from deploy.stack.redis import RedisServer
from services.adapters.memory.prefix_feed import MemoryPrefixFeed, MemoryPrefixHub
from services.adapters.ports import UnreachableError
from services.adapters.prefix_ports import PrefixFeed
from services.adapters.redis.prefix_feed import RedisPrefixFeed
from services.adapters.system.clock import SystemClock
from services.core.units import ms, seconds

HISTORY = 100


@dataclass(frozen=True, slots=True)
class Part:
    """A server, and how to open feeds of one cluster on it."""

    open: Callable[[], PrefixFeed]
    stop: Callable[[], object]
    start: Callable[[], object]


def _memory() -> tuple[Callable[[], PrefixFeed], MemoryPrefixHub]:
    hub = MemoryPrefixHub(SystemClock(), HISTORY)
    return lambda: MemoryPrefixFeed(hub), hub


def _closed_at_end(make: Callable[[], PrefixFeed], closing: AsyncExitStack) -> Callable[[], PrefixFeed]:
    def opened() -> PrefixFeed:
        feed = make()
        closing.push_async_callback(feed.close)
        return feed

    return opened


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.server)])
async def open_feed(
    request: pytest.FixtureRequest, fresh_name: str
) -> AsyncIterator[Callable[[], PrefixFeed]]:
    async with AsyncExitStack() as closing:
        if request.param == "memory":
            yield _closed_at_end(_memory()[0], closing)
        else:
            server: RedisServer = request.getfixturevalue("redis_server")
            yield _closed_at_end(
                lambda: RedisPrefixFeed(server.url, fresh_name, history_batches=HISTORY), closing
            )


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.server)])
async def own_part(request: pytest.FixtureRequest) -> AsyncIterator[Part]:
    async with AsyncExitStack() as closing:
        if request.param == "memory":
            make, hub = _memory()
            yield Part(
                _closed_at_end(make, closing),
                lambda: setattr(hub, "up", False),
                lambda: setattr(hub, "up", True),
            )
        else:
            redis: RedisServer = request.getfixturevalue("own_redis")
            yield Part(
                _closed_at_end(lambda: RedisPrefixFeed(redis.url, "eu-1"), closing), redis.stop, redis.start
            )


async def read_on(feed: PrefixFeed, after: str = "") -> tuple[str, list[bytes]]:
    """Read until nothing follows."""
    read: list[bytes] = []
    while True:
        after, batches = await feed.tail(after, ms(0))
        if not batches:
            return after, read
        read.extend(batches)


async def test_batches_come_to_all_in_order_from_the_oldest_kept(open_feed: Callable[[], PrefixFeed]) -> None:
    first, second = open_feed(), open_feed()
    assert await first.tail("", ms(0)) == ("", [])
    await first.announce([b"1", bytes(range(256))])
    await second.announce([b"3"])
    position = ""
    for feed in (first, second, open_feed()):
        position, batches = await feed.tail("", ms(0))
        assert list(batches) == [b"1", bytes(range(256)), b"3"]
        assert await feed.tail(position, ms(0)) == (position, [])
    await first.announce([b"4"])
    assert (await second.tail(position, ms(0)))[1] == [b"4"]


async def test_a_waiting_tail_is_woken(open_feed: Callable[[], PrefixFeed]) -> None:
    reader, writer = open_feed(), open_feed()
    async with asyncio.TaskGroup() as scope:
        waiting = scope.create_task(reader.tail("", seconds(30)))
        scope.create_task(writer.announce([b"x"]))
    if not waiting.result()[1]:
        assert (await reader.tail("", ms(0)))[1] == [b"x"]
    assert list((await reader.tail("", ms(0)))[1]) == [b"x"]


async def test_the_history_is_bounded_and_its_loss_passed_over(open_feed: Callable[[], PrefixFeed]) -> None:
    feed = open_feed()
    await feed.announce([b"first"])
    position, _ = await feed.tail("", ms(0))
    # A server may trim by whole nodes of its own, a hundred entries each.
    for start in range(0, 5 * HISTORY, HISTORY):
        await feed.announce([b"%d" % number for number in range(start, start + HISTORY)])
    _, kept = await read_on(feed, position)
    assert HISTORY <= len(kept) <= 3 * HISTORY
    assert kept[-1] == b"%d" % (5 * HISTORY - 1)
    assert b"first" not in kept


async def test_an_outage_is_said_and_passes(own_part: Part) -> None:
    feed = own_part.open()
    await feed.announce([b"before"])
    own_part.stop()
    with pytest.raises(UnreachableError):
        await feed.announce([b"during"])
    with pytest.raises(UnreachableError):
        await feed.tail("", ms(0))
    own_part.start()
    await feed.announce([b"after"])
    assert (await read_on(feed))[1][-1:] == [b"after"]
