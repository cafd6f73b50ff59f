from dataclasses import replace

import pytest

from services.core.fleet import HealthState, ReportId
from services.core.health.effects import (
    ClusterEjected,
    ClusterLost,
    Effect,
    PlaceAgreed,
    PlaceDisputed,
    Reason,
    StateChanged,
)
from services.core.health.events import (
    BackPressured,
    ConnectFailed,
    GatewayErrored,
    ListLoaded,
    PolicyChanged,
    ProbeFinished,
    ReportArrived,
    ReportRemoved,
    TrafficSucceeded,
    TrialFinished,
    TrialStarted,
)
from services.core.health.record import ClusterRecord
from services.core.locality import Locality, Region
from services.core.units import WallMs, ms, seconds
from tests.core.health.samples import EU, START, A, B, C, Fleet, at, policy, pool, report, spec

HEALTHY, STALE, UNHEALTHY, PROBATION = (
    HealthState.HEALTHY,
    HealthState.STALE,
    HealthState.UNHEALTHY,
    HealthState.PROBATION,
)


def fleet_of_three() -> Fleet:
    fleet = Fleet(spec("a"), spec("b"), spec("c"))
    fleet.hear("a", "b", "c")
    for cluster in ("a", "b", "c"):
        fleet.probe(cluster, ok=True)
    return fleet


def a_of(fleet: Fleet) -> ClusterRecord:
    return fleet.state.clusters[A]


def condemned() -> Fleet:
    """Return a fleet whose `a` is UNHEALTHY by three failed probes."""
    fleet = fleet_of_three()
    for _ in range(3):
        fleet.probe("a", ok=False)
    assert fleet.state_of("a") is UNHEALTHY
    return fleet


def on_probation() -> Fleet:
    fleet = condemned()
    fleet.hear("a")
    fleet.probe("a", ok=True)
    fleet.probe("a", ok=True)
    assert fleet.state_of("a") is PROBATION
    return fleet


# --- Reports ----------------------------------------------------------------------------------------


def test_a_report_of_a_stranger_is_not_kept() -> None:
    fleet = fleet_of_three()
    assert fleet.feed(ReportArrived(report("stranger", 1), fleet.now)) == ()
    assert set(fleet.state.clusters) == {A, B, C}


@pytest.mark.parametrize("sequence", [1, 0])
def test_an_older_or_equal_report_changes_nothing(sequence: int) -> None:
    fleet = fleet_of_three()
    before = fleet.state
    fleet.feed(ReportArrived(report("a", sequence, draining=True), fleet.now))
    assert fleet.state == before


def test_a_fenced_epoch_never_returns() -> None:
    fleet = fleet_of_three()
    fleet.feed(ReportArrived(report("a", 1, epoch=2), fleet.now))
    fleet.feed(ReportArrived(report("a", 99, epoch=1, draining=True), fleet.now))
    assert a_of(fleet).report_id == ReportId(2, 1)
    assert not a_of(fleet).draining


def test_a_replayed_report_is_known_but_not_alive() -> None:
    fleet = Fleet(spec("a"), spec("b"))
    fleet.feed(ReportArrived(report("a", 1, draining=True), fleet.now, live=False))
    assert fleet.state_of("a") is HealthState.UNKNOWN
    assert (a_of(fleet).draining, a_of(fleet).silent, a_of(fleet).load_at) == (True, True, 0)


def test_a_list_updates_load_of_the_known_with_its_age_and_never_touches_state() -> None:
    fleet = fleet_of_three()
    fleet.to(at(1))
    newer = report("a", 7, observed=at(0.4), pools=(pool(waiting=9, saturation=3.0),))
    assert fleet.feed(ListLoaded([newer], fleet.now)) == ()
    assert a_of(fleet).state is HEALTHY
    assert a_of(fleet).quiet_since == START
    assert a_of(fleet).load.whole.waiting == 9
    assert a_of(fleet).load_at == at(0.4)


def test_a_late_report_updates_load_and_does_not_break_silence() -> None:
    fleet = fleet_of_three()
    fleet.to(at(1.2))
    late = replace(report("a", 2, pools=(pool(waiting=5),)), observed_at_ms=WallMs(at(0.1) // 1_000_000))
    fleet.feed(ReportArrived(late, fleet.now))
    assert a_of(fleet).load.whole.waiting == 5
    assert a_of(fleet).quiet_since == START


def test_a_report_that_waited_in_the_router_is_no_sign_of_life_now() -> None:
    fleet = fleet_of_three()
    fleet.to(at(3))
    assert fleet.state_of("a") is STALE
    fleet.feed(ReportArrived(report("a", 2), at(1.75)))
    assert fleet.state_of("a") is STALE


def test_arrival_never_moves_back() -> None:
    fleet = fleet_of_three()
    fleet.to(at(1))
    fleet.hear("a")
    fleet.feed(ReportArrived(report("a", 3, observed=at(0.5)), at(0.5)))
    assert a_of(fleet).quiet_since == at(1)


# --- Policy and tombstones ----------------------------------------------------------------------------


def test_policy_adds_unknown_clusters_and_forgets_those_that_are_gone() -> None:
    fleet = fleet_of_three()
    fleet.feed(PolicyChanged(policy(spec("a"), spec("d"))))
    assert list(fleet.state.clusters) == [A, "d"]
    assert (fleet.state_of("a"), fleet.state_of("d")) == (HEALTHY, HealthState.UNKNOWN)
    assert fleet.state.counts.clusters == 2


def places(effects: tuple[Effect, ...]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, PlaceDisputed | PlaceAgreed)]


def elsewhere(region: str) -> Locality:
    return Locality(Region(region), EU.jurisdiction)


def test_a_disputed_place_is_noted_once_per_change_and_once_when_agreed() -> None:
    fleet = fleet_of_three()
    north, south = Region("eu-north"), Region("eu-south")
    assert places(fleet.hear("a", region=north)) == [PlaceDisputed(A, EU, elsewhere("eu-north"))]
    assert places(fleet.hear("a", region=north)) == []
    assert places(fleet.hear("a", region=south)) == [PlaceDisputed(A, EU, elsewhere("eu-south"))]
    assert places(fleet.hear("a")) == [PlaceAgreed(A)]
    assert places(fleet.hear("a")) == []


def test_a_replayed_report_and_a_policy_can_begin_and_end_a_dispute() -> None:
    fleet = Fleet(spec("a"))
    replayed = report("a", 1, region="eu-north")
    disputed = PlaceDisputed(A, EU, elsewhere("eu-north"))
    assert places(fleet.feed(ReportArrived(replayed, fleet.now, live=False))) == [disputed]
    assert places(fleet.feed(PolicyChanged(policy(spec("a"))))) == []
    moved = replace(spec("a"), locality=elsewhere("eu-north"))
    assert places(fleet.feed(PolicyChanged(policy(moved)))) == [PlaceAgreed(A)]
    assert places(fleet.feed(PolicyChanged(policy(moved)))) == []
    assert places(fleet.feed(PolicyChanged(policy(spec("a"))))) == [disputed]


def test_where_an_unheard_cluster_is_cannot_be_disputed() -> None:
    fleet = Fleet(spec("a"))
    moved = replace(spec("a"), locality=elsewhere("eu-north"))
    assert fleet.feed(PolicyChanged(policy(moved))) == ()


def test_another_probe_address_begins_with_no_history() -> None:
    fleet = fleet_of_three()
    fleet.probe("a", ok=False)
    fleet.feed(PolicyChanged(policy(spec("a"), spec("b"), spec("c"))))
    assert a_of(fleet).failing
    moved = replace(spec("a"), probe_url="http://elsewhere:1/readyz")
    fleet.feed(PolicyChanged(policy(moved, spec("b"), spec("c"))))
    assert not a_of(fleet).failing
    assert fleet.state.counts.failing == 0


def test_a_tombstone_forgets_all_but_the_order_of_reports_and_the_returns() -> None:
    fleet = fleet_of_three()
    effects = fleet.feed(ReportRemoved(A))
    assert effects == (StateChanged(A, HEALTHY, HealthState.UNKNOWN, Reason.REMOVED),)
    assert fleet.feed(ReportRemoved(A)) == ()
    fleet.feed(ReportArrived(report("a", 1), fleet.now))
    assert fleet.state_of("a") is HealthState.UNKNOWN
    tried = on_probation()
    tried.feed(ReportRemoved(A))
    assert a_of(tried).returns == (START,)


# --- Probes -----------------------------------------------------------------------------------------------


def test_probes_of_an_unprobed_cluster_are_not_believed() -> None:
    fleet = Fleet(spec("a", probed=False), spec("b"))
    fleet.probe("a", ok=True)
    assert fleet.state_of("a") is HealthState.UNKNOWN


def test_an_unknown_cluster_is_stale_by_one_good_probe_and_unhealthy_by_two_failed() -> None:
    fleet = Fleet(spec("a"), spec("b"))
    fleet.probe("a", ok=True)
    fleet.probe("b", ok=False)
    assert (fleet.state_of("a"), fleet.state_of("b")) == (STALE, HealthState.UNKNOWN)
    fleet.probe("b", ok=False)
    assert fleet.state_of("b") is UNHEALTHY


def test_a_reporting_cluster_takes_three_failed_probes_in_a_row() -> None:
    fleet = fleet_of_three()
    for ok in (False, False, True, False, False):
        assert fleet.probe("a", ok=ok) == ()
    assert fleet.probe("a", ok=False) == (
        StateChanged(A, HEALTHY, UNHEALTHY, Reason.UNREACHABLE),
        ClusterLost(A, Reason.UNREACHABLE),
    )


def test_when_every_probe_fails_the_reporting_are_not_condemned() -> None:
    fleet = Fleet(spec("a"), spec("b"))
    fleet.hear("a", "b")
    for _ in range(5):
        assert fleet.probe("a", ok=False) + fleet.probe("b", ok=False) == () or fleet.state_of("a") is HEALTHY
    assert fleet.state_of("b") is HEALTHY
    fleet.probe("b", ok=True)
    fleet.probe("a", ok=False)
    assert fleet.state_of("a") is UNHEALTHY


def test_an_unhealthy_cluster_that_fails_on_stays_unhealthy() -> None:
    fleet = condemned()
    for _ in range(5):
        assert fleet.probe("a", ok=False) == ()


def test_probes_from_before_a_pause_are_not_counted() -> None:
    fleet = fleet_of_three()
    fleet.to(at(0.5))
    fleet.now = at(9)
    fleet.feed(BackPressured(A))
    assert fleet.state.resumed_at == at(9)
    fleet.feed(ProbeFinished(A, True, at(8.9), ms(10)))
    fleet.feed(ProbeFinished(A, False, at(9), ms(1)))
    assert a_of(fleet).probes.good_here == 1
    assert not a_of(fleet).failing
    fleet.feed(ProbeFinished(A, True, at(9), seconds(5)))
    assert a_of(fleet).probes.good_here == 2


# --- The way back -------------------------------------------------------------------------------------------


def test_report_and_two_good_probes_in_either_order_earn_a_return() -> None:
    fleet = condemned()
    fleet.probe("a", ok=True)
    fleet.probe("a", ok=True)
    assert fleet.state_of("a") is UNHEALTHY
    fleet.hear("a")
    assert fleet.state_of("a") is PROBATION


def test_five_successes_end_probation_and_an_error_voids_them() -> None:
    fleet = on_probation()
    for _ in range(4):
        fleet.feed(TrafficSucceeded(A))
    fleet.feed(GatewayErrored(A))
    fleet.feed(GatewayErrored(A))
    for _ in range(4):
        fleet.feed(TrafficSucceeded(A))
    assert fleet.state_of("a") is PROBATION
    fleet.hear("a")
    assert fleet.state_of("a") is PROBATION
    assert fleet.feed(TrafficSucceeded(A)) == (StateChanged(A, PROBATION, HEALTHY, Reason.TRIALS_PASSED),)


def test_good_probes_are_credited_without_trials() -> None:
    fleet = on_probation()
    fleet.feed(TrialStarted(A))
    assert a_of(fleet).trials.in_flight == 1
    fleet.keep_hearing(at(6), "a", "b", "c")
    fleet.probe("a", ok=True)
    assert a_of(fleet).trials.successes == 0
    fleet.feed(TrialFinished(A))
    fleet.keep_hearing(at(11), "a", "b", "c")
    for _ in range(5):
        fleet.probe("a", ok=True)
    assert fleet.state_of("a") is HEALTHY


def test_one_connect_failure_ends_probation_badly() -> None:
    fleet = on_probation()
    assert fleet.feed(ConnectFailed(A)) == (
        StateChanged(A, PROBATION, UNHEALTHY, Reason.CONNECT_FAILED),
        ClusterLost(A, Reason.CONNECT_FAILED),
    )


# --- Outliers -----------------------------------------------------------------------------------------------


def test_connect_failures_eject_and_lose_the_cluster() -> None:
    fleet = fleet_of_three()
    effects = [fleet.feed(ConnectFailed(A)) for _ in range(3)]
    assert effects[:2] == [(), ()]
    assert effects[2] == (
        ClusterEjected(A, Reason.CONNECT_FAILED, seconds(30)),
        ClusterLost(A, Reason.CONNECT_FAILED),
    )
    assert fleet.feed(ConnectFailed(A)) == ()


def test_gateway_errors_eject_without_losing_the_cluster() -> None:
    fleet = fleet_of_three()
    effects = [fleet.feed(GatewayErrored(A)) for _ in range(5)]
    assert effects[4] == (ClusterEjected(A, Reason.GATEWAY_ERRORS, seconds(30)),)


def test_no_more_than_the_share_are_ejected() -> None:
    fleet = fleet_of_three()
    for _ in range(3):
        fleet.feed(ConnectFailed(A))
        fleet.feed(ConnectFailed(B))
    assert a_of(fleet).outlier.ejected
    assert not fleet.state.clusters[B].outlier.ejected


def test_an_unhealthy_cluster_is_not_ejected_as_well() -> None:
    fleet = condemned()
    assert [fleet.feed(ConnectFailed(A)) for _ in range(5)] == [()] * 5


def test_back_pressure_never_counts() -> None:
    fleet = fleet_of_three()
    before = fleet.state
    for _ in range(20):
        assert fleet.feed(BackPressured(A)) == ()
    assert fleet.state is before
