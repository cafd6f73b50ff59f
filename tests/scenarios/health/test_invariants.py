"""What holds for any interleaving of events and time: properties over random stories."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.fleet import HealthState
from services.core.health.effects import StateChanged
from services.core.health.events import (
    BackPressured,
    ConnectFailed,
    FleetEvent,
    GatewayErrored,
    ListLoaded,
    ProbeFinished,
    ReportArrived,
    ReportRemoved,
    TrafficSucceeded,
    TrialFinished,
    TrialStarted,
)
from services.core.health.fleet_state import next_deadline, tick
from services.core.health.probes import next_probe_at, probes_due
from services.core.health.suspicion import NO_COUNTS, counted
from services.core.locality import ClusterId
from services.core.units import Instant, after, ms, seconds
from tests.core.health.samples import POLICY, Fleet, report, spec

CLUSTERS = ("a", "b", "c", "d")
UNPROBED = "d"
SERVING = frozenset({HealthState.HEALTHY, HealthState.DEGRADED, HealthState.STALE, HealthState.PROBATION})


@dataclass(frozen=True)
class Step:
    """`wait_ms` pass (ticked on time when `ticked`), then something happens to `cluster`."""

    wait_ms: int
    ticked: bool
    kind: str
    cluster: str
    number: int


KINDS = (
    "report",
    "report",
    "report",
    "old",
    "replayed",
    "list",
    "good",
    "good",
    "failed",
    "failed",
    "success",
    "connect",
    "error",
    "pressure",
    "trial",
    "trial-end",
    "tombstone",
)
STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from([0, 0, 1, 20, 200, 400, 500, 900, 1250, 3000, 30_000, 200_000]),
        st.sampled_from([True, True, True, False]),
        st.sampled_from(KINDS),
        st.sampled_from(CLUSTERS),
        st.integers(0, 3),
    ),
    max_size=120,
)


def event_of(step: Step, fleet: Fleet) -> FleetEvent:
    cluster = ClusterId(step.cluster)
    sequences = fleet.sequences
    if step.kind in {"report", "replayed", "list"}:
        sequences[step.cluster] = sequences.get(step.cluster, 0) + 1
    sequence = sequences.get(step.cluster, 0)
    told = report(step.cluster, sequence, observed=fleet.now)
    events: dict[str, FleetEvent] = {
        "report": ReportArrived(told, fleet.now),
        "old": ReportArrived(report(step.cluster, max(0, sequence - step.number), draining=True), fleet.now),
        "replayed": ReportArrived(told, fleet.now, live=False),
        "list": ListLoaded([told], fleet.now),
        "good": ProbeFinished(cluster, True, fleet.now, ms(10)),
        "failed": ProbeFinished(cluster, False, fleet.now, ms(10)),
        "success": TrafficSucceeded(cluster),
        "connect": ConnectFailed(cluster),
        "error": GatewayErrored(cluster),
        "pressure": BackPressured(cluster),
        "trial": TrialStarted(cluster),
        "trial-end": TrialFinished(cluster),
        "tombstone": ReportRemoved(cluster),
    }
    return events[step.kind]


def fleet_of_all() -> Fleet:
    return Fleet(*(spec(cluster, probed=cluster != UNPROBED) for cluster in CLUSTERS))


def wait(fleet: Fleet, step: Step) -> None:
    until = after(fleet.now, ms(step.wait_ms))
    if step.ticked:
        fleet.to(until)
    else:
        fleet.now = until


@settings(deadline=None)
@given(STEPS)
def test_the_view_is_monotone(steps: list[Step]) -> None:
    """An older (epoch, sequence) is never applied, not even after a tombstone."""
    fleet = fleet_of_all()
    newest = dict.fromkeys(CLUSTERS, -1)
    for step in steps:
        wait(fleet, step)
        fleet.feed(event_of(step, fleet))
        record = fleet.state.clusters[ClusterId(step.cluster)]
        applied = -1 if record.report_id is None else record.report_id.sequence
        assert applied >= newest[step.cluster]
        newest[step.cluster] = applied
        if step.kind == "old" and step.number and newest[step.cluster] == fleet.sequences.get(step.cluster):
            assert not record.draining


@settings(deadline=None)
@given(STEPS)
def test_returns_are_bounded(steps: list[Step]) -> None:
    """No cluster is let back from UNHEALTHY more than twice in any 600 s."""
    fleet = fleet_of_all()
    returns: dict[str, list[Instant]] = {cluster: [] for cluster in CLUSTERS}
    for step in steps:
        wait(fleet, step)
        for effect in fleet.feed(event_of(step, fleet)):
            if isinstance(effect, StateChanged) and effect.after is HealthState.PROBATION:
                returns[effect.cluster].append(fleet.now)
    for instants in returns.values():
        for first, third in zip(instants, instants[2:], strict=False):
            assert third - first >= POLICY.returns_window


@settings(deadline=None)
@given(STEPS)
def test_nobody_serves_without_a_sign_of_life(steps: list[Step]) -> None:
    """A cluster in a routable state has shown a live report or a good probe since it was last unknown."""
    fleet = fleet_of_all()
    alive: set[str] = set()
    for step in steps:
        wait(fleet, step)
        known = fleet.state.clusters[ClusterId(step.cluster)].report_id
        fleet.feed(event_of(step, fleet))
        applied = fleet.state.clusters[ClusterId(step.cluster)].report_id != known
        if (step.kind in {"report", "old"} and applied) or (step.kind == "good" and step.cluster != UNPROBED):
            alive.add(step.cluster)
        if step.kind == "tombstone":
            alive.discard(step.cluster)
        serving = {c for c, record in fleet.state.clusters.items() if record.state in SERVING}
        assert serving <= alive


@settings(deadline=None)
@given(STEPS)
def test_ticks_are_idempotent_and_deadlines_consistent(steps: list[Step]) -> None:
    """Ticking twice is ticking once, nothing changes before the deadline, and the sums are what they count."""
    fleet = fleet_of_all()
    for step in steps:
        wait(fleet, step)
        fleet.feed(event_of(step, fleet))
        deadline = next_deadline(fleet.state)
        assert deadline is not None
        assert tick(fleet.state, Instant(deadline - 1)) == (fleet.state, ())
        once, _ = tick(fleet.state, max(deadline, fleet.now))
        assert tick(once, max(deadline, fleet.now)) == (once, ())
        counts = NO_COUNTS
        for record in fleet.state.clusters.values():
            counts = counted(counts, record, 1)
        assert fleet.state.counts == counts
        assert fleet.state.suspects <= {c for c, record in fleet.state.clusters.items() if record.silent}


PERIOD = ms(500)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 499), min_size=4, max_size=4),
    st.lists(st.integers(0, 4999), min_size=3, max_size=3),
    st.sets(st.sampled_from(["a", "b"]), min_size=1, max_size=2),
    st.integers(3000, 9000),
    st.integers(1, 500),
)
def test_death_is_noticed_within_the_bound(
    phases: list[int], probe_phases: list[int], dying: set[str], death_ms: int, failing_ms: int
) -> None:
    """Whatever the phases of reports and probes: UNHEALTHY at most 2.25 s after the last report arrived.

    Probes of the dead fail after `failing_ms` (500: their timeout), those of the living answer.
    """
    fleet = fleet_of_all()
    start = fleet.now
    death = after(start, ms(death_ms))
    end = after(death, seconds(4))
    reports = {ClusterId(c): after(start, ms(phase)) for c, phase in zip(CLUSTERS, phases, strict=True)}
    started = {
        ClusterId(c): after(start, ms(phase) - seconds(5))
        for c, phase in zip(CLUSTERS, probe_phases, strict=False)
    }
    in_flight: dict[ClusterId, ProbeFinished] = {}
    lost: dict[str, Instant] = {}
    while fleet.now < end:
        for order in probes_due(fleet.state.clusters, POLICY, started, set(in_flight), fleet.now):
            dead = order.cluster in dying and fleet.now >= death
            rtt = ms(failing_ms) if dead else ms(20)
            started[order.cluster] = fleet.now
            in_flight[order.cluster] = ProbeFinished(order.cluster, not dead, after(fleet.now, rtt), rtt)
        moments = [end, *reports.values(), *(result.finished_at for result in in_flight.values())]
        due = next_probe_at(fleet.state.clusters, POLICY, started, set(in_flight), fleet.now)
        moments += [at for at in (due, next_deadline(fleet.state)) if at is not None]
        before = len(fleet.effects)
        fleet.to(min(moments))
        for cluster in [c for c, result in in_flight.items() if result.finished_at <= fleet.now]:
            fleet.feed(in_flight.pop(cluster))
        for cluster in [c for c, at in reports.items() if at <= fleet.now]:
            fleet.hear(cluster)
            reports[cluster] = after(reports[cluster], PERIOD)
            if cluster in dying and reports[cluster] >= death:
                del reports[cluster]
        for effect in fleet.effects[before:]:
            if isinstance(effect, StateChanged) and effect.after is HealthState.UNHEALTHY:
                lost[effect.cluster] = fleet.now
    assert set(lost) == dying
    for name in dying:
        quiet_since = fleet.state.clusters[ClusterId(name)].quiet_since
        assert lost[name] - quiet_since <= seconds(2.25)
