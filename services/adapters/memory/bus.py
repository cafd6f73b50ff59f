"""The bus in memory: topics, partitions, offsets, compaction, replay and outages in one process.

The embedded default of the Kafka port, under the same contract suite. Nothing here
decodes records or touches a socket. One `MemoryBus` is the broker; services hold its
publishers and readers.
"""

import zlib
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from dataclasses import dataclass

from services.adapters.memory.signal import Signal
from services.adapters.ports import (
    TOPICS,
    BusRecord,
    CaughtUp,
    Clock,
    Topic,
    UnreachableError,
)
from services.core.units import Duration, Instant, in_ms, since

COMPACT_AT_RECORDS = 512
"""A compacted partition is cleaned when it holds this many records and at least half are superseded;
it bounds the memory of a demo that runs for days."""

KEEP_RECORDS = 1000
"""Records kept per partition of a topic that is not compacted."""

BATCH_RECORDS = 500
"""Most records in one batch, so that a replay lets other tasks run."""


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    key: str
    value: bytes | None


class _Partition:
    """An append-only log whose offsets survive compaction, as Kafka's do."""

    def __init__(self, *, compacted: bool) -> None:
        self.end = 0
        self._compacted = compacted
        self._entries: deque[_Entry] = deque()
        self._newest: dict[str, int] = {}

    def append(self, key: str, value: bytes | None) -> None:
        self._entries.append(_Entry(self.end, key, value))
        self._newest[key] = self.end
        self.end += 1
        if not self._compacted:
            if len(self._entries) > KEEP_RECORDS:
                self._entries.popleft()
        elif len(self._entries) >= max(COMPACT_AT_RECORDS, 2 * len(self._newest)):
            self.compact()

    def compact(self) -> None:
        self._entries = deque(entry for entry in self._entries if self._newest[entry.key] == entry.offset)

    def read(self, position: int, limit: int) -> list[_Entry]:
        """Return at most `limit` entries from offset `position` on; a position inside a gap skips it."""
        if position >= self.end:
            return []
        fresh: list[_Entry] = []
        # Readers are near the head but during a replay, so the search goes backwards.
        for entry in reversed(self._entries):
            if entry.offset < position:
                break
            fresh.append(entry)
        fresh.reverse()
        return fresh[:limit]

    def newest(self, key: str) -> bytes | None:
        for entry in reversed(self._entries):
            if entry.key == key:
                return entry.value
        return None


class MemoryBus:
    """The broker. `stop` is an outage: nothing is accepted or delivered until `start`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._up = True
        self._changed = Signal()
        self._logs = {
            topic: [_Partition(compacted=spec.compacted) for _ in range(spec.partitions)]
            for topic, spec in TOPICS.items()
        }
        self._publishers: list[MemoryBusPublisher] = []

    @property
    def up(self) -> bool:
        """Whether the bus accepts and delivers."""
        return self._up

    def stop(self) -> None:
        """Begin an outage."""
        self._up = False
        self._changed.fire()

    def start(self) -> None:
        """End an outage; what waited in publishers is sent, unless it has outlived its use."""
        self._up = True
        for publisher in self._publishers:
            publisher.outage_ended()
        self._changed.fire()

    def publisher(self) -> "MemoryBusPublisher":
        """Return a new publisher on this bus."""
        publisher = MemoryBusPublisher(self, self._clock)
        self._publishers.append(publisher)
        return publisher

    def reader(self, topics: Collection[Topic]) -> "MemoryBusReader":
        """Return a new reader of all partitions of `topics`."""
        return MemoryBusReader(self, topics)

    def compact(self) -> None:
        """Clean every compacted topic now, as a broker's cleaner would in its own time."""
        for topic, partitions in self._logs.items():
            if TOPICS[topic].compacted:
                for partition in partitions:
                    partition.compact()

    def append(self, topic: Topic, key: str, value: bytes | None) -> None:
        """Append one record to the key's partition and wake readers."""
        self.partition_of(topic, key).append(key, value)
        self._changed.fire()

    def partition_of(self, topic: Topic, key: str) -> _Partition:
        """Return the log that holds `key`."""
        partitions = self._logs[topic]
        return partitions[zlib.crc32(key.encode()) % len(partitions)]

    def partitions(self, topic: Topic) -> Sequence[_Partition]:
        """Return the logs of `topic` in partition order."""
        return self._logs[topic]

    def forget(self, publisher: "MemoryBusPublisher") -> None:
        """Drop a closed publisher."""
        if publisher in self._publishers:
            self._publishers.remove(publisher)

    async def changed(self) -> None:
        """Wait for an append, an outage or its end."""
        await self._changed.wait()

    async def changed_within(self, span: Duration) -> bool:
        """Wait for a change for at most `span`; return whether it came."""
        return await self._changed.wait_within(self._clock, span)

    def wake(self) -> None:
        """Wake readers so that they look at their own state again."""
        self._changed.fire()


class MemoryBusPublisher:
    """Producer side; made by `MemoryBus.publisher`."""

    def __init__(self, bus: MemoryBus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._waiting: dict[tuple[Topic, str], tuple[bytes | None, Instant]] = {}
        self.coalesced = 0
        self.expired = 0
        self.refused = 0

    @property
    def connected(self) -> bool:
        """Whether the bus is up."""
        return self._bus.up

    async def start(self) -> None:
        """Be ready; there is nothing to connect."""

    async def close(self) -> None:
        """Drop what still waits and leave the bus."""
        self._waiting.clear()
        self._bus.forget(self)

    def offer(self, topic: Topic, key: str, value: bytes | None) -> None:
        """Append now, or in an outage keep the newest value of the key for its end."""
        if self._bus.up:
            self._bus.append(topic, key, value)
            return
        self.coalesced += (topic, key) in self._waiting
        self._waiting[topic, key] = (value, self._clock.now())

    async def publish(self, topic: Topic, key: str, value: bytes | None, timeout: Duration) -> None:
        """Append, waiting up to `timeout` for an outage to end."""
        deadline = self._clock.now() + timeout
        while not self._bus.up:
            left = Duration(deadline - self._clock.now())
            if left <= 0:
                raise UnreachableError(f"publish to {topic.value}: no bus within {in_ms(timeout):.0f} ms")
            await self._bus.changed_within(left)
        self._bus.append(topic, key, value)

    def outage_ended(self) -> None:
        """Send what waited and is still of use; called by the bus."""
        now = self._clock.now()
        waiting, self._waiting = self._waiting, {}
        for (topic, key), (value, offered_at) in waiting.items():
            life = TOPICS[topic].useful_life
            if life is not None and since(offered_at, now) > life:
                self.expired += 1
            else:
                self._bus.append(topic, key, value)


class MemoryBusReader:
    """Consumer side; made by `MemoryBus.reader`. Reads from the beginning, then follows."""

    def __init__(self, bus: MemoryBus, topics: Collection[Topic]) -> None:
        self._bus = bus
        self._topics = tuple(topics)
        self._closed = False
        self.skipped = 0
        self._number = -1
        self.replay()

    @property
    def connected(self) -> bool:
        """Whether the bus is up."""
        return self._bus.up

    async def start(self) -> None:
        """Be ready; there is nothing to connect."""

    async def close(self) -> None:
        """End `records`."""
        self._closed = True
        self._bus.wake()

    def replay(self) -> int:
        """Go back to the beginning; records up to today's end offsets come as not live."""
        self._number += 1
        logs = [(topic, index) for topic in self._topics for index in range(len(self._bus.partitions(topic)))]
        self._positions = dict.fromkeys(logs, 0)
        self._ends = {(topic, index): self._bus.partitions(topic)[index].end for topic, index in logs}
        self._caught_up = False
        self._bus.wake()
        return self._number

    async def records(self) -> AsyncGenerator[Sequence[BusRecord | CaughtUp], None]:
        """Yield batches until closed."""
        while not self._closed:
            batch = list(self._next()) if self._bus.up else []
            if batch:
                yield batch
            else:
                await self._bus.changed()

    async def last_value(self, topic: Topic, key: str) -> bytes | None:
        """Return the newest retained value of `key`."""
        if not self._bus.up:
            raise UnreachableError(f"read {topic.value}: the bus is stopped")
        return self._bus.partition_of(topic, key).newest(key)

    def _next(self) -> Iterator[BusRecord | CaughtUp]:
        room = BATCH_RECORDS
        for (topic, index), position in self._positions.items():
            partition = self._bus.partitions(topic)[index]
            entries = partition.read(position, room)
            room -= len(entries)
            if entries:
                self._positions[topic, index] = entries[-1].offset + 1
            elif room:
                self._positions[topic, index] = partition.end  # Compaction left nothing behind the position.
            end = self._ends[topic, index]
            for entry in entries:
                yield BusRecord(topic, entry.key, entry.value, index, entry.offset, live=entry.offset >= end)
        if not self._caught_up and all(self._positions[log] >= end for log, end in self._ends.items()):
            self._caught_up = True
            yield CaughtUp(self._number)
