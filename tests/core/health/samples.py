"""Small fleets and reports for the tests of this room."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from services.core.fleet import HealthReport, HealthState, PoolReport, ReportId
from services.core.health.draft import EMPTY, FleetState
from services.core.health.effects import Effect
from services.core.health.events import FleetEvent, PolicyChanged, ProbeFinished, ReportArrived
from services.core.health.fleet_state import apply, next_deadline, tick
from services.core.health.record import ClusterRecord, unknown
from services.core.inference import ModelName
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.policy import ClusterSpec, HealthPolicy, ModelPolicy, PolicySnapshot
from services.core.units import NS_PER_MS, NS_PER_S, Duration, Instant, WallMs, after, ms, seconds

START = Instant(1_000 * NS_PER_S)
A, B, C = ClusterId("a"), ClusterId("b"), ClusterId("c")
MODEL = ModelName("llama")
EU = Locality(Region("eu-west"), Jurisdiction("eu"))
POLICY = HealthPolicy()


def at(seconds_later: float) -> Instant:
    return after(START, seconds(seconds_later))


def spec(cluster: str, *, probed: bool = True) -> ClusterSpec:
    probe_url = f"http://{cluster}:1/readyz" if probed else ""
    return ClusterSpec(ClusterId(cluster), EU, f"http://{cluster}:1", probe_url=probe_url)


def record(
    state: HealthState = HealthState.HEALTHY, *, probed: bool = True, silent: bool = False
) -> ClusterRecord:
    return replace(unknown(spec("a", probed=probed), START), state=state, silent=silent, heard=True)


def pool(model: ModelName = MODEL, ready: int = 2, total: int = 2, **measures: Any) -> PoolReport:
    return replace(PoolReport("pool", model, ready, total), **measures)


def report(
    cluster: str,
    sequence: int,
    *,
    epoch: int = 1,
    observed: Instant = START,
    pools: Sequence[PoolReport] = (pool(),),
    region: str = "eu-west",
    draining: bool = False,
) -> HealthReport:
    return HealthReport(
        ClusterId(cluster),
        ReportId(epoch, sequence),
        Region(region),
        EU.jurisdiction,
        WallMs(observed // NS_PER_MS),
        tuple(pools),
        draining,
    )


def policy(*specs: ClusterSpec, health: HealthPolicy = POLICY) -> PolicySnapshot:
    return PolicySnapshot(1, WallMs(0), specs, (ModelPolicy(MODEL),), health=health)


class Fleet:
    """A state that is moved on by events at given instants, gathering the effects."""

    def __init__(self, *specs: ClusterSpec, health: HealthPolicy = POLICY) -> None:
        self.state: FleetState = EMPTY
        self.now = START
        self.effects: list[Effect] = []
        self.sequences: dict[str, int] = {}
        self.feed(PolicyChanged(policy(*specs, health=health)))

    def feed(self, event: FleetEvent) -> tuple[Effect, ...]:
        self.state, effects = apply(self.state, event, self.now)
        self.effects += effects
        return effects

    def hear(self, *clusters: str, **options: Any) -> tuple[Effect, ...]:
        effects: tuple[Effect, ...] = ()
        for cluster in clusters:
            self.sequences[cluster] = self.sequences.get(cluster, 0) + 1
            arrived = report(cluster, self.sequences[cluster], observed=self.now)
            effects += self.feed(ReportArrived(replace(arrived, **options), self.now))
        return effects

    def probe(self, cluster: str, *, ok: bool, rtt: Duration = ms(20)) -> tuple[Effect, ...]:
        return self.feed(ProbeFinished(ClusterId(cluster), ok, self.now, rtt))

    def to(self, instant: Instant) -> list[Effect]:
        """Tick at every deadline up to `instant`, on time."""
        effects: list[Effect] = []
        while (deadline := next_deadline(self.state)) is not None and deadline <= instant:
            self.now = max(self.now, deadline)
            self.state, more = tick(self.state, self.now)
            effects += more
        self.now = instant
        self.effects += effects
        return effects

    def keep_hearing(self, until: Instant, *clusters: str) -> list[Effect]:
        """Let `clusters` report every 0.5 s until `until`."""
        effects: list[Effect] = []
        while self.now < until:
            effects += self.hear(*clusters)
            effects += self.to(min(until, after(self.now, ms(500))))
        return effects

    def state_of(self, cluster: str) -> HealthState:
        return self.state.clusters[ClusterId(cluster)].state
