"""Election among the processes of one host: whoever holds an exclusive lock on a file.

The kernel releases the lock when its holder dies, however it dies, so there is no expiry and no clock.
Between hosts it elects nobody: a shared file system's locks are not to be trusted with this.
"""

import asyncio
import fcntl
import os
from pathlib import Path

from services.adapters.ports import Clock
from services.core.units import ms

TRY_EVERY = ms(250)
"""A successor waits at most this long after the holder died: a quarter of the silence that fences."""


class FileLease:
    """`PublisherLease` port over `flock`. The file is created when absent and never removed."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._descriptor: int | None = None

    async def acquire(self) -> None:
        """Wait until the lock is ours; raises OSError when the file cannot be opened."""
        if self._descriptor is not None:
            return
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _locked(descriptor):
                await self._clock.sleep(TRY_EVERY)
        except asyncio.CancelledError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def held(self) -> bool:
        """Whether this process holds the lock."""
        return self._descriptor is not None

    async def release(self) -> None:
        """Let the next candidate have it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
