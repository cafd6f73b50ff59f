"""KV events in memory: a publisher with its history, and sources that subscribe to it.

The embedded twin of the ZeroMQ room, under the same contract suite. Subscribers that fall behind lose messages,
as a PUB socket's do.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence

from services.adapters.ports import UnreachableError
from services.wire.kv_events import KvMessage

HIGH_WATER_MARK = 10_000
KEPT_BATCHES = 10_000
"""vLLM's default number of batches kept for replay."""


class MemoryKvPublisher:
    """One rank's publisher. `losing`: what is published is kept and reaches no subscriber."""

    def __init__(self, topic: str = "", *, kept: int = KEPT_BATCHES) -> None:
        self._topic = topic
        self._next = 0
        self.history: deque[tuple[int, bytes]] = deque(maxlen=kept)
        self.queues: set[asyncio.Queue[KvMessage]] = set()
        self.losing = False
        self.replays = True

    def publish(self, payload: bytes) -> None:
        """Number a payload, keep it and hand it to whoever listens."""
        message = KvMessage(self._topic, self._next, payload)
        self._next += 1
        self.history.append((message.number, payload))
        for queue in () if self.losing else self.queues:
            if not queue.full():
                queue.put_nowait(message)


class MemoryKvEvents:
    """`KvEventSource` on a `MemoryKvPublisher`."""

    malformed = 0

    def __init__(self, publisher: MemoryKvPublisher) -> None:
        self._publisher = publisher

    async def messages(self) -> AsyncGenerator[Sequence[KvMessage], None]:
        """Yield what is published from now on."""
        queue: asyncio.Queue[KvMessage] = asyncio.Queue(HIGH_WATER_MARK)
        self._publisher.queues.add(queue)
        try:
            while True:
                yield (await queue.get(),)
        finally:
            self._publisher.queues.discard(queue)

    async def replay(self, start: int) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield the kept batches from `start` on. Raises `UnreachableError` while the publisher answers none."""
        if not self._publisher.replays:
            raise UnreachableError("kv events in memory: no replay")
        for number, payload in tuple(self._publisher.history):
            if number >= start:
                yield number, payload

    async def close(self) -> None:
        """Nothing is held between calls."""
