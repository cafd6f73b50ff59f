"""What every `KvEventSource` promises, in memory and on real ZeroMQ sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

import pytest

from services.adapters.memory.kv_events import MemoryKvEvents, MemoryKvPublisher
from services.adapters.ports import UnreachableError
from services.adapters.prefix_ports import KvEventSource
from services.adapters.zmq.kv_events import ZmqKvEvents
from services.core.prefix.events import AllBlocksCleared, EventBatch
from services.simulator.events import AllBlocksCleared as SimulatedClear
from services.simulator.kv_events import KvEventLog
from services.simulator.kv_publisher import KvPublisher
from services.wire.kv_events import KvMessage, read_batch
from tests.support.wait import eventually

TOPIC = "kv@10.0.0.1:8000@llama"
KEPT = 5


@dataclass(frozen=True, slots=True)
class Part:
    """A publisher: `publish` sends one batch, `lose` numbers one and sends it to nobody."""

    source: KvEventSource
    no_replay: KvEventSource
    publish: Callable[[], None]
    lose: Callable[[], None]


def _memory() -> Part:
    publisher = MemoryKvPublisher(TOPIC, kept=KEPT)
    silent = MemoryKvPublisher(TOPIC)
    silent.replays = False
    _, payload = KvEventLog(16, 0, as_maps=False, kept=1).append([SimulatedClear()], 1.0)

    def lose() -> None:
        publisher.losing = True
        publisher.publish(payload)
        publisher.losing = False

    return Part(MemoryKvEvents(publisher), MemoryKvEvents(silent), lambda: publisher.publish(payload), lose)


def _zmq(closing: AsyncExitStack) -> Part:
    log = KvEventLog(16, 0, as_maps=True, kept=KEPT)
    publisher = KvPublisher(log, TOPIC, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
    closing.push_async_callback(publisher.close)

    def lose() -> None:
        publisher.losing = True
        publisher.publish([SimulatedClear()], 1.0)
        publisher.losing = False

    return Part(
        ZmqKvEvents(publisher.endpoint, publisher.replay_endpoint),
        ZmqKvEvents(publisher.endpoint),
        lambda: publisher.publish([SimulatedClear()], 1.0),
        lose,
    )


@pytest.fixture(params=["memory", "zmq"])
async def part(request: pytest.FixtureRequest) -> AsyncIterator[Part]:
    async with AsyncExitStack() as closing:
        yield _memory() if request.param == "memory" else _zmq(closing)


class Listening:
    """Reads messages into `read` until the scope cancels it."""

    def __init__(self, part: Part, scope: asyncio.TaskGroup) -> None:
        self.part = part
        self.read: list[KvMessage] = []
        self.task = scope.create_task(self._follow())

    async def _follow(self) -> None:
        async with aclosing(self.part.source.messages()) as batches:
            async for messages in batches:
                self.read.extend(messages)

    async def connected(self) -> None:
        """A subscription takes a moment; publish until something of it arrives."""

        def heard() -> bool:
            self.part.publish()
            return bool(self.read)

        await eventually(heard)

    def holes(self) -> set[int]:
        numbers = self.numbers()
        return set(range(numbers[0], numbers[-1])) - set(numbers)

    def numbers(self) -> list[int]:
        return [message.number for message in self.read]


async def replayed(source: KvEventSource, start: int) -> list[tuple[int, bytes]]:
    return [answer async for answer in source.replay(start)]


async def test_what_is_published_arrives_in_order_with_topic_and_number(part: Part) -> None:
    async with asyncio.TaskGroup() as scope:
        listening = Listening(part, scope)
        await listening.connected()
        last = listening.numbers()[-1]
        for _ in range(200):
            part.publish()
        await eventually(lambda: listening.numbers()[-1] >= last + 200)
        listening.task.cancel()
    numbers = listening.numbers()
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert {message.topic for message in listening.read} == {TOPIC}
    assert read_batch(listening.read[0].payload) == EventBatch((AllBlocksCleared(),))
    assert part.source.malformed == 0


async def test_what_was_lost_is_had_again_from_its_number(part: Part) -> None:
    async with asyncio.TaskGroup() as scope:
        listening = Listening(part, scope)
        await listening.connected()
        part.publish()
        part.lose()
        part.publish()
        await eventually(listening.holes)
        listening.task.cancel()
    newest = listening.numbers()[-1]
    assert newest - 1 not in listening.numbers()
    assert [number for number, _ in await replayed(part.source, newest - 1)] == [newest - 1, newest]


async def test_a_replay_begins_with_the_oldest_kept_and_may_be_empty(part: Part) -> None:
    for _ in range(KEPT + 3):
        part.publish()
    answers = await replayed(part.source, 0)
    assert [number for number, _ in answers] == list(range(3, KEPT + 3))
    assert {read_batch(payload) for _, payload in answers} == {EventBatch((AllBlocksCleared(),))}
    assert await replayed(part.source, KEPT + 3) == []


async def test_a_publisher_without_replay_says_so(part: Part) -> None:
    with pytest.raises(UnreachableError):
        await replayed(part.no_replay, 0)


async def test_closing_ends_nothing_that_others_use(part: Part) -> None:
    sources: Sequence[KvEventSource] = (part.source, part.no_replay)
    for source in sources:
        await source.close()
    part.publish()
    assert len(await replayed(part.source, 0)) == 1
