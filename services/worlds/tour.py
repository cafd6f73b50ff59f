"""`gir demo --tour`: the story of a region's death and return and of a bus outage, under real load.

Each chapter does something to the demo world and waits; afterwards the claims are judged from the
evidence. A run in which the event loop lagged proves nothing and is played again. What a claim
demands is `claims`; the clients are `load`.
"""

import asyncio
import gc
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from services.adapters.system.tasks import TaskScope
from services.core.policy import HealthPolicy
from services.core.units import Duration, Instant, after, in_ms, ms, seconds, since
from services.worlds.claims import (
    CATCH_UP_LIMIT,
    Claim,
    Death,
    Outage,
    bus_outage_unnoticed,
    last_request_within_3s,
    region_death_no_error,
    steady,
)
from services.worlds.claims_return import SHARE_BIN, Return, ramped_return
from services.worlds.demo import Demo, DemoOptions, running_demo, told_to_stop
from services.worlds.load import Crowd, Load, Shape
from services.worlds.topology import LARGE_MODEL, REGIONS, SMALL_MODEL, WorldPlan
from services.worlds.tour_evidence import LAG_LIMIT, TRUSTED, Watch, dispatches_of
from services.worlds.tour_network import SwitchedLoop

DYING: Final = "us-east"
SURVIVORS: Final = tuple(region for region in REGIONS if region != DYING)
WITNESS: Final = "eu-west"
"""The door whose router needs the dying region: it alone serves the large model from elsewhere."""

STEADY: Final = seconds(8)
DEAD: Final = seconds(10)
OUTAGE: Final = seconds(8)
RAMP_WINDOW: Final = seconds(20)
"""A third of the default, so that the tour stays short; everything else about the return is the default."""
UNKIND_MOMENT: Final = seconds(10)
RETURN_LIMIT: Final = seconds(60)
"""Five trials of one request in forty take about ten seconds at this load; a draw may be unlucky for long."""
SETTLE_LIMIT: Final = seconds(10)
LOOK_AGAIN: Final = ms(10)
RUNS_MAX: Final = 3

HELD: Final = 0
BROKEN: Final = 1

_CHAT: Final = Shape("chat", SMALL_MODEL, stream=True, max_tokens=64, think=ms(200))
_SHORT: Final = Shape("short", LARGE_MODEL, stream=False, max_tokens=12, think=ms(80))
_LONG: Final = Shape("long", LARGE_MODEL, stream=False, max_tokens=400, think=ms(100))
_STREAM: Final = Shape("stream", LARGE_MODEL, stream=True, max_tokens=200, think=ms(100))
_SLOW_START: Final = Shape(
    "slow start", LARGE_MODEL, stream=True, max_tokens=40, think=ms(100), prompt_tokens=16_000
)
_BULKY: Final = Shape(
    "bulky", LARGE_MODEL, stream=False, max_tokens=100, think=seconds(1), padding_bytes=1_000_000
)
CROWDS: Final = (
    Crowd(WITNESS, _CHAT, 2),
    Crowd(WITNESS, _SHORT, 6),
    Crowd(WITNESS, _LONG, 6),
    Crowd(WITNESS, _STREAM, 3),
    Crowd(WITNESS, _SLOW_START, 2),
    Crowd(WITNESS, _BULKY, 1),
    Crowd("ap-south", _CHAT, 2),
    Crowd("ap-south", _LONG, 2),
    Crowd(DYING, _CHAT, 2),
    Crowd(DYING, _LONG, 2),
)

Say = Callable[[str], None]


class TooSlowError(Exception):
    """The event loop lagged beyond what the run may be judged by."""

    def __init__(self, lag: Duration) -> None:
        super().__init__(f"the event loop was {in_ms(lag):.0f} ms late, more than {in_ms(LAG_LIMIT):.0f} ms")
        self.lag = lag


class StoppedError(Exception):
    """Somebody asked the tour to stop, or a part of the world ended by itself."""


@dataclass(frozen=True, slots=True)
class TourOptions:
    """How the region dies (`black_hole`: its network does, instead of its hosts) and whether figures follow as JSON."""

    black_hole: bool = False
    as_json: bool = False


async def tour(options: TourOptions, demo: DemoOptions) -> int:
    """Play the story and print the claims. 0 when each held, 1 when one did not. Raises `CannotStartError`.

    On real parts it must run in a `SwitchedLoop`, which is how it takes them away from itself.
    """
    stop = told_to_stop()
    loop = asyncio.get_running_loop()
    switch = loop if isinstance(loop, SwitchedLoop) else None
    if demo.bus.kafka and switch is None:
        raise RuntimeError("a tour on real parts needs a SwitchedLoop")
    health = HealthPolicy(ramp_window=RAMP_WINDOW)
    for run in range(1, RUNS_MAX + 1):
        try:
            async with running_demo(demo, health=health, switch=switch) as world:
                if switch is not None:
                    switch.inside = ports_of(world.world.plan)
                story = Story(world, options, _say, stop)
                return _report(await story.play(), options)
        except TooSlowError as error:
            _say(f"run {run} is void: {error}")
        except StoppedError as error:
            _say(f"stopped: {error}")
            return _report([], options, error="stopped")
    return _report([], options, error="machine_too_slow")


def ports_of(plan: WorldPlan) -> frozenset[int]:
    """Return every port that services of the world speak to each other on."""
    return frozenset(
        (
            *(port for region in plan.regions for port in (region.router.http.port, region.router.grpc.port)),
            *(port for c in plan.clusters for port in (c.picker.http.port, c.picker.grpc.port)),
            *(pod.port for cluster in plan.clusters for pod in cluster.pods),
        )
    )


class Story:
    """One playing of the tour in one world."""

    def __init__(self, demo: Demo, options: TourOptions, say: Say, stop: asyncio.Event) -> None:
        self._demo = demo
        self._world = demo.world
        self._options = options
        self._say = say
        self._stop = stop
        self._clock = demo.world.clock
        self._began = demo.world.clock.now()
        self._watch = Watch(demo.world)
        self._scope = TaskScope(self._task_failed)
        self._load = Load(demo.token, demo.world.clock, self._scope)
        self._ports = {region: demo.door(region) for region in REGIONS}
        self._dying = frozenset(plan.picker.cluster for plan in demo.world.plan.clusters_in(DYING))
        self._failure: BaseException | None = None

    async def play(self) -> list[Claim]:
        """Play every chapter and return the claims. Raises `TooSlowError`, `StoppedError`."""
        gc.collect()
        self._scope.spawn(self._watch.look_for_ever(), "watch")
        self._scope.spawn(self._watch.measure_lag_for_ever(), "lag")
        try:
            self._load.start(CROWDS, self._ports)
            calm = await self._chapter_steady()
            death = await self._chapter_death()
            returned_at, ramped_at = await self._chapter_return()
            outage = await self._chapter_outage()
            self._tell("the load ends")
            for region in REGIONS:
                await self._load.finish(region)
            self._check_lag()
            return self._judge(calm, death, (returned_at, ramped_at), outage)
        finally:
            await self._scope.close()
            gc.unfreeze()

    # --- Chapters -------------------------------------------------------------------------------------

    async def _chapter_steady(self) -> tuple[Instant, Instant]:
        self._chapter(
            "steady load at three doors: streams, long answers, bodies of 1 MB; clients never retry"
        )
        await self._wait(seconds(1))
        self._watch.reset_lag()
        start = self._clock.now()
        await self._wait(STEADY)
        return start, self._clock.now()

    async def _chapter_death(self) -> Death:
        await self._until(self._unkind_moment, UNKIND_MOMENT)
        how = "its network goes dark" if self._options.black_hole else "every socket reset, every task gone"
        killed_at = self._clock.now()
        if self._options.black_hole:
            await self._world.black_hole(DYING)
        else:
            await self._world.kill(DYING)
        dead_at = self._clock.now()
        self._chapter(f"{DYING} has died ({how}); its own clients are cut off with it")
        await self._load.drop(DYING)
        await self._wait(Duration(DEAD - since(killed_at, self._clock.now())))
        if self._options.black_hole:
            await self._world.kill(DYING)
        return Death(self._dying, killed_at, dead_at, self._clock.now())

    async def _chapter_return(self) -> tuple[Instant, Instant]:
        returned_at = self._clock.now()
        await self._world.restart(DYING)
        self._tell(
            f"{DYING} is back on the same ports; the policy's ramp lasts {in_ms(RAMP_WINDOW) / 1000:.0f} s"
        )
        self._load.start([crowd for crowd in CROWDS if crowd.door == DYING], self._ports)
        came_back = await self._until(lambda: self._watch.sees(WITNESS, self._dying, TRUSTED), RETURN_LIMIT)
        if came_back:
            self._tell(f"{WITNESS} has tried {DYING} and trusts it again; its share grows")
        await self._wait(Duration(RAMP_WINDOW + SHARE_BIN))
        return returned_at, self._clock.now()

    async def _chapter_outage(self) -> Outage:
        # On a busy machine a router may keep a cluster away that it has seen die too often of late.
        await self._until(lambda: len(self._trusted()) == len(self._pairs()), SETTLE_LIMIT)
        watched = self._trusted()
        cut_at = self._clock.now()
        self._demo.parts.cut()
        self._chapter("bus and stores are gone")
        await self._wait(OUTAGE)
        restored_at = self._clock.now()
        self._demo.parts.restore()
        self._chapter("bus and stores are back")
        caught_up = await self._until(lambda: self._watch.heard_since(restored_at, watched), CATCH_UP_LIMIT)
        return Outage(cut_at, restored_at, self._clock.now() if caught_up else None, watched)

    def _chapter(self, title: str) -> None:
        """Begin a chapter. What is alive now is set aside from the garbage collector.

        Two dozen services share one heap here, and a full collection over all of it would stop each of them
        for as long as it takes over all; a process of its own has a twentieth of it.
        """
        gc.freeze()
        self._tell(title)

    # --- Judging --------------------------------------------------------------------------------------

    def _judge(
        self,
        calm: tuple[Instant, Instant],
        death: Death,
        back: tuple[Instant, Instant],
        outage: Outage,
    ) -> list[Claim]:
        samples, sightings, world = self._load.samples, self._watch.sightings, self._world
        streams = {sample.request_id for sample in samples if sample.shape.stream}
        routers = [*world.retired, *(region.router for region in world.regions.values())]
        dispatches = dispatches_of(routers, streams)
        clusters = [plan.picker.cluster for plan in world.plan.clusters]
        last_reports = {
            cluster: at
            for cluster in death.clusters
            if (at := world.sent.last_before(cluster, death.until)) is not None
        }
        return [
            steady(samples, clusters, *calm),
            region_death_no_error(samples, dispatches, SURVIVORS, death),
            last_request_within_3s(dispatches, sightings, last_reports, SURVIVORS, death),
            ramped_return(dispatches, sightings, self._return(*back)),
            bus_outage_unnoticed(samples, sightings, outage, clusters),
        ]

    def _return(self, returned_at: Instant, until: Instant) -> Return:
        capacities = {
            plan.picker.cluster: float(
                sum(
                    endpoint.capacity_requests or 0
                    for pool in plan.picker.pools
                    if LARGE_MODEL in pool.names
                    for endpoint in pool.endpoints
                )
            )
            for plan in self._world.plan.clusters
        }
        serving = {cluster: capacity for cluster, capacity in capacities.items() if capacity}
        policy = self._world.plan.policy.health
        return Return(self._dying, WITNESS, LARGE_MODEL, serving, returned_at, until, policy)

    def _trusted(self) -> frozenset[tuple[str, str]]:
        return frozenset(
            (router, cluster)
            for router, cluster in self._pairs()
            if self._watch.sees(router, (cluster,), TRUSTED)
        )

    def _pairs(self) -> list[tuple[str, str]]:
        return [(region, plan.picker.cluster) for region in REGIONS for plan in self._world.plan.clusters]

    # --- Waiting --------------------------------------------------------------------------------------

    def _unkind_moment(self) -> bool:
        """Whether dying now would catch long answers and a stream before their first byte, and a stream after it."""
        whole = unbegun = begun = 0
        for live in self._world.regions[WITNESS].router.life.live:
            if not live.record.attempts or live.record.attempts[-1].cluster not in self._dying:
                continue
            if not live.inference.stream:
                whole += 1
            elif live.record.first_byte_at is None:
                unbegun += 1
            else:
                begun += 1
        return whole >= 2 and unbegun >= 1 and begun >= 1

    async def _until(self, condition: Callable[[], bool], limit: Duration) -> bool:
        deadline = after(self._clock.now(), limit)
        while not condition():
            if self._clock.now() >= deadline:
                return False
            await self._wait(LOOK_AGAIN)
        return True

    async def _wait(self, span: Duration) -> None:
        """Wait, and stop at once when the run is void, a part has failed or somebody wants to leave."""
        deadline = after(self._clock.now(), span)
        while True:
            self._check_lag()
            if self._stop.is_set():
                raise StoppedError("asked to")
            if self._world.failed.is_set() or self._failure is not None:
                raise StoppedError(f"a part of the world ended by itself ({self._failure or 'see the log'})")
            left = deadline - self._clock.now()
            if left <= 0:
                return
            await self._clock.sleep(Duration(min(left, LOOK_AGAIN * 5)))

    def _check_lag(self) -> None:
        if self._watch.lag > LAG_LIMIT:
            raise TooSlowError(self._watch.lag)

    def _task_failed(self, name: str, failure: BaseException) -> None:
        self._failure = RuntimeError(f"{name}: {failure!r}")

    def _tell(self, what: str) -> None:
        self._say(f"[{in_ms(since(self._began, self._clock.now())) / 1000:5.1f} s] {what}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _report(claims: list[Claim], options: TourOptions, error: str = "") -> int:
    ok = bool(claims) and all(claim.held for claim in claims)
    for claim in claims:
        _say("")
        _say(f"{'held  ' if claim.held else 'BROKEN'} {claim.name}{': ' if claim.why else ''}{claim.why}")
        for name, value in claim.figures.items():
            _say(f"         {name}: {value}")
    if options.as_json:
        _say(json.dumps(outcome(ok, claims, error)))
    elif error:
        _say(f"the tour proves nothing: {error}")
    return HELD if ok else BROKEN


def outcome(ok: bool, claims: list[Claim], error: str) -> Mapping[str, object]:
    """Return the last line of `--json` as a document; a figure that has no number is null."""
    rows = [
        {"name": c.name, "held": c.held, "figures": {k: _finite(v) for k, v in c.figures.items()}}
        for c in claims
    ]
    return {"ok": ok, "claims": rows} | ({"error": error} if error else {})


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
