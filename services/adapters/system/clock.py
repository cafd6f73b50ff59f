"""The real clock: CLOCK_MONOTONIC for instants, Unix time for reports, tokens and ids.

The only module besides `ids` that reads time from the system. Virtual time is
`adapters/memory/clock.py`.
"""

import asyncio
import time

from services.core.units import NS_PER_S, Duration, Instant, WallMs


class SystemClock:
    """`Clock` port over the operating system. CLOCK_MONOTONIC is shared by all processes of a host."""

    __slots__ = ()

    def now(self) -> Instant:
        """Return monotonic nanoseconds."""
        return Instant(time.monotonic_ns())

    def wall_ms(self) -> WallMs:
        """Return Unix milliseconds."""
        return WallMs(time.time_ns() // 1_000_000)

    async def sleep(self, span: Duration) -> None:
        """Wait `span` nanoseconds; a span of zero or less yields to the loop once."""
        await asyncio.sleep(max(span, 0) / NS_PER_S)
