"""Discovery from a file that something else writes: looked at once a second, read only when it changed.

A file that is gone or broken keeps the set that was read before. The comparison is by modification time and
size first and by content then, so that neither a touched file nor a clock set back is news. What the text
means is `wire/config/endpoints_file`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

from services.adapters.ports import Clock
from services.core.pods.discovered import DiscoveredEndpoint
from services.core.units import Duration, seconds
from services.wire.config.endpoints_file import MAX_BYTES, EndpointsFileError, read_endpoints

_LOG = logging.getLogger(__name__)

LOOK_EVERY = seconds(1)
"""A stat a second costs nothing, and a changed file acts within a second."""


class FileDiscovery:
    """`EndpointDiscovery` over one file. It need not exist yet; until it does, nothing is known."""

    def __init__(self, file: Path, clock: Clock, look_every: Duration = LOOK_EVERY) -> None:
        self.trouble = ""
        self._file = file
        self._clock = clock
        self._look_every = look_every

    async def sets(self) -> AsyncGenerator[tuple[DiscoveredEndpoint, ...], None]:
        """Yield the file's endpoints, then again whenever they changed."""
        stamp: tuple[int, ...] | None = None
        content: bytes | None = None
        told: tuple[DiscoveredEndpoint, ...] | None = None
        while True:
            try:
                found = await asyncio.to_thread(self._stamp)
                if found != stamp:
                    data = await asyncio.to_thread(self._read)
                    stamp = found
                    if data != content:
                        content = data
                        endpoints = read_endpoints(data, str(self._file))
                        self._recovered()
                        if endpoints != told:
                            told = endpoints
                            yield endpoints
            except OSError as error:
                # What is read next is judged afresh, even if it is what was read before.
                stamp = content = None
                self._failed(f"{self._file}: {error.strerror or error}")
            except EndpointsFileError as error:
                self._failed(str(error))
            await self._clock.sleep(self._look_every)

    async def close(self) -> None:
        """Nothing is held open."""

    def _stamp(self) -> tuple[int, ...]:
        status = self._file.stat()
        # The inode tells a file moved into place within one tick of the clock, as writers should do it.
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> bytes:
        with self._file.open("rb") as file:
            return file.read(MAX_BYTES + 1)

    def _failed(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            _LOG.warning("endpoints stay as they were: %s", trouble)

    def _recovered(self) -> None:
        if self.trouble:
            self.trouble = ""
            _LOG.info("endpoints are read again from %s", self._file)
