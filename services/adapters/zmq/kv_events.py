"""KV events over ZeroMQ: a subscription per publisher, and a replay of what it missed.

Sockets and their limits only; frames are read by `wire/kv_events` and sequence numbers judged by core. Plain
sockets on the loop's readiness instead of `zmq.asyncio`, which makes two futures for every message.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Self

import zmq

from services.adapters.ports import UnreachableError
from services.core.units import NS_PER_S, Duration, seconds
from services.wire.kv_events import (
    MAX_PAYLOAD_BYTES,
    KvEventError,
    KvMessage,
    read_message,
    read_replay,
    replay_request,
)

HIGH_WATER_MARK = 10_000
"""Messages that wait for this process; beyond it the newest are lost and fetched again by replay."""
MESSAGES_AT_ONCE = 64
"""Messages of one publisher read without letting others run."""
RECONNECT_MS = 100
RECONNECT_MAX_MS = 5_000
"""Pause before the first and before later attempts to connect again (the field's 5 s)."""
HEARTBEAT_MS = 5_000
"""A publisher that does not answer a ping for as long is connected to anew: a host that died says nothing."""
REPLAY_IDLE = seconds(2)
REPLAY_TOTAL = seconds(120)
"""The field's limits of one replay."""


class _Wakeable:
    """A socket and the event that says it may be readable."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", kind: int, endpoint: str) -> None:
        self.socket = context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MAX_PAYLOAD_BYTES)
        self.socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        self.socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self.socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_MS)
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            if kind == zmq.SUB:
                self.socket.setsockopt(zmq.SUBSCRIBE, b"")
            self.socket.connect(endpoint)
            self._fd = self.socket.fileno()
        except zmq.ZMQError as error:
            self.socket.close()
            raise UnreachableError(f"zmq {endpoint}: {error.strerror}") from None
        self._loop.add_reader(self._fd, self._ready.set)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.remove_reader(self._fd)
        self.socket.close()

    def receive(self) -> list[bytes] | None:
        """Return the frames of one message, None when there is none."""
        try:
            return self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None

    async def next(self) -> list[bytes]:
        """Return the frames of the next message. One that is there already does not wait."""
        while True:
            # The descriptor tells of changes only, so that a look comes after the event was cleared.
            self._ready.clear()
            frames = self.receive()
            if frames is not None:
                return frames
            await self._ready.wait()


class ZmqKvEvents:
    """`KvEventSource` on `tcp://host:port` of a publisher and of its replay socket (empty: it has none)."""

    def __init__(
        self,
        endpoint: str,
        replay_endpoint: str = "",
        *,
        replay_idle: Duration = REPLAY_IDLE,
        replay_total: Duration = REPLAY_TOTAL,
    ) -> None:
        self._endpoint = endpoint
        self._replay_endpoint = replay_endpoint
        self._idle_s = replay_idle / NS_PER_S
        self._total_s = replay_total / NS_PER_S
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self.malformed = 0

    async def messages(self) -> AsyncGenerator[Sequence[KvMessage], None]:
        """Yield what is published, in order, at most `MESSAGES_AT_ONCE` at once."""
        with _Wakeable(self._context, zmq.SUB, self._endpoint) as subscription:
            while True:
                frames: list[bytes] | None = await subscription.next()
                messages: list[KvMessage] = []
                while frames is not None:
                    try:
                        messages.append(read_message(frames))
                    except KvEventError:
                        self.malformed += 1
                    frames = subscription.receive() if len(messages) < MESSAGES_AT_ONCE else None
                if messages:
                    yield messages

    async def replay(self, start: int) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield number and payload of kept batches from `start` on. Raises `UnreachableError`."""
        if not self._replay_endpoint:
            raise UnreachableError(f"zmq {self._endpoint}: the publisher has no replay")
        deadline = asyncio.get_running_loop().time() + self._total_s
        with _Wakeable(self._context, zmq.DEALER, self._replay_endpoint) as dealer:
            dealer.socket.send_multipart(replay_request(start))
            while True:
                answer = await self._answer(dealer, deadline)
                if answer is None:
                    return
                yield answer

    async def close(self) -> None:
        """Nothing is held between calls: each generator closes its own socket."""

    async def _answer(self, dealer: _Wakeable, deadline: float) -> tuple[int, bytes] | None:
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(min(deadline, now + self._idle_s)):
                return read_replay(await dealer.next())
        except TimeoutError:
            raise UnreachableError(f"zmq {self._replay_endpoint}: the replay stopped") from None
        except KvEventError as error:
            self.malformed += 1
            raise UnreachableError(f"zmq {self._replay_endpoint}: {error}") from None
