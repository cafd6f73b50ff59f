"""One running router: its parts, their start and their ends, orderly or sudden.

What each part does is its own file's; which adapters they stand on is `assembly`'s. Here is only the
order: policy from disk, view, doors; drain, stop; and the two ways a router dies at once.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from services.adapters.auth.authenticator import Authenticator
from services.adapters.grpc.server import GrpcServer
from services.adapters.http.page import PageServer
from services.adapters.http.server import HttpServer
from services.adapters.http.upstream import UpstreamPool
from services.adapters.ports import Clock, FleetStore, LocalPicker, Prober
from services.adapters.system.decision_log import RingDecisionLog
from services.adapters.system.tasks import TaskScope
from services.core.health.effects import Effect
from services.core.policy import PolicySnapshot
from services.core.units import NS_PER_MS, Duration, ms, seconds
from services.global_router.doors.http import HttpDoor
from services.global_router.fleet_board import FleetBoard
from services.global_router.lifecycle import LifeCycle
from services.global_router.records import DecisionRecord
from services.global_router.settings import RouterSettings
from services.global_router.supervise import Supervisor
from services.global_router.view import View

_LOG = logging.getLogger(__name__)

FLUSH_INTERVAL: Final = ms(200)
"""How far the decision file may lag behind; a crash loses at most this."""
NOT_READY_INTERVAL: Final = seconds(10)
"""A router without policy says so this often: seldom enough to read, often enough to notice."""
GRPC_GRACE: Final = seconds(1)
"""A decision takes a millisecond; a second is ample."""


@dataclass(slots=True)
class Router:
    """`start`, then `stop` (orderly) or `abort` (as if killed). Ports are known after `start`."""

    settings: RouterSettings
    clock: Clock
    scope: TaskScope
    view: View
    board: FleetBoard
    supervisor: Supervisor
    authenticator: Authenticator
    life: LifeCycle
    log: RingDecisionLog[DecisionRecord]
    door: HttpDoor
    http_server: HttpServer
    grpc_server: GrpcServer
    metrics_server: PageServer
    pool: UpstreamPool
    prober: Prober
    picker: LocalPicker
    store: FleetStore | None
    http_port: int = 0
    grpc_port: int = 0
    metrics_port: int = 0
    failure: asyncio.Future[None] | None = None
    _told_ready: bool = field(default=False)

    async def start(self) -> None:
        """Take the policy from disk, follow the store, open the doors. Raises OSError or BindError for a taken port."""
        loop = asyncio.get_running_loop()
        self.failure = loop.create_future()
        self.view.on_policy = self._use_policy
        self.view.on_cluster_lost = self.life.cluster_lost
        self.view.on_effects = self._note_effects
        settings = self.settings
        try:
            self.http_port = await self.http_server.listen(settings.http.host, settings.http.port)
            await self.grpc_server.start()
            self.grpc_port = self.grpc_server.port
            self.metrics_port = await self.metrics_server.listen(settings.metrics.host, settings.metrics.port)
            self.board.start()
            self.view.start()
        except BaseException:
            await self.abort()
            raise
        self.supervisor.start()
        self.life.start(loop)
        self.scope.spawn(self._pulse(), "pulse")
        self.scope.spawn(self._say_not_ready(), "say not ready")

    async def stop(self) -> None:
        """Turn unready, let running requests finish within the drain time, then end everything."""
        await self.grpc_server.set_ready(ready=False)
        if not await self.http_server.drain(self.settings.drain_ms):
            _LOG.warning("region %s: requests were cut at the end of the drain time", self.settings.region)
        await self.grpc_server.stop(GRPC_GRACE)
        await self._end()

    async def abort(self) -> None:
        """End at once, as if the process were killed: every socket is cut and nothing is said."""
        await self.scope.close()
        await self.http_server.close()
        await self.grpc_server.stop(Duration(0))
        await self._end()

    def black_hole(self, on: bool) -> None:
        """Answer no new request while every socket stays open; or answer again from now on."""
        self.door.silent = on

    async def _end(self) -> None:
        self.life.stop()
        self.view.stop()
        self.board.stop()
        await self.scope.close()
        await self.metrics_server.close()
        await self.pool.close()
        await self.prober.close()
        await self.picker.close()
        if self.store is not None:
            await self.store.close()
        self.log.flush()

    # --- What follows from the view -----------------------------------------------------------------

    def _use_policy(self, policy: PolicySnapshot) -> None:
        self.authenticator.use(policy)
        self.life.use_policy(policy)
        self.pool.connect_ms = policy.failover.timeouts.connect // NS_PER_MS

    def _note_effects(self, effects: Sequence[Effect]) -> None:
        self.supervisor.note_effects(effects)

    async def _pulse(self) -> None:
        while True:
            await self.clock.sleep(FLUSH_INTERVAL)
            await asyncio.to_thread(self.log.flush)
            if self.view.ready is not self._told_ready:
                self._told_ready = self.view.ready
                await self.grpc_server.set_ready(ready=self._told_ready)

    async def _say_not_ready(self) -> None:
        while True:
            await self.clock.sleep(NOT_READY_INTERVAL)
            if self.view.policy is None:
                store = "no store is configured" if self.store is None else "the store has given none"
                _LOG.warning("region %s: not ready, no policy: %s", self.settings.region, store)
            elif self.view.state.isolated:
                _LOG.warning("region %s: not ready, isolated: nothing answers", self.settings.region)

    def part_failed(self, name: str, failure: BaseException) -> None:
        """A background task ended that should not have: say so and let the process end."""
        _LOG.critical("region %s: %s ended", self.settings.region, name, exc_info=failure)
        if self.failure is not None and not self.failure.done():
            self.failure.set_result(None)
