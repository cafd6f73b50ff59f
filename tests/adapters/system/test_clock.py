"""The system clock is monotonic and speaks Unix milliseconds."""

import time

from services.adapters.system.clock import SystemClock
from services.core.units import Duration, ms


async def test_instants_grow_and_sleep_waits_at_least_its_span() -> None:
    clock = SystemClock()
    start = clock.now()
    await clock.sleep(ms(5))
    assert clock.now() - start >= ms(4)
    await clock.sleep(Duration(-1))
    assert abs(clock.wall_ms() - time.time_ns() // 1_000_000) < 60_000
