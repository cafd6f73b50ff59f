"""What only real sockets can show: bad frames, silence, a publisher that goes and comes back."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any

import pytest
import zmq

from services.adapters.ports import UnreachableError
from services.adapters.zmq.kv_events import ZmqKvEvents
from services.core.units import ms
from services.wire.kv_events import KvMessage
from tests.support.wait import eventually

Plain = zmq.Socket[bytes]


def bound(kind: int, endpoint: str = "tcp://127.0.0.1:*") -> tuple[Plain, str]:
    context: zmq.Context[Plain] = zmq.Context.instance()
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError:
        socket.close()
        raise
    return socket, socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0")


@pytest.fixture
async def publisher() -> AsyncIterator[tuple[Plain, str]]:
    socket, endpoint = bound(zmq.PUB)
    yield socket, endpoint
    socket.close()


def send(socket: Plain, number: int, *more: bytes) -> bool:
    socket.send_multipart((b"kv@a@m", number.to_bytes(8, "big"), b"payload", *more))
    return True


async def follow(source: ZmqKvEvents, into: list[KvMessage]) -> None:
    async with aclosing(source.messages()) as batches:
        async for messages in batches:
            into.extend(messages)


async def test_messages_of_no_engine_are_counted_and_the_rest_go_on(publisher: tuple[Plain, str]) -> None:
    socket, endpoint = publisher
    source = ZmqKvEvents(endpoint)
    read: list[KvMessage] = []
    async with asyncio.TaskGroup() as scope:
        task = scope.create_task(follow(source, read))
        await eventually(lambda: send(socket, 0) and read)
        socket.send_multipart((b"only one",))
        send(socket, 1, b"a fourth frame")
        socket.send_multipart((b"", b"\0", b"short number"))
        send(socket, 2)
        await eventually(lambda: read[-1].number == 2)
        task.cancel()
    assert source.malformed == 3
    assert {message.number for message in read} == {0, 2}


async def test_a_publisher_that_comes_back_at_its_address_is_heard_again() -> None:
    socket, endpoint = bound(zmq.PUB)
    source = ZmqKvEvents(endpoint)
    read: list[KvMessage] = []
    async with asyncio.TaskGroup() as scope:
        task = scope.create_task(follow(source, read))
        await eventually(lambda: send(socket, 0) and read)
        socket.close()
        reborn: list[Plain] = []

        def rebind() -> bool:
            try:
                reborn.append(bound(zmq.PUB, endpoint)[0])
            except zmq.ZMQError:
                return False
            return True

        await eventually(rebind)
        await eventually(lambda: send(reborn[0], 7) and read[-1].number == 7, 20)
        task.cancel()
    reborn[0].close()


async def test_a_replay_that_never_answers_ends_in_time() -> None:
    silent, endpoint = bound(zmq.ROUTER)
    source = ZmqKvEvents("tcp://127.0.0.1:1", endpoint, replay_idle=ms(30))
    with pytest.raises(UnreachableError, match="stopped"):
        async for _ in source.replay(0):
            pass
    assert silent.recv_multipart()[1:] == [b"", bytes(8)]
    silent.close()


async def test_a_replay_that_goes_on_for_ever_ends_in_time_too() -> None:
    socket, endpoint = bound(zmq.ROUTER)
    source = ZmqKvEvents("tcp://127.0.0.1:1", endpoint, replay_total=ms(200))
    answers: list[int] = []

    async def collect() -> None:
        async for number, _ in source.replay(0):
            answers.append(number)

    async with asyncio.TaskGroup() as scope:
        collecting = scope.create_task(_raised(collect()))
        await eventually(lambda: socket.poll(0))
        client = socket.recv_multipart()[0]

        def trickle() -> bool:
            socket.send_multipart((client, b"", bytes(8), b"x"))
            return collecting.done()

        await eventually(trickle)
    assert collecting.result() is UnreachableError
    assert len(answers) > 1
    socket.close()


async def test_an_answer_of_no_engine_ends_the_replay() -> None:
    socket, endpoint = bound(zmq.ROUTER)
    source = ZmqKvEvents("tcp://127.0.0.1:1", endpoint)

    async def collect() -> list[tuple[int, bytes]]:
        return [answer async for answer in source.replay(3)]

    async with asyncio.TaskGroup() as scope:
        collecting = scope.create_task(_raised(collect()))
        await eventually(lambda: socket.poll(0))
        client, _, start = socket.recv_multipart()
        assert int.from_bytes(start, "big") == 3
        socket.send_multipart((client, b"", b"\0", b"x"))
    assert collecting.result() is UnreachableError
    assert source.malformed == 1
    socket.close()


async def test_an_address_that_is_none_says_unreachable() -> None:
    with pytest.raises(UnreachableError):
        async for _ in ZmqKvEvents("nonsense").messages():
            pass


async def _raised(work: Coroutine[Any, Any, object]) -> type[BaseException] | None:
    try:
        await work
    except UnreachableError as error:
        return type(error)
    return None
