"""Virtual time: a clock that moves only when told, for tests and simulation.

Sleepers wake in the order of their deadlines, ties in the order they went to sleep. No
real time passes here and nothing else of the memory room keeps time. Apart because any
port may be driven by it.
"""

import asyncio
import heapq
import itertools

from services.core.units import NS_PER_MS, Duration, Instant, WallMs

SETTLE_TURNS = 50
"""Loop turns given to woken tasks at each step: longer than any chain of awaits in the code under
test, so that a step's consequences are complete before time moves on."""

DEFAULT_WALL_MS = WallMs(1_750_000_000_000)


class VirtualClock:
    """A `Clock` whose `now` starts at 1 s and advances by `advance` alone."""

    def __init__(self, wall_ms: WallMs = DEFAULT_WALL_MS) -> None:
        self._now = 1_000_000_000
        self._wall_offset_ms = wall_ms - self._now // NS_PER_MS
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now(self) -> Instant:
        """Return the virtual monotonic instant in nanoseconds."""
        return Instant(self._now)

    def wall_ms(self) -> WallMs:
        """Return the virtual wall clock; it follows `now` from where it was last set."""
        return WallMs(self._wall_offset_ms + self._now // NS_PER_MS)

    def set_wall_ms(self, wall_ms: WallMs) -> None:
        """Step the wall clock, forwards or backwards, as NTP or an operator would."""
        self._wall_offset_ms = wall_ms - self._now // NS_PER_MS

    async def sleep(self, span: Duration) -> None:
        """Wait until `span` nanoseconds of virtual time have been advanced."""
        if span <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + span, next(self._order), woken))
        await woken

    async def advance(self, span: Duration) -> None:
        """Move time on by `span`, stopping at each deadline so that its sleeper acts at its instant."""
        await self.settle()
        target = self._now + span
        while self._sleepers and self._sleepers[0][0] <= target:
            deadline, _, woken = heapq.heappop(self._sleepers)
            if woken.done():  # Its task was cancelled while asleep.
                continue
            self._now = max(self._now, deadline)
            woken.set_result(None)
            await self.settle()
        self._now = target
        await self.settle()

    def pause(self, span: Duration) -> None:
        """Let `span` pass while the process is stopped: who sleeps wakes late, at the next `advance`."""
        self._now += span

    async def settle(self) -> None:
        """Let every runnable task run until it waits again; time stands still."""
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)
