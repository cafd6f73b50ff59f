"""One running projector: its parts, their start and their ends.

What it moves is `project`'s; which adapters it stands on is `assembly`'s.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from services.adapters.http.page import PageServer
from services.adapters.ports import BusPublisher, BusReader, Clock, FleetStore
from services.adapters.system.tasks import TaskScope
from services.core.units import Duration, ms, seconds
from services.global_router.project import Projector
from services.global_router.settings import ProjectorSettings

_LOG = logging.getLogger(__name__)

FIRST_CONTACT: Final = seconds(10)
"""A projector that has reached neither end by then is misconfigured, and says so by ending."""
LOOK_AGAIN: Final = ms(100)


@dataclass(slots=True)
class ProjectorService:
    """`start`, then `stop`. A projector has nothing to lose, so stopping and dying are the same."""

    settings: ProjectorSettings
    clock: Clock
    projector: Projector
    reader: BusReader
    dead_letters: BusPublisher
    store: FleetStore
    metrics_server: PageServer
    metrics_port: int = 0
    failure: asyncio.Future[None] | None = None
    _scope: TaskScope = field(init=False)

    def __post_init__(self) -> None:
        """Own the background task."""
        self._scope = TaskScope(self._part_failed)

    async def start(self) -> None:
        """Begin to project. Raises OSError when no metrics port can be had."""
        self.failure = asyncio.get_running_loop().create_future()
        door = self.settings.metrics
        self.metrics_port = await self.metrics_server.listen(door.host, door.port)
        await self.dead_letters.start()
        await self.reader.start()
        self._scope.spawn(self.projector.run(), "project")

    async def first_contact(self, within: Duration = FIRST_CONTACT) -> bool:
        """Wait until the region was filled once; False when that has not happened in time."""
        waited = 0
        while not self.projector.ready:
            if waited >= within:
                return False
            await self.clock.sleep(LOOK_AGAIN)
            waited += LOOK_AGAIN
        return True

    async def stop(self) -> None:
        """End at once; another projector, or this one's successor, goes on where the store stands."""
        await self.reader.close()
        await self._scope.close()
        await self.dead_letters.close()
        await self.store.close()
        await self.metrics_server.close()

    async def abort(self) -> None:
        """End as if killed; see `stop`."""
        await self.stop()

    def _part_failed(self, name: str, failure: BaseException) -> None:
        _LOG.critical("projector of %s: %s ended", self.settings.region, name, exc_info=failure)
        if self.failure is not None and not self.failure.done():
            self.failure.set_result(None)
