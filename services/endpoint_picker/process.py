"""One running picker: its parts, their start and their ends, orderly or sudden.

What each part does is its own file's; which adapters they stand on is `assembly`'s. Here is only the order:
listen, watch, publish; drain, stop; and the two ways a cluster dies at once.
"""

import asyncio
import logging
from dataclasses import dataclass

from services.adapters.grpc.server import GrpcServer
from services.adapters.http.page import PageServer
from services.adapters.http.server import HttpServer
from services.adapters.http.upstream import UpstreamPool
from services.adapters.ports import (
    AdapterError,
    BusPublisher,
    BusReader,
    Clock,
    MetricsSource,
    PublisherLease,
)
from services.adapters.system.tasks import TaskScope
from services.core.units import NS_PER_MS, NS_PER_S, Duration, after, ms, seconds
from services.endpoint_picker.assembly_discovery import Sources
from services.endpoint_picker.assembly_traffic import PrefixParts
from services.endpoint_picker.doors.ext_proc import ProcessorService
from services.endpoint_picker.doors.grpc import PickerService
from services.endpoint_picker.doors.http import HttpDoor
from services.endpoint_picker.lifecycle import Lifecycle
from services.endpoint_picker.observe import Observer
from services.endpoint_picker.publish import Publisher
from services.endpoint_picker.settings import PickerSettings

_LOG = logging.getLogger(__name__)

PULSE = ms(100)
"""How often readings are checked for age and readiness is told: a twentieth of the age that matters."""
DRAIN_HEARD = seconds(1)
"""How long the doors stay open after a drain was said: a report is out in 0.1 s and acted on within a second
of its receipt, gateways that probe readiness need no less, and a refused connection would count against the
cluster as ill health."""
LAST_WORDS = ms(100)
"""What still waits for a pod this long before the end of a drain is told so; a refusal is written in a millisecond."""
GRPC_GRACE = ms(500)
"""A pick takes a millisecond; half a second is ample."""


@dataclass(slots=True)
class Bus:
    """The cluster's way to the fleet: elected publisher over bus and lease."""

    publisher: Publisher
    sender: BusPublisher
    reader: BusReader
    lease: PublisherLease
    owned: bool
    """Whether sender and reader end with the picker; shared ones belong to whoever made them."""


@dataclass(slots=True)
class Doors:
    """The sockets of one picker."""

    http: HttpDoor
    http_server: HttpServer
    grpc: PickerService
    ext_proc: ProcessorService
    grpc_server: GrpcServer
    health_server: GrpcServer | None
    metrics_server: PageServer


@dataclass(slots=True, eq=False)
class Watchdog:
    """Hears of background tasks that fail; without one of them a picker is not itself, so its process should end."""

    cluster: str
    failed: asyncio.Future[None] | None = None

    def task_failed(self, name: str, failure: BaseException) -> None:
        """Log a task that ended, and let whoever waits for `failed` know."""
        _LOG.critical("cluster %s: %s ended", self.cluster, name, exc_info=failure)
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(None)


@dataclass(slots=True)
class EndpointPicker:
    """`start`, then `stop` (orderly), or `abort` (as if killed). Ports are known after `start`."""

    settings: PickerSettings
    doors: Doors
    life: Lifecycle
    observer: Observer
    sources: Sources
    pool: UpstreamPool
    source: MetricsSource
    clock: Clock
    bus: Bus | None
    prefix: PrefixParts | None
    tasks: TaskScope
    watchdog: Watchdog
    http_port: int = 0
    grpc_port: int = 0
    health_port: int = 0
    metrics_port: int = 0
    _told_ready: bool = False

    async def start(self) -> None:
        """Open the doors and begin to watch and publish. Raises OSError or `BindError` when an address cannot be had."""
        self.watchdog.failed = asyncio.get_running_loop().create_future()
        settings, doors = self.settings, self.doors
        try:
            self.http_port = await doors.http_server.listen(settings.http.host, settings.http.port)
            await doors.grpc_server.start()
            self.grpc_port = doors.grpc_server.port
            if doors.health_server is not None:
                await doors.health_server.start()
                self.health_port = doors.health_server.port
            self.metrics_port = await doors.metrics_server.listen(
                settings.metrics.host, settings.metrics.port
            )
        except (OSError, AdapterError):
            await self.abort()
            raise
        self.observer.start(self.tasks)
        for pool, source in self.sources.endpoints.items():
            self.tasks.spawn(self.observer.follow(pool, source), f"discover {pool}")
        for place, objects in enumerate(self.sources.objects):
            self.tasks.spawn(self.life.declared.follow(place, objects), f"objects {place}")
        self.life.flow.start()
        if self.prefix is not None:
            self.prefix.start(self.tasks)
            # Declared pods are known before the first request, not only from the first pulse on.
            self.prefix.pods.follow(self.observer.table)
        self.tasks.spawn(self._pulse(), "pulse")
        if self.bus is not None:
            await self.bus.sender.start()
            await self.bus.reader.start()
            self.tasks.spawn(self.bus.publisher.listen(), "listen for rivals")
            self.tasks.spawn(self.bus.publisher.run(), "publish")

    def drain(self) -> None:
        """Refuse new requests with `x-gir-drained` and say so in reports; running requests go on."""
        self.doors.http.entry.draining = True
        self.life.flow.drain()
        if self.bus is not None:
            self.bus.publisher.draining = True

    async def stop(self) -> None:
        """Drain, let the fleet hear of it and running requests finish, all within `drain_ms`; then end everything."""
        self.drain()
        left_ms = self.settings.drain_ms
        announced = Duration(min(DRAIN_HEARD, ms(left_ms)))
        await self.clock.sleep(announced)
        left_ms -= announced // NS_PER_MS
        finished = await self._finished(left_ms)
        if not finished:
            _LOG.warning("cluster %s: requests were cut at the end of the drain time", self.settings.cluster)
        self.life.flow.shut_down(self.clock.now())
        await self.doors.grpc_server.stop(GRPC_GRACE)
        await self.doors.ext_proc.finished()
        await self._end()

    async def _finished(self, left_ms: int) -> bool:
        """Wait until HTTP requests and ext_proc streams have ended, or the time is over.

        What still waits for a pod shortly before is refused, while an answer can still go out.
        """
        ends = after(self.clock.now(), ms(left_ms))
        last_words = asyncio.get_running_loop().call_later(
            max(0, left_ms * NS_PER_MS - LAST_WORDS) / NS_PER_S,
            lambda: self.life.flow.shut_down(self.clock.now()),
        )
        in_time = True
        try:
            async with asyncio.timeout(left_ms * NS_PER_MS / NS_PER_S):
                await self.doors.ext_proc.finished()
        except TimeoutError:
            in_time = False
        left = max(0, ends - self.clock.now()) if in_time else 0
        answered = await self.doors.http_server.drain(left // NS_PER_MS)
        last_words.cancel()
        return in_time and answered

    async def abort(self) -> None:
        """End at once, as if the process were killed: nothing is said, every socket is cut."""
        self.doors.http.cancel_all()
        await self.doors.http_server.close()
        await self.tasks.close()
        await self.doors.grpc_server.stop(ms(0))
        await self._end()

    def black_hole(self, on: bool) -> None:
        """Answer nothing and say nothing while every socket stays open; or come back as if nothing had been."""
        self.doors.http.black_hole(on)
        for light in (self.doors.grpc.light, self.doors.ext_proc.light):
            if on:
                light.clear()
            else:
                light.set()
        self.observer.frozen = on
        if self.bus is not None:
            self.bus.publisher.frozen = on

    @property
    def failure(self) -> "asyncio.Future[None] | None":
        """Done when a background task failed; None before the start."""
        return self.watchdog.failed

    @property
    def ready(self) -> bool:
        """Whether at least one endpoint is ready."""
        return self.life.scheduler.ready

    async def _end(self) -> None:
        await self.tasks.close()
        if self.doors.health_server is not None:
            await self.doors.health_server.stop(ms(0))
        if self.prefix is not None:
            await self.prefix.close()
        if self.life.telling.tracing is not None:
            await asyncio.to_thread(self.life.telling.tracing.close)
        await self.doors.metrics_server.close()
        await self.pool.close()
        await self.source.close()
        if self.bus is not None:
            await self.bus.lease.release()
            if self.bus.owned:
                await self.bus.sender.close()
                await self.bus.reader.close()
        await self.sources.close()

    async def _pulse(self) -> None:
        while True:
            await self.clock.sleep(PULSE)
            if not self.observer.frozen:
                now = self.clock.now()
                self.observer.apply(self.observer.table.tick(now))
                self.doors.grpc.expire(now)
                self.doors.ext_proc.expire(now)
                self.life.declared.models.learn(self.observer.table)
                if self.prefix is not None:
                    self.prefix.pods.follow(self.observer.table)
                if self.life.sessions is not None:
                    self.life.sessions.sweep(now)
                self.life.flow.refresh(now)
                await self._tell_readiness()

    async def _tell_readiness(self) -> None:
        """Tell health watchers when readiness changed."""
        ready = self.ready and not self.doors.http.entry.draining
        if ready is not self._told_ready:
            self._told_ready = ready
            for server in self._grpc_servers():
                await server.set_ready(ready=ready)

    def _grpc_servers(self) -> list[GrpcServer]:
        doors = self.doors
        return [server for server in (doors.grpc_server, doors.health_server) if server is not None]
