"""Hears KV events: one subscription per publisher, batches in order into the precise index, replays for gaps.

What numbers mean is `core/prefix/sequence`, what events mean `core/prefix/precise`; sockets are the port's. Work
is done a slice at a time, so that a burst of events delays no request.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

from services.adapters.metric_names import prefix as names
from services.adapters.ports import Clock, UnreachableError
from services.adapters.prefix_ports import KvEventSource
from services.adapters.telemetry.prometheus import Value
from services.core.prefix.events import EventSource
from services.core.prefix.precise import PreciseIndex
from services.core.prefix.sequence import Apply, Clear, EventSequence, Step
from services.core.units import seconds
from services.wire.kv_events import KvEventError, read_batch

REPLAYS_AT_ONCE = 8
"""Replays that run together: each may bring ten thousand batches (the field's limit)."""
PAUSE = seconds(5)
"""After a subscription that could not be made (the field's reconnect); connections lost are the port's to mend."""


@dataclass(slots=True, eq=False)
class _Publisher:
    """One publisher's state. The lock keeps the order in which its numbers were judged."""

    source: EventSource
    events: KvEventSource
    sequence: EventSequence[bytes] = field(default_factory=EventSequence)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class KvListener:
    """Feeds `index`. `batches` and `replays` count by result."""

    def __init__(self, index: PreciseIndex, clock: Clock) -> None:
        self._index = index
        self._clock = clock
        self._replays = asyncio.Semaphore(REPLAYS_AT_ONCE)
        self._publishers: dict[EventSource, _Publisher] = {}
        self.batches: Counter[str] = Counter()
        self.replays: Counter[str] = Counter()

    async def listen(self, source: EventSource, events: KvEventSource) -> None:
        """Hear one publisher until cancelled; what it said is forgotten then."""
        publisher = self._publishers[source] = _Publisher(source, events)
        try:
            async with asyncio.TaskGroup() as scope:
                while True:
                    try:
                        await self._follow(publisher, scope)
                    except UnreachableError:
                        self.batches["unreachable"] += 1
                        await self._clock.sleep(PAUSE)
        finally:
            self.batches["lost"] += publisher.sequence.lost
            self.batches["malformed"] += events.malformed
            del self._publishers[source]
            # Not in slices: a cancelled task must not wait.
            for _ in self._index.clear(source):
                pass

    def values(self) -> Iterable[Value]:
        """Return counts as metrics."""
        counts = Counter(self.batches)
        for publisher in self._publishers.values():
            counts["lost"] += publisher.sequence.lost
            counts["malformed"] += publisher.events.malformed
        for result, count in sorted(counts.items()):
            yield Value(names.PICKER_KV_EVENT_BATCHES, count, (result,))
        for result, count in sorted(self.replays.items()):
            yield Value(names.PICKER_KV_REPLAYS, count, (result,))

    async def _follow(self, publisher: _Publisher, scope: asyncio.TaskGroup) -> None:
        async with aclosing(publisher.events.messages()) as batches:
            async for messages in batches:
                for message in messages:
                    async with publisher.lock:
                        now = self._clock.now()
                        steps = publisher.sequence.live(message.number, message.payload, now)
                        start = await self._perform(publisher, steps)
                    if start is not None:
                        scope.create_task(self._replay(publisher, start))

    async def _replay(self, publisher: _Publisher, start: int) -> None:
        result = "failed"
        try:
            async with self._replays, aclosing(publisher.events.replay(start)) as answers:
                async for number, payload in answers:
                    async with publisher.lock:
                        await self._perform(publisher, publisher.sequence.replayed(number, payload))
            result = "complete"
        except UnreachableError:
            pass
        self.replays[result] += 1
        async with publisher.lock:
            await self._perform(publisher, publisher.sequence.replay_ended(self._clock.now()))

    async def _perform(self, publisher: _Publisher, steps: Iterable[Step[bytes]]) -> int | None:
        """Do the steps in order; return where a replay is to start, if one is."""
        start = None
        for step in steps:
            if isinstance(step, Apply):
                await self._apply(publisher.source, step.batch)
            elif isinstance(step, Clear):
                for _ in self._index.clear(publisher.source):
                    await asyncio.sleep(0)
            else:
                start = step.start
        return start

    async def _apply(self, source: EventSource, payload: bytes) -> None:
        try:
            batch = read_batch(payload)
        except KvEventError:
            self.batches["malformed"] += 1
            return
        self.batches["applied"] += 1
        for _ in self._index.apply(source, batch):
            await asyncio.sleep(0)
