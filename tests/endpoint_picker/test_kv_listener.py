import asyncio
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgpack

from services.adapters.memory.clock import VirtualClock
from services.adapters.memory.kv_events import MemoryKvEvents, MemoryKvPublisher
from services.adapters.metric_names.catalogue import METRICS
from services.adapters.ports import UnreachableError
from services.adapters.prefix_ports import KvEventSource
from services.adapters.system.clock import SystemClock
from services.core.prefix.blocks import complete
from services.core.prefix.events import EventSource
from services.endpoint_picker.kv_listener import PAUSE, KvListener
from services.endpoint_picker.prefix import PrefixIndexes
from services.wire.kv_events import KvMessage
from tests.support.wait import eventually

A = EventSource("a", "llama")


def stored(block: int, parent: int | None = None) -> bytes:
    """One block of two tokens, named by its first token."""
    payload: bytes = msgpack.packb(
        [1.0, [["BlockStored", [block + 1], parent, [block, block], 2, None, "GPU"]]]
    )
    return payload


class World:
    """One publisher, heard by one listener."""

    def __init__(self) -> None:
        self.publisher = MemoryKvPublisher()
        precise = PrefixIndexes(b"s" * 32, precise=True).precise
        assert precise is not None
        self.index = precise
        self.listener = KvListener(precise, SystemClock())

    def holds(self, *blocks: int) -> float:
        ids = b"".join(struct.pack("<2I", block, block) for block in blocks)
        return complete(self.index.match(ids, "llama", "")).get("a", (0.0, 0))[0]

    def lose(self, payload: bytes) -> None:
        self.publisher.losing = True
        self.publisher.publish(payload)
        self.publisher.losing = False

    def results(self) -> dict[tuple[str, str], object]:
        values = list(self.listener.values())
        assert {value.name for value in values} <= set(METRICS)
        return {(value.name.removeprefix("gir_picker_kv_"), value.labels[0]): value.value for value in values}


@asynccontextmanager
async def listening(world: World) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as scope:
        task = scope.create_task(world.listener.listen(A, MemoryKvEvents(world.publisher)))
        await eventually(lambda: world.publisher.queues)
        yield
        task.cancel()


async def test_events_reach_the_index_and_leave_with_the_listener() -> None:
    world = World()
    async with listening(world):
        world.publisher.publish(stored(1))
        world.publisher.publish(stored(5, 2))
        await eventually(lambda: world.holds(1, 5) == 2)
    assert world.index.entries == 0
    assert world.results()["event_batches_total", "applied"] == 2


async def test_a_gap_is_filled_from_the_publisher() -> None:
    world = World()
    async with listening(world):
        world.publisher.publish(stored(1))
        await eventually(lambda: world.holds(1) == 1)
        world.lose(stored(5, 2))
        world.publisher.publish(stored(7, 6))
        await eventually(lambda: world.holds(1, 5, 7) == 3)
    assert world.results()["replays_total", "complete"] == 1
    assert world.results()["event_batches_total", "lost"] == 0


async def test_what_was_cached_before_the_picker_came_is_learnt_with_the_first_event() -> None:
    world = World()
    world.publisher.publish(stored(1))
    async with listening(world):
        world.publisher.publish(stored(5, 2))
        await eventually(lambda: world.holds(1, 5) == 2)


async def test_without_replay_the_gap_is_accepted_and_counted() -> None:
    world = World()
    world.publisher.replays = False
    async with listening(world):
        world.publisher.publish(stored(1))
        world.lose(stored(5, 2))
        world.publisher.publish(stored(7))
        await eventually(lambda: world.holds(7) == 1)
        assert world.holds(1) == 1
        assert world.results()["event_batches_total", "lost"] == 1
    assert world.results()["replays_total", "failed"] == 1


async def test_a_publisher_that_begins_anew_is_learnt_anew() -> None:
    world = World()
    async with listening(world):
        for number in range(3):
            world.publisher.publish(stored(number * 10))
        await eventually(lambda: world.holds(20) == 1)
        reborn = MemoryKvPublisher()
        reborn.queues = world.publisher.queues
        reborn.publish(stored(50))
        await eventually(lambda: world.holds(50) == 1)
        assert (world.holds(0), world.holds(20), world.index.entries) == (0, 0, 1)


async def test_batches_of_no_engine_are_counted_and_the_next_are_heard() -> None:
    world = World()
    async with listening(world):
        world.publisher.publish(b"\xc1")
        world.publisher.publish(stored(1))
        await eventually(lambda: world.holds(1) == 1)
        assert world.results()["event_batches_total", "malformed"] == 1


class _Unreachable:
    """A source that cannot be subscribed to, for the first time at least."""

    malformed = 0

    def __init__(self, then: KvEventSource) -> None:
        self.then = then
        self.asked = 0

    async def messages(self) -> AsyncGenerator[Sequence[KvMessage], None]:
        self.asked += 1
        if self.asked == 1:
            raise UnreachableError("no such host")
        async for messages in self.then.messages():
            yield messages

    def replay(self, start: int) -> AsyncGenerator[tuple[int, bytes], None]:
        return self.then.replay(start)

    async def close(self) -> None:
        await self.then.close()


async def test_an_address_that_cannot_be_subscribed_to_is_tried_again() -> None:
    world = World()
    clock = VirtualClock()
    listener = KvListener(world.index, clock)
    source = _Unreachable(MemoryKvEvents(world.publisher))
    async with asyncio.TaskGroup() as scope:
        task = scope.create_task(listener.listen(A, source))
        await eventually(lambda: listener.batches["unreachable"])
        assert source.asked == 1
        await clock.advance(PAUSE)
        await eventually(lambda: world.publisher.queues)
        world.publisher.publish(stored(1))
        await eventually(lambda: world.holds(1) == 1)
        task.cancel()
