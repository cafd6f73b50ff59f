"""Steady traffic through the doors while a story happens, and whether the machine kept up meanwhile.

The clients are those of the tour (`services.worlds.load`): raw HTTP, no retry of any kind. A run during which
this process or the judging router was held up for longer than the router's own limit proves nothing and is
void; `judged` repeats it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from services.adapters.system.clock import SystemClock
from services.adapters.system.tasks import TaskScope
from services.core.units import Instant, in_ms, ms
from services.worlds.load import Crowd, Load, Sample, Shape
from tests.scenarios.processes.fleet import ProcessFleet
from tests.scenarios.processes.plan import EU, LARGE, SMALL, US
from tests.support.wait import eventually

CLOCK = SystemClock()
STALL = ms(250)
TRIES = 3
PATIENCE_S = 60.0
LARGEST_BODY_BYTES = 1 << 20
"""Bodies up to this size are kept for replay; the promise of the failover is made for these."""
_BODY_WITHOUT_PADDING_BYTES = 1024

LONG_ANSWER = Shape("long answer", LARGE, False, 250, ms(100))
LONG_STREAM = Shape("long stream", LARGE, True, 250, ms(100))
SHORT_ANSWER = Shape("short answer", LARGE, False, 10, ms(100))
SHORT_STREAM = Shape("short stream", LARGE, True, 20, ms(50))
LARGE_BODY = Shape(
    "large body",
    LARGE,
    False,
    10,
    ms(300),
    padding_bytes=LARGEST_BODY_BYTES - _BODY_WITHOUT_PADDING_BYTES,
)
NEAR_ANSWER = Shape("near answer", SMALL, False, 10, ms(100))
NEAR_STREAM = Shape("near stream", SMALL, True, 60, ms(100))

STEADY = (
    Crowd(EU, LONG_ANSWER, 4),
    Crowd(EU, LONG_STREAM, 4),
    Crowd(EU, SHORT_ANSWER, 5),
    Crowd(EU, SHORT_STREAM, 7),
    Crowd(EU, LARGE_BODY, 1),
    Crowd(EU, NEAR_ANSWER, 1),
)
"""Mostly the model that the first region lacks, so that most of it is in flight at the other two."""
BOTH_DOORS = (
    Crowd(EU, SHORT_ANSWER, 2),
    Crowd(EU, SHORT_STREAM, 1),
    Crowd(EU, NEAR_ANSWER, 2),
    Crowd(EU, NEAR_STREAM, 1),
    Crowd(US, SHORT_ANSWER, 2),
    Crowd(US, NEAR_STREAM, 2),
)


class MachineStalledError(Exception):
    """The run is void: the message says who was held up and for how long."""


class LagMeter:
    """How late this process runs what is due: the largest overshoot of a short sleep since `reset`."""

    PERIOD = ms(10)

    def __init__(self) -> None:
        self.worst = 0

    def reset(self) -> None:
        self.worst = 0

    async def run(self) -> None:
        while True:
            before = CLOCK.now()
            await CLOCK.sleep(self.PERIOD)
            self.worst = max(self.worst, CLOCK.now() - before - self.PERIOD)


@dataclass(slots=True)
class Traffic:
    """Running traffic. `samples` grow while it runs; every one of them is judged."""

    load: Load
    meter: LagMeter
    fleet: ProcessFleet
    doors: frozenset[str]
    _late_ticks: dict[str, float] = field(default_factory=dict)

    @property
    def samples(self) -> list[Sample]:
        return self.load.samples

    async def in_flight(self, clusters: Collection[str], count: int) -> None:
        """Return once the first region's router has `count` requests in flight at `clusters` together."""
        names = [f'gir_cluster_in_flight_requests{{cluster="{cluster}"}}' for cluster in clusters]

        def enough() -> bool:
            metrics = self.fleet.metrics(EU)
            return sum(metrics[name] for name in names) >= count

        await polled(enough, f"{count} requests in flight at {sorted(clusters)}")

    async def answers(self, count: int, since: Instant) -> None:
        """Return once `count` requests sent after `since` have ended."""
        await eventually(
            lambda: sum(sample.sent_at >= since for sample in self.samples) >= count,
            PATIENCE_S,
            f"{count} answers",
        )

    async def watch_for_stalls(self) -> None:
        """Judge stalls from here on."""
        self.meter.reset()
        for door in self.doors:
            self._late_ticks[door] = await self._late(door)

    async def check_for_stalls(self, *doors: str) -> None:
        """Raise `MachineStalledError` if this process or a router of `doors` was held up since."""
        if self.meter.worst > STALL:
            raise MachineStalledError(f"this process was held up for {in_ms(self.meter.worst):.0f} ms")
        for door in doors:
            if await self._late(door) > self._late_ticks[door]:
                raise MachineStalledError(f"the router of {door} was held up")

    async def finish(self) -> None:
        """Let every client end what it is at."""
        await asyncio.gather(*(self.load.finish(door) for door in self.doors))

    async def _late(self, door: str) -> float:
        metrics = await asyncio.to_thread(self.fleet.metrics, door)
        return metrics["gir_router_late_ticks_total"]


@asynccontextmanager
async def traffic(fleet: ProcessFleet, crowds: Sequence[Crowd]) -> AsyncIterator[Traffic]:
    """Send the crowds to their doors; whoever is still there at the end is cut off."""
    broken: list[BaseException] = []
    scope = TaskScope(lambda _, failure: broken.append(failure))
    running = Traffic(
        Load(fleet.token, CLOCK, scope), LagMeter(), fleet, frozenset(crowd.door for crowd in crowds)
    )
    running.load.start(crowds, {door: fleet.door(door) for door in running.doors})
    scope.spawn(running.meter.run(), "lag meter")
    try:
        yield running
    finally:
        await scope.close()
    assert broken == []


async def settled(fleet: ProcessFleet) -> None:
    """Bring back whatever an earlier story ended, and return when both routers route as at the start.

    A cluster on probation needs traffic to prove itself, so there is some. The second router sends nothing
    abroad while its own clusters are well, and is asked for those only.
    """
    await asyncio.to_thread(fleet.restore)
    async with traffic(fleet, BOTH_DOORS) as gentle:
        await polled(lambda: fleet.serving(EU), "the first region to route as at the start")
        at_home = fleet.plan.clusters_of(US)
        await polled(lambda: fleet.serving(US, at_home), "the second region to route at home")
        await gentle.finish()


async def polled(ready: Callable[[], bool], what: str, deadline_s: float = PATIENCE_S) -> None:
    """Return once `ready`, which may block and runs in a thread, says yes."""
    last = time.monotonic() + deadline_s
    while not await asyncio.to_thread(ready):
        if time.monotonic() > last:
            raise TimeoutError(f"not within {deadline_s:g} s: {what}")
        await asyncio.sleep(0.05)


async def judged(run: Callable[[], Awaitable[None]]) -> None:
    """Run until a run is not void, at most three times."""
    voids = []
    for _ in range(TRIES):
        try:
            return await run()
        except MachineStalledError as stall:
            voids.append(str(stall))
    pytest.fail(f"the machine is too slow to judge this: {'; '.join(voids)}")
