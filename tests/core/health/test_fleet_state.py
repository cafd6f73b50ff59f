from services.core.fleet import HealthState, ReportId
from services.core.health.draft import EMPTY, PAUSE_CHECK
from services.core.health.effects import (
    BusSuspected,
    BusTrusted,
    ClusterLost,
    ClusterRestored,
    Reason,
    RouterIsolated,
    RouterRejoined,
    StateChanged,
    TimersRestarted,
)
from services.core.health.events import (
    BackPressured,
    ConnectFailed,
    GatewayErrored,
    ListLoaded,
    ReportArrived,
    ReportRemoved,
    TrafficSucceeded,
    TrialFinished,
    TrialStarted,
)
from services.core.health.fleet_state import apply, next_deadline, tick
from services.core.locality import ClusterId
from services.core.units import after, ms, seconds
from tests.core.health.samples import START, A, B, C, Fleet, at, report, spec

HEALTHY, STALE, UNHEALTHY, PROBATION = (
    HealthState.HEALTHY,
    HealthState.STALE,
    HealthState.UNHEALTHY,
    HealthState.PROBATION,
)


def heard(*clusters: str, probed: bool = True) -> Fleet:
    fleet = Fleet(*(spec(cluster, probed=probed) for cluster in clusters))
    fleet.hear(*clusters)
    return fleet


def test_an_empty_fleet_has_no_deadline_and_nothing_to_tick() -> None:
    assert next_deadline(EMPTY) is None
    assert tick(EMPTY, at(9)) == (EMPTY, ())
    assert apply(EMPTY, ReportArrived(report("a", 1), START), START)[0].clusters == {}


def test_before_the_deadline_nothing_changes() -> None:
    state = heard("a", "b").state
    deadline = next_deadline(state)
    assert deadline is not None
    assert tick(state, after(deadline, -1)) == (state, ())


def test_a_deadline_comes_at_least_every_pause_check() -> None:
    fleet = Fleet(spec("a"))
    assert next_deadline(fleet.state) == after(START, PAUSE_CHECK)


def test_silence_makes_stale_and_nothing_more_while_probes_answer() -> None:
    fleet = heard("a", "b", "c")
    assert fleet.keep_hearing(at(1.2), "b", "c") == []
    assert fleet.keep_hearing(at(2.9), "b", "c") == [StateChanged(A, HEALTHY, STALE, Reason.SILENT)]


def test_without_any_witness_three_seconds_condemn() -> None:
    fleet = heard("a", "b", "c", probed=False)
    fleet.keep_hearing(at(2.9), "b", "c")
    assert fleet.state_of("a") is STALE
    assert fleet.keep_hearing(at(3.5), "b", "c") == [
        StateChanged(A, STALE, UNHEALTHY, Reason.SILENT),
        ClusterLost(A, Reason.SILENT),
    ]


def test_a_prober_that_stopped_is_no_witness() -> None:
    """With a probe URL but no results, the last good probe counts for 3 s like a report."""
    fleet = heard("a", "b", "c")
    fleet.keep_hearing(at(2), "b", "c")
    fleet.probe("a", ok=True)
    fleet.keep_hearing(at(4.5), "b", "c")
    assert fleet.state_of("a") is STALE
    fleet.keep_hearing(at(5), "b", "c")
    assert fleet.state_of("a") is UNHEALTHY


def test_a_late_tick_restarts_the_timers_of_everyone() -> None:
    fleet = heard("a", "b")
    fleet.to(at(0.5))
    fleet.now = at(60)
    fleet.state, effects = tick(fleet.state, fleet.now)
    assert effects == (TimersRestarted(seconds(59)),)
    assert fleet.state.clusters[A].quiet_since == at(60)
    assert fleet.state_of("a") is HEALTHY


def test_a_tick_within_the_tolerance_judges() -> None:
    fleet = heard("a", "b", "c")
    fleet.to(at(1.24))
    deadline = next_deadline(fleet.state)
    assert deadline == at(1.25)
    state, effects = tick(fleet.state, after(deadline, ms(250)))
    assert effects[0] == BusSuspected((A, B, C))
    assert state.clusters[A].state is STALE


def test_a_late_report_before_the_tick_notices_the_pause_too() -> None:
    fleet = heard("a", "b")
    fleet.now = at(9)
    effects = fleet.hear("a")
    assert isinstance(effects[0], TimersRestarted)
    assert fleet.state_of("b") is HEALTHY


def test_a_report_comes_before_the_silence_it_ends() -> None:
    fleet = heard("a", "b")
    fleet.to(at(1.2))
    fleet.now = at(1.3)
    assert fleet.hear("a", "b") == ()


def test_an_ejection_ends_by_time_and_on_a_ramp() -> None:
    fleet = heard("a", "b")
    for _ in range(3):
        fleet.feed(ConnectFailed(A))
    effects = fleet.keep_hearing(at(30), "a", "b")
    assert effects == [ClusterRestored(A)]
    assert fleet.state.clusters[A].ramp_from == at(30)


def test_the_bus_is_suspected_once_and_trusted_when_half_are_heard() -> None:
    fleet = heard("a", "b", "c", probed=False)
    fleet.keep_hearing(at(1), "c")
    effects = fleet.to(at(60))
    assert effects.count(BusSuspected((A, B))) == 1
    assert fleet.state.suspects == {A, B, C}
    assert fleet.state_of("a") is STALE
    assert BusTrusted() not in fleet.hear("a")
    assert BusTrusted() in fleet.hear("b")
    assert fleet.state.grace_from == at(60)
    fleet.keep_hearing(at(62.9), "a", "b")
    assert fleet.state_of("c") is STALE
    fleet.keep_hearing(at(63.5), "a", "b")
    assert fleet.state_of("c") is UNHEALTHY


def probation() -> Fleet:
    fleet = heard("a", "b", "c")
    for cluster in ("b", "c"):
        fleet.probe(cluster, ok=True)
    for ok in (False, False, False, True, True):
        fleet.probe("a", ok=ok)
    fleet.hear("a")
    assert fleet.state_of("a") is PROBATION
    return fleet


def test_silence_on_probation_is_the_clusters_own_fault() -> None:
    fleet = probation()
    fleet.keep_hearing(at(1.5), "b", "c")
    assert fleet.state_of("a") is UNHEALTHY


def test_silence_on_probation_means_nothing_while_the_bus_is_suspect() -> None:
    fleet = probation()
    fleet.to(at(1.5))
    assert fleet.state_of("a") is PROBATION
    assert fleet.state.suspects == {A, B, C}
    fleet.hear("b", "c")
    assert fleet.state.suspects == set()
    fleet.keep_hearing(at(4.4), "b", "c")
    assert fleet.state_of("a") is PROBATION
    fleet.keep_hearing(at(5), "b", "c")
    assert fleet.state_of("a") is UNHEALTHY


def test_an_isolated_router_keeps_its_verdicts_and_rejoins_by_one_answer() -> None:
    fleet = heard("a", "b")
    fleet.to(at(1.25))
    assert fleet.probe("a", ok=False) == ()
    assert fleet.probe("b", ok=False) == (RouterIsolated(),)
    for _ in range(5):
        assert fleet.probe("a", ok=False) + fleet.probe("b", ok=False) == ()
    fleet.to(at(30))
    assert fleet.state_of("a") is STALE
    assert RouterRejoined() in fleet.probe("a", ok=True)
    assert fleet.probe("b", ok=False) == ()
    assert ClusterLost(B, Reason.UNREACHABLE) in fleet.probe("b", ok=False)


def test_a_policy_without_clusters_ends_every_suspicion() -> None:
    fleet = Fleet()
    assert next_deadline(fleet.state) is None
    assert not fleet.state.isolated


def test_what_is_not_yet_told_apart_by_state_goes_to_its_own_rule() -> None:
    """Every kind of event reaches its rule; a pressure changes nothing, an unknown cluster nothing either."""
    fleet = heard("a", "b", "c")
    before = fleet.state
    assert fleet.feed(BackPressured(A)) == ()
    assert fleet.feed(TrafficSucceeded(ClusterId("nobody"))) == ()
    assert fleet.state == before
    fleet.feed(TrafficSucceeded(A))
    for _ in range(4):
        fleet.feed(GatewayErrored(A))
    assert not fleet.state.clusters[A].outlier.ejected
    fleet.feed(GatewayErrored(A))
    assert fleet.state.clusters[A].outlier.ejected
    fleet.feed(ListLoaded((report("b", 99),), fleet.now))
    assert fleet.state.clusters[B].report_id == ReportId(1, 99)
    fleet.feed(ReportRemoved(B))
    assert fleet.state_of("b") is HealthState.UNKNOWN


def test_trials_are_counted_in_and_out() -> None:
    fleet = heard("a", "b", "c")
    fleet.keep_hearing(at(1.3), "b", "c")
    fleet.probe("a", ok=False)
    fleet.probe("a", ok=False)
    assert fleet.state_of("a") is UNHEALTHY
    fleet.hear("a", "b", "c")
    fleet.probe("a", ok=True)
    fleet.probe("a", ok=True)
    assert fleet.state_of("a") is PROBATION
    fleet.feed(TrialStarted(A))
    assert fleet.state.clusters[A].trials.in_flight == 1
    fleet.feed(TrialFinished(A))
    assert fleet.state.clusters[A].trials.in_flight == 0


def test_a_pause_leaves_the_silence_of_the_long_silent_alone() -> None:
    fleet = heard("a", "b", "c")
    fleet.keep_hearing(at(1.5), "b", "c")
    quiet_since = fleet.state.clusters[A].quiet_since
    fleet.now = at(20)
    fleet.state, effects = tick(fleet.state, fleet.now)
    assert any(isinstance(effect, TimersRestarted) for effect in effects)
    assert fleet.state.clusters[A].quiet_since == quiet_since
    assert fleet.state.clusters[B].quiet_since == at(20)
