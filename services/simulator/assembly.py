"""Builds one live pod: engines, drivers, server and sockets, and the handle its owner holds.

The only place that puts these together. `start_pod` serves the `simulate-pod` verb and every world that
runs pods in its own process.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from services.adapters.ports import Clock
from services.adapters.system.tasks import TaskScope
from services.simulator.driver import EngineDriver
from services.simulator.engine import Engine
from services.simulator.events import KvChange
from services.simulator.faults import Crash
from services.simulator.flavours import page_of
from services.simulator.kv_events import KvEventLog
from services.simulator.kv_publisher import KvPublisher
from services.simulator.served_models import ServedModels
from services.simulator.server import PodIdentity, PodParts, PodServer
from services.simulator.settings import PodSettings
from services.simulator.sockets import PodSockets, bind
from services.simulator.vllm_page import MetricNames
from services.wire.http1.limits import RequestLimits

STOP_GRACE_S = 1.0
"""How long `stop` lets written bytes go out before it cuts connections."""
_MS_PER_S = 1000


class RunningPod:
    """A pod that has its address. `stop` ends it in order; `reset` and `black_hole` are the ways its host dies.

    `ready` is set once it listens, which is at once unless its settings say how long it loads weights.
    """

    def __init__(
        self, address: tuple[str, int], server: PodServer, parts: PodParts, sockets: PodSockets
    ) -> None:
        host, self.port = address
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self.ready = asyncio.Event()
        self._server = server
        self._parts = parts
        self._sockets = sockets
        self._tasks = TaskScope(_raise)

    @property
    def engine(self) -> Engine:
        """The engine of the first rank, for reading its load."""
        return self._parts.drivers[0].engine

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The engine of each rank."""
        return tuple(driver.engine for driver in self._parts.drivers)

    @property
    def kv_endpoints(self) -> tuple[str, ...]:
        """Where each rank publishes KV events; empty when none are published."""
        return tuple(publisher.endpoint for publisher in self._parts.publishers)

    @property
    def kv_replay_endpoints(self) -> tuple[str, ...]:
        """Where each rank's missed KV events are had; an empty string for a rank without replay."""
        return tuple(publisher.replay_endpoint for publisher in self._parts.publishers)

    @property
    def connections(self) -> int:
        """Open connections."""
        return self._sockets.connections

    async def open(self, startup_s: float) -> None:
        """Listen, after `startup_s` seconds of loading weights. Raises OSError when the address is taken."""
        if startup_s > 0:
            self._tasks.spawn(self._load_weights(startup_s), "load-weights")
            return
        await self._sockets.accept()
        self.ready.set()

    def configure(self, change: Mapping[str, object]) -> None:
        """Change fault knobs, as POST /admin/config does; raises ValueError when one is wrong."""
        self._server.configure(change)

    def reset(self) -> None:
        """Die at once: RST on every connection, connects refused. Start another pod to come back."""
        for driver in self._parts.drivers:
            driver.close()
        for publisher in self._parts.publishers:
            publisher.abort()
        self._sockets.crash()

    async def black_hole(self, on: bool) -> None:
        """Keep every socket open and let nothing through, or let it through again."""
        await self._sockets.black_hole(on)

    async def stop(self) -> None:
        """Stop listening, cut answers in flight, release everything. Safe to call again or after `reset`."""
        await self._tasks.close()
        for driver in self._parts.drivers:
            driver.close()
        for publisher in self._parts.publishers:
            await publisher.close()
        await self._sockets.stop(STOP_GRACE_S)

    async def _load_weights(self, startup_s: float) -> None:
        await asyncio.sleep(startup_s)
        await self._sockets.accept()
        self.ready.set()


async def start_pod(
    settings: PodSettings, clock: Clock, *, exit_process: Callable[[], None] | None = None
) -> RunningPod:
    """Start a pod and return it listening, or loading weights where its settings ask for that.

    `exit_process` is what the knob `crash: exit` calls; without it that knob is refused, because the pod
    shares its process with others. Raises OSError when an address cannot be had.
    """
    listening = bind(settings.host, settings.port)
    port = int(listening.getsockname()[1])
    identity = PodIdentity(settings.pod, port, settings.flavour, settings.engine_version(), settings.model)
    try:
        publishers = _publishers(settings, port)
    except OSError:
        listening.close()
        raise
    crashes: dict[Crash, Callable[[], None]] = {}
    parts = _parts(settings, clock, publishers, crashes)
    server = PodServer(identity, parts, clock, settings.initial_faults())
    limits = RequestLimits(body_bytes=settings.body_max_bytes)
    sockets = PodSockets(listening, server.handle, server.refuse, limits)
    crashes[Crash.RESET] = sockets.reset_connections
    if exit_process is not None:
        crashes[Crash.EXIT] = exit_process
    pod = RunningPod((settings.host, port), server, parts, sockets)
    await pod.open(settings.startup_s)
    return pod


def _parts(
    settings: PodSettings,
    clock: Clock,
    publishers: Sequence[KvPublisher],
    crashes: Mapping[Crash, Callable[[], None]],
) -> PodParts:
    drivers: list[EngineDriver] = []
    for rank in range(settings.data_parallel_size):
        engine = Engine(
            settings.engine_profile(),
            clock.now(),
            tallies=settings.flavour.tallies(),
            journal=bool(publishers),
        )
        sink = _sink(publishers[rank], clock) if publishers else None
        drivers.append(EngineDriver(engine, clock, settings.wake_interval_ms, sink))
    engines = [driver.engine for driver in drivers]
    models = ServedModels(
        (settings.model, *settings.aliases),
        settings.loras,
        settings.flavour.value,
        engines[0].profile.max_model_len,
    )
    page = page_of(settings.flavour, settings.names(), settings.model, engines, settings.page_lines)
    old = page_of(settings.flavour, MetricNames.OLD, settings.model, engines, settings.page_lines)
    return PodParts(drivers, publishers, models, page, old, crashes)


def _sink(publisher: KvPublisher, clock: Clock) -> Callable[[list[KvChange]], None]:
    return lambda changes: publisher.publish(changes, clock.wall_ms() / _MS_PER_S)


def _publishers(settings: PodSettings, port: int) -> list[KvPublisher]:
    events = settings.kv_events
    publishers: list[KvPublisher] = []
    if not events.endpoint:
        return publishers
    topic = f"kv@{settings.host}:{port}@{settings.model}"
    block_size = settings.engine_profile().block_size
    try:
        for rank in range(settings.data_parallel_size):
            log = KvEventLog(block_size, rank, as_maps=events.as_maps, kept=events.replay_batches)
            here, replay = (_of_rank(address, rank) for address in (events.endpoint, events.replay_endpoint))
            publishers.append(KvPublisher(log, topic, here, replay))
    except OSError:
        for publisher in publishers:
            publisher.abort()
        raise
    return publishers


def _of_rank(endpoint: str, rank: int) -> str:
    """Return the endpoint of `rank`: its port is counted up, as vLLM does, unless 0 asks for free ones."""
    place, _, port = endpoint.rpartition(":")
    return endpoint if not endpoint or int(port) == 0 else f"{place}:{int(port) + rank}"


def _raise(_: str, failure: BaseException) -> None:
    raise failure
