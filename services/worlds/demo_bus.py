"""What a world stands on: bus and stores, in memory or real, and the switch that takes both away.

Services get ready-made ports from here and do not know the difference. Reports are noted with the
instant they were handed to the bus, because a failover is judged from the last one. No service is
built here.
"""

from collections import defaultdict, deque
from collections.abc import Collection
from typing import Protocol

from services.adapters.kafka.publisher import KafkaBusPublisher
from services.adapters.kafka.reader import KafkaBusReader
from services.adapters.kafka.settings import KafkaSettings
from services.adapters.memory.bus import MemoryBus
from services.adapters.memory.store import MemoryFleetStore, MemoryStoreServer
from services.adapters.ports import (
    BusPublisher,
    BusReader,
    Clock,
    FleetStore,
    Ids,
    Topic,
    UnreachableError,
)
from services.adapters.redis.store import RedisFleetStore
from services.core.units import Duration, Instant, after, in_ms, ms
from services.worlds.topology import Bus

ASK_AGAIN = ms(250)
"""How often a part that does not answer is asked again while the world waits for it."""


KEPT_REPORTS = 4096
"""Seven minutes of a cluster that reports as often as it may: longer than any tour, and nothing to a demo of days."""


class SendLog:
    """When each cluster handed its last reports to the bus, oldest first."""

    def __init__(self) -> None:
        self.sent: defaultdict[str, deque[Instant]] = defaultdict(lambda: deque(maxlen=KEPT_REPORTS))

    def last_before(self, cluster: str, instant: Instant) -> Instant | None:
        """Return the last report of `cluster` sent before `instant`."""
        return max((at for at in self.sent[cluster] if at < instant), default=None)


class LoggedPublisher:
    """A `BusPublisher` that notes each health report in a `SendLog` and passes everything on."""

    def __init__(self, inner: BusPublisher, log: SendLog, clock: Clock) -> None:
        self._inner = inner
        self._log = log
        self._clock = clock

    @property
    def connected(self) -> bool:
        """As the publisher inside."""
        return self._inner.connected

    @property
    def coalesced(self) -> int:
        """As the publisher inside."""
        return self._inner.coalesced

    @property
    def expired(self) -> int:
        """As the publisher inside."""
        return self._inner.expired

    @property
    def refused(self) -> int:
        """As the publisher inside."""
        return self._inner.refused

    def offer(self, topic: Topic, key: str, value: bytes | None) -> None:
        """Note a health report, then offer."""
        if topic is Topic.HEALTH:
            self._log.sent[key].append(self._clock.now())
        self._inner.offer(topic, key, value)

    async def publish(self, topic: Topic, key: str, value: bytes | None, timeout: Duration) -> None:
        """Publish."""
        await self._inner.publish(topic, key, value, timeout)

    async def start(self) -> None:
        """Start."""
        await self._inner.start()

    async def close(self) -> None:
        """Close."""
        await self._inner.close()


class NetworkSwitch(Protocol):
    """Takes this process's connections to other servers away, and gives them back."""

    def cut(self) -> None: ...  # noqa: D102 -- the class docstring says it

    def restore(self) -> None: ...  # noqa: D102


class Parts:
    """The bus and the regions' stores; each is in memory where `bus` names no address.

    Whoever asks for a port closes it. `switch` is how a world on real parts cuts itself off; without one it
    never is.
    """

    def __init__(self, bus: Bus, clock: Clock, ids: Ids, switch: NetworkSwitch | None = None) -> None:
        self._where = bus
        self._clock = clock
        self._ids = ids
        self._switch = switch
        self._memory_bus = MemoryBus(clock)
        self._memory_stores: dict[str, MemoryStoreServer] = {}

    def publisher(self, name: str) -> BusPublisher:
        """Return a publisher of its own."""
        if not self._where.kafka:
            return self._memory_bus.publisher()
        return KafkaBusPublisher(self._settings(name), self._clock)

    def reader(self, name: str, topics: Collection[Topic]) -> BusReader:
        """Return a reader of its own."""
        if not self._where.kafka:
            return self._memory_bus.reader(topics)
        return KafkaBusReader(self._settings(name), topics, self._clock)

    def store(self, fleet: str, region: str) -> FleetStore:
        """Return a handle of its own on a region's store."""
        if self._where.redis_url:
            return RedisFleetStore(self._where.redis_url, fleet, region, self._ids)
        if region not in self._memory_stores:
            self._memory_stores[region] = MemoryStoreServer(self._clock)
        return MemoryFleetStore(self._memory_stores[region])

    async def reach(self, fleet: str, region: str, timeout: Duration) -> None:
        """Return once Redis and Kafka answer; raise `UnreachableError` naming who has not within `timeout`."""
        deadline = after(self._clock.now(), timeout)
        await self._reach_store(fleet, region, deadline)
        publisher = self.publisher("gir-reach")
        await publisher.start()
        try:
            while not publisher.connected:
                if self._clock.now() >= deadline:
                    raise UnreachableError(
                        f"kafka {self._where.kafka}: no answer within {in_ms(timeout) / 1000:.0f} s"
                    )
                await self._clock.sleep(ASK_AGAIN)
        finally:
            await publisher.close()

    def cut(self) -> None:
        """Take bus and stores away from every service at once."""
        self._memory_bus.stop()
        for store in self._memory_stores.values():
            store.stop()
        if self._switch is not None:
            self._switch.cut()

    def restore(self) -> None:
        """Give them back; stores in memory come back empty, as a cache without a disk does."""
        for store in self._memory_stores.values():
            store.restart(empty=True)
        self._memory_bus.start()
        if self._switch is not None:
            self._switch.restore()

    async def _reach_store(self, fleet: str, region: str, deadline: Instant) -> None:
        store = self.store(fleet, region)
        try:
            while True:
                try:
                    await store.meta()
                except UnreachableError:
                    if self._clock.now() >= deadline:
                        raise
                    await self._clock.sleep(ASK_AGAIN)
                else:
                    return
        finally:
            await store.close()

    def _settings(self, name: str) -> KafkaSettings:
        return KafkaSettings(self._where.kafka, client_id=name, replication_factor=self._where.replication)
