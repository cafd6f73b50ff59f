"""Builds one live pod: engine, driver, server and sockets, and the handle its owner holds.

The only place that puts these together. `start_pod` serves the `simulate-pod` verb and every world that
runs pods in its own process.
"""

from collections.abc import Callable, Mapping

from services.adapters.ports import Clock
from services.simulator.driver import EngineDriver
from services.simulator.engine import Engine
from services.simulator.faults import Crash
from services.simulator.server import PodIdentity, PodServer
from services.simulator.settings import PodSettings
from services.simulator.sockets import PodSockets, bind
from services.wire.http1.limits import RequestLimits

STOP_GRACE_S = 1.0
"""How long `stop` lets written bytes go out before it cuts connections."""


class RunningPod:
    """A pod that listens. `stop` ends it in order; `reset` and `black_hole` are the ways its host dies."""

    def __init__(
        self, host: str, port: int, server: PodServer, driver: EngineDriver, sockets: PodSockets
    ) -> None:
        self.port = port
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._server = server
        self._driver = driver
        self._sockets = sockets

    @property
    def engine(self) -> Engine:
        """The pod's engine, for reading its load."""
        return self._driver.engine

    @property
    def connections(self) -> int:
        """Open connections."""
        return self._sockets.connections

    def configure(self, change: Mapping[str, object]) -> None:
        """Change fault knobs, as POST /admin/config does; raises ValueError when one is wrong."""
        self._server.configure(change)

    def reset(self) -> None:
        """Die at once: RST on every connection, connects refused. Start another pod to come back."""
        self._driver.close()
        self._sockets.crash()

    async def black_hole(self, on: bool) -> None:
        """Keep every socket open and let nothing through, or let it through again."""
        await self._sockets.black_hole(on)

    async def stop(self) -> None:
        """Stop listening, cut answers in flight, release everything. Safe to call again or after `reset`."""
        self._driver.close()
        await self._sockets.stop(STOP_GRACE_S)


async def start_pod(
    settings: PodSettings, clock: Clock, *, exit_process: Callable[[], None] | None = None
) -> RunningPod:
    """Start a pod and return it listening. Raises OSError when its address cannot be had.

    `exit_process` is what the knob `crash: exit` calls; without it that knob is refused, because the pod
    shares its process with others.
    """
    listening = bind(settings.host, settings.port)
    port = int(listening.getsockname()[1])
    driver = EngineDriver(Engine(settings.engine_profile(), clock.now()), clock, settings.wake_interval_ms)
    crashes: dict[Crash, Callable[[], None]] = {}
    identity = PodIdentity(settings.pod, port, settings.version, (settings.model, *settings.aliases))
    server = PodServer(identity, driver, clock, settings.metric_names, settings.initial_faults(), crashes)
    limits = RequestLimits(body_bytes=settings.body_max_bytes)
    sockets = PodSockets(listening, server.handle, server.refuse, limits)
    crashes[Crash.RESET] = sockets.reset_connections
    if exit_process is not None:
        crashes[Crash.EXIT] = exit_process
    await sockets.accept()
    return RunningPod(settings.host, port, server, driver, sockets)
