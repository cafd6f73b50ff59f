"""The pickers' prefix feed in memory: one bounded history that all feeds of a hub share.

The embedded default of the Redis feed, under the same contract suite. What batches hold is not known here.
"""

from collections import deque
from collections.abc import Sequence

from services.adapters.memory.signal import Signal
from services.adapters.ports import Clock, UnreachableError
from services.core.units import Duration

HISTORY_BATCHES = 4096


class MemoryPrefixHub:
    """Stands for the server; `up` is its outage switch."""

    def __init__(self, clock: Clock, history_batches: int = HISTORY_BATCHES) -> None:
        self.clock = clock
        self.up = True
        self.changed = Signal()
        self.count = 0
        self.history: deque[tuple[int, bytes]] = deque(maxlen=history_batches)


class MemoryPrefixFeed:
    """`PrefixFeed` on a hub."""

    def __init__(self, hub: MemoryPrefixHub) -> None:
        self._hub = hub

    async def announce(self, batches: Sequence[bytes]) -> None:
        """Append batches to the history."""
        hub = self._reach()
        for batch in batches:
            hub.count += 1
            hub.history.append((hub.count, batch))
        hub.changed.fire()

    async def tail(self, after: str, wait: Duration) -> tuple[str, Sequence[bytes]]:
        """Return what follows `after`, waiting up to `wait` for the first."""
        found = self._after(after)
        if not found and wait > 0:
            await self._hub.changed.wait_within(self._hub.clock, wait)
            found = self._after(after)
        return (str(found[-1][0]) if found else after), [batch for _, batch in found]

    async def close(self) -> None:
        """Nothing is held."""

    def _reach(self) -> MemoryPrefixHub:
        if not self._hub.up:
            raise UnreachableError("prefix feed in memory: stopped")
        return self._hub

    def _after(self, after: str) -> list[tuple[int, bytes]]:
        position = int(after) if after else 0
        return [entry for entry in self._reach().history if entry[0] > position]
