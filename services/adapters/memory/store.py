"""The regional view in memory: compare-and-set, fleet version, bounded change stream, identity.

The embedded default of the Redis port, under the same contract suite. `MemoryStoreServer`
stands for the server and holds the data and the outage switches; each consumer opens its
own `MemoryFleetStore` on it, as each opens its own connections to Redis.
"""

import itertools
from collections import deque
from collections.abc import Sequence

from services.adapters.memory.signal import Signal
from services.adapters.ports import (
    Change,
    ChangeKind,
    Clock,
    Listing,
    StoreMeta,
    StreamGapError,
    UnreachableError,
)
from services.core.fleet import ReportId
from services.core.units import Duration

STREAM_MAX_CHANGES = 4096
"""Changes kept for tailing readers; with hundreds of reports a second it spans several seconds, and a
reader further behind lists again."""

_incarnations = itertools.count(1)


class MemoryStoreServer:
    """The data and its switches: `stop` and `start` an outage, `flush`, `restart`."""

    def __init__(self, clock: Clock, stream_max_changes: int = STREAM_MAX_CHANGES) -> None:
        self.clock = clock
        self.changed = Signal()
        self.up = True
        self._runs = itertools.count(1)
        self._run_id = f"memory-run-{next(self._runs)}"
        self.stream: deque[Change] = deque(maxlen=stream_max_changes)
        self.flush()

    def flush(self) -> None:
        """Lose everything while staying up."""
        self.entries: dict[tuple[ChangeKind, str], tuple[ReportId, bytes]] = {}
        self.stream.clear()
        self.version = 0
        self._incarnation = ""
        self._ready_run_id = ""
        self.changed.fire()

    def stop(self) -> None:
        """Begin an outage: every call raises `UnreachableError`."""
        self.up = False
        self.changed.fire()

    def start(self) -> None:
        """End an outage with the data as it was."""
        self.up = True
        self.changed.fire()

    def restart(self, *, empty: bool) -> None:
        """Come back as another run of the server, with or without the data."""
        self._run_id = f"memory-run-{next(self._runs)}"
        if empty:
            self.flush()
        self.start()

    def meta(self) -> StoreMeta:
        """Return the identity and version."""
        ready = self._ready_run_id == self._run_id
        return StoreMeta(self._incarnation, self._run_id, self.version, ready)

    def claim(self) -> None:
        """Give an empty store its incarnation."""
        if not self._incarnation:
            self._incarnation = f"memory-{next(_incarnations)}"

    def set_ready(self, claimed: StoreMeta) -> bool:
        """Mark ready if it is still that incarnation and run."""
        if (claimed.incarnation, claimed.run_id) != (self._incarnation, self._run_id):
            return False
        self._ready_run_id = self._run_id
        self.changed.fire()
        return True

    def append(self, kind: ChangeKind, key: str, payload: bytes | None, *, live: bool) -> None:
        """Count one change and publish it to tailing readers."""
        self.claim()
        self.version += 1
        self.stream.append(Change(self.version, kind, key, payload, live))
        self.changed.fire()


class MemoryFleetStore:
    """One consumer's handle on a `MemoryStoreServer`; implements the `FleetStore` port."""

    def __init__(self, server: MemoryStoreServer) -> None:
        self._server = server
        self._seen: tuple[str, str] | None = None

    async def put(
        self, kind: ChangeKind, key: str, report_id: ReportId, payload: bytes, *, live: bool
    ) -> bool:
        """Set if `report_id` is newer than what is stored; return whether it was."""
        server = self._reach()
        stored = server.entries.get((kind, key))
        if stored is not None and report_id <= stored[0]:
            return False
        server.entries[kind, key] = (report_id, payload)
        server.append(kind, key, payload, live=live)
        return True

    async def remove(self, kind: ChangeKind, key: str) -> bool:
        """Remove an entry; return whether there was one."""
        server = self._reach()
        if server.entries.pop((kind, key), None) is None:
            return False
        server.append(kind, key, None, live=True)
        return True

    async def meta(self) -> StoreMeta:
        """Return identity, version and readiness."""
        return self._reach().meta()

    async def claim(self) -> StoreMeta:
        """Return the meta after making sure that there is an incarnation."""
        server = self._reach()
        server.claim()
        return server.meta()

    async def set_ready(self, claimed: StoreMeta) -> bool:
        """Mark the store as filled; False when it is another store or run by now."""
        return self._reach().set_ready(claimed)

    async def list(self) -> Listing:
        """Return everything, true at `meta.version`."""
        server = self._reach()
        meta = server.meta()
        self._seen = (meta.incarnation, meta.run_id)
        return Listing(
            meta,
            tuple(
                Change(meta.version, kind, key, payload, live=False)
                for (kind, key), (_, payload) in server.entries.items()
            ),
        )

    async def tail(self, after_version: int, wait: Duration) -> Sequence[Change]:
        """Return the changes after `after_version`, waiting up to `wait` for the first."""
        changes = self._after(after_version)
        if not changes:
            server = self._server
            await server.changed.wait_within(server.clock, wait)
            changes = self._after(after_version)
        return changes

    async def close(self) -> None:
        """Nothing is held."""

    def _reach(self) -> MemoryStoreServer:
        if not self._server.up:
            raise UnreachableError("store in memory: stopped")
        return self._server

    def _after(self, version: int) -> Sequence[Change]:
        server = self._reach()
        meta = server.meta()
        identity = (meta.incarnation, meta.run_id)
        if self._seen is None:
            self._seen = identity
        if identity != self._seen:
            raise StreamGapError(f"the store is {identity}, the list came from {self._seen}")
        if meta.version < version:
            raise StreamGapError(f"the store is at version {meta.version}, below {version}")
        changes = [change for change in server.stream if change.version > version]
        if meta.version > version and (not changes or changes[0].version != version + 1):
            raise StreamGapError(f"changes after {version} were trimmed; the store is at {meta.version}")
        return changes
