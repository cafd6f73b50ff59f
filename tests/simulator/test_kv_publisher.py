"""KV events over real ZeroMQ sockets on loopback: frames, replay, what a lost message leaves behind."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import msgpack
import pytest
import zmq
import zmq.asyncio

from services.simulator.events import AllBlocksCleared, BlocksRemoved
from services.simulator.kv_events import END_OF_REPLAY, KvEventLog
from services.simulator.kv_publisher import KvPublisher
from tests.support.wait import eventually

ANY = "tcp://127.0.0.1:0"
TOPIC = "kv@127.0.0.1:8100@m"


def made(endpoint: str = ANY, replay: str = ANY) -> KvPublisher:
    return KvPublisher(KvEventLog(16, 0, as_maps=False, kept=4), TOPIC, endpoint, replay)


@pytest.fixture
async def publisher() -> AsyncIterator[KvPublisher]:
    started = made()
    yield started
    await started.close()


@contextmanager
def socket_to(kind: int, endpoint: str) -> Iterator[zmq.asyncio.Socket]:
    socket: zmq.asyncio.Socket = zmq.asyncio.Context.instance().socket(kind)
    socket.connect(endpoint)
    try:
        yield socket
    finally:
        socket.close(linger=0)


async def subscribed(publisher: KvPublisher, socket: zmq.asyncio.Socket) -> int:
    """Publish until the subscriber hears it; return the number it heard first."""
    socket.setsockopt(zmq.SUBSCRIBE, b"kv@")
    heard: list[list[bytes]] = []

    async def listen() -> None:
        while await socket.poll(20):
            heard.append(await socket.recv_multipart())

    for _ in range(500):
        publisher.publish([AllBlocksCleared()], 0.0)
        await listen()
        if heard:
            return int.from_bytes(heard[-1][1], "big")
    raise TimeoutError("no subscription in ten seconds")


async def test_a_message_is_topic_number_and_payload(publisher: KvPublisher) -> None:
    with socket_to(zmq.SUB, publisher.endpoint) as socket:
        first = await subscribed(publisher, socket)
        publisher.publish([BlocksRemoved((bytes(8),))], 7.0)
        topic, number, payload = await socket.recv_multipart()
    assert topic == TOPIC.encode()
    assert int.from_bytes(number, "big") == first + 1
    assert msgpack.unpackb(payload) == [7.0, [["BlockRemoved", [0], "GPU"]], 0]


async def test_what_is_lost_leaves_a_gap_and_can_be_replayed(publisher: KvPublisher) -> None:
    with socket_to(zmq.SUB, publisher.endpoint) as socket:
        last = await subscribed(publisher, socket)
        publisher.losing = True
        publisher.publish([AllBlocksCleared()], 1.0)
        publisher.losing = False
        publisher.publish([AllBlocksCleared()], 2.0)
        _, number, _ = await socket.recv_multipart()
    assert int.from_bytes(number, "big") == last + 2
    with socket_to(zmq.DEALER, publisher.replay_endpoint) as dealer:
        await dealer.send_multipart((b"", (last + 1).to_bytes(8, "big")))
        answers = [await dealer.recv_multipart() for _ in range(3)]
    assert [(frames[0], int.from_bytes(frames[1], "big")) for frames in answers[:2]] == [
        (b"", last + 1),
        (b"", last + 2),
    ]
    assert [msgpack.unpackb(frames[2])[0] for frames in answers[:2]] == [1.0, 2.0]
    assert answers[2] == [b"", END_OF_REPLAY, b""]


async def test_a_request_that_is_none_is_passed_over(publisher: KvPublisher) -> None:
    publisher.publish([AllBlocksCleared()], 1.0)
    with socket_to(zmq.DEALER, publisher.replay_endpoint) as dealer:
        await dealer.send_multipart((b"", b"short"))
        await dealer.send_multipart((bytes(8),))
        await dealer.send_multipart((b"", bytes(8)))
        frames = await dealer.recv_multipart()
    assert int.from_bytes(frames[1], "big") == 0


async def test_an_address_in_use_is_an_error_and_leaves_nothing_open(publisher: KvPublisher) -> None:
    for endpoint, replay in ((publisher.endpoint, ""), (ANY, publisher.replay_endpoint)):
        with pytest.raises(OSError, match="Address already in use"):
            made(endpoint, replay)


async def test_without_a_replay_address_there_is_none() -> None:
    alone = made(replay="")
    assert alone.replay_endpoint == ""
    await alone.close()


async def test_an_aborted_publisher_frees_its_addresses_at_once() -> None:
    gone = made()
    endpoint, replay = gone.endpoint, gone.replay_endpoint
    gone.abort()
    successors: list[KvPublisher] = []

    def comes_back() -> bool:
        # ZeroMQ closes a listener in its own thread, a moment after the call.
        try:
            successors.append(made(endpoint, replay))
        except OSError:
            return False
        return True

    await eventually(comes_back, what="the addresses to be free")
    await gone.close()
    for successor in successors:
        await successor.close()
