"""The policy on the router's own disk: what it starts from when the store is away.

One file, replaced atomically, touched while the policy is known to be current, so that its
modification time says how old its confirmation is. No judging of policies here. Apart from
the view because it blocks: `PolicyKeeper` runs it in threads, one change at a time.
"""

import asyncio
import contextlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.adapters.ports import Clock
from services.adapters.system.tasks import TaskScope
from services.core.units import Duration, Instant, WallMs, ms, seconds

log = logging.getLogger(__name__)

FILE_NAME: Final = "policy.bin"
CONFIRM_INTERVAL: Final = seconds(60)
"""How often the file is touched; small against the 15 min after which residency fails closed."""


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """The bytes as published, and how long ago they were last known to be current."""

    payload: bytes
    confirmed_ago: Duration


class PolicyFile:
    """`policy.bin` in `state_dir`, which is created when missing. Errors are `OSError`s."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME

    def load(self, wall_ms: WallMs) -> StoredPolicy | None:
        """Return what is stored; None when nothing is. A file from the future counts as just confirmed."""
        try:
            payload = self._path.read_bytes()
            confirmed_ms = self._path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None
        return StoredPolicy(payload, ms(max(0, wall_ms - confirmed_ms)))

    def save(self, payload: bytes, wall_ms: WallMs) -> None:
        """Replace the file: a crash leaves the old one or the new one, never a part."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(f"{FILE_NAME}.{os.getpid()}")
        try:
            with partial.open("wb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            self._stamp(partial, wall_ms)
            partial.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise

    def confirm(self, wall_ms: WallMs) -> None:
        """Note that the stored policy was current at `wall_ms`; nothing when none is stored."""
        with contextlib.suppress(FileNotFoundError):
            self._stamp(self._path, wall_ms)

    def _stamp(self, path: Path, wall_ms: WallMs) -> None:
        os.utime(path, ns=(wall_ms * 1_000_000, wall_ms * 1_000_000))


class PolicyKeeper:
    """Keeps a `PolicyFile` up to date without blocking the loop. What disk refuses is logged, never raised."""

    def __init__(self, file: PolicyFile, clock: Clock, scope: TaskScope) -> None:
        self._file = file
        self._clock = clock
        self._scope = scope
        self._unsaved: bytes | None = None
        self._touched_at: Instant | None = None
        self._busy = False

    def load(self) -> StoredPolicy | None:
        """Return what is stored. Blocks; for the start only."""
        return self._file.load(self._clock.wall_ms())

    def save(self, payload: bytes) -> None:
        """Store `payload`; a newer one that comes before it is written replaces it."""
        self._unsaved = payload
        self._work()

    def confirm(self) -> None:
        """The stored policy is current now; costs a comparison unless the file is due to be touched."""
        now = self._clock.now()
        if self._touched_at is None or now - self._touched_at >= CONFIRM_INTERVAL:
            self._work()

    def _work(self) -> None:
        if not self._busy:
            self._busy = True
            self._scope.spawn(self._write(), "policy file")

    async def _write(self) -> None:
        payload = None
        try:
            while (payload := self._unsaved) is not None:
                self._unsaved = None
                await asyncio.to_thread(self._file.save, payload, self._clock.wall_ms())
            await asyncio.to_thread(self._file.confirm, self._clock.wall_ms())
        except OSError as error:
            log.warning("the policy cannot be kept on disk: %s", error)
            # An older policy on disk must not be confirmed in its place: the next work saves again.
            self._unsaved = self._unsaved or payload
            payload = self._unsaved
        self._touched_at = self._clock.now()
        self._busy = False
        if self._unsaved is not payload:
            self._work()
