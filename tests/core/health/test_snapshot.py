from services.core.fleet import HealthState
from services.core.health.draft import FleetState
from services.core.health.events import ConnectFailed, ListLoaded, TrafficSucceeded
from services.core.health.snapshot import changes_with_time, exclusions, snapshot
from services.core.outcomes import DropReason
from services.core.units import Instant
from tests.core.health.samples import EU, MODEL, A, Fleet, at, policy, pool, report, spec


def snap(state: FleetState, now: Instant) -> dict[str, object]:
    shown = snapshot(state, policy(spec("b"), spec("a"), spec("gone")), EU, now, 7)
    assert (shown.version, shown.policy_revision, shown.here) == (7, 1, EU)
    return {candidate.id: candidate for candidate in shown.candidates}


def test_candidates_come_in_the_order_of_the_policy_and_only_if_known() -> None:
    assert list(snap(Fleet(spec("a"), spec("b")).state, at(0))) == ["b", "a"]


def test_a_cluster_never_read_about_serves_nobody_knows_what() -> None:
    fleet = Fleet(spec("a"), spec("b"))
    fleet.hear("b")
    fleet.feed(ListLoaded([report("a", 1, pools=())], fleet.now))
    shown = snapshot(fleet.state, policy(spec("a"), spec("b")), EU, fleet.now, 1).candidates
    assert shown[0].models == frozenset()
    assert shown[1].models == frozenset({MODEL})
    unread = snapshot(Fleet(spec("a")).state, policy(spec("a")), EU, at(0), 1).candidates[0]
    assert unread.models is None
    assert unread.load.waiting is None


def test_a_silent_load_fades_over_ten_seconds_and_capacity_stays() -> None:
    fleet = Fleet(spec("a"), spec("b"))
    fleet.hear("a", pools=(pool(waiting=4, capacity_requests=8),))

    def load_at(seconds_later: float) -> tuple[float | None, ...]:
        load = (
            snapshot(fleet.state, policy(spec("a")), EU, at(seconds_later), 1).candidates[0].load_for(MODEL)
        )
        return load.waiting, load.capacity_requests, round(load.confidence, 9)

    assert load_at(1.25) == (4, 8, 1.0)
    assert load_at(6.25) == (4, 8, 0.5)
    assert load_at(11.25) == (None, 8, 0.0)
    assert load_at(99) == (None, 8, 0.0)


def test_a_failing_probe_shows_unless_the_router_is_isolated() -> None:
    fleet = Fleet(spec("a"), spec("b"))
    fleet.hear("a", "b")
    fleet.to(at(1.25))
    fleet.probe("a", ok=False)
    shown = snapshot(fleet.state, policy(spec("a"), spec("b")), EU, fleet.now, 1).candidates
    assert [candidate.probing_ok for candidate in shown] == [False, True]
    fleet.probe("b", ok=False)
    assert fleet.state.isolated
    shown = snapshot(fleet.state, policy(spec("a"), spec("b")), EU, fleet.now, 1).candidates
    assert [candidate.probing_ok for candidate in shown] == [True, True]


def test_exclusions_are_what_must_act_at_once() -> None:
    fleet = Fleet(spec("a"), spec("b"))
    fleet.hear("b", draining=True)
    fleet.hear("a")
    assert exclusions(fleet.state) == {"b": DropReason.DRAINED}
    for _ in range(3):
        fleet.feed(ConnectFailed(A))
    assert exclusions(fleet.state) == {"a": DropReason.NO_HEALTHY_CLUSTER, "b": DropReason.DRAINED}


def test_only_fading_loads_and_ramps_change_with_time() -> None:
    fleet = Fleet(spec("a"), spec("b"), spec("c"))
    fleet.hear("a", "b", "c")
    assert not changes_with_time(fleet.state, fleet.now)
    fleet.keep_hearing(at(2), "b", "c")
    assert fleet.state_of("a") is HealthState.STALE
    assert changes_with_time(fleet.state, at(2))
    assert not changes_with_time(fleet.state, at(11.25))


def test_a_ramp_changes_until_its_window_ends() -> None:
    fleet = Fleet(spec("a"), spec("b"))
    fleet.hear("a", "b")
    fleet.probe("b", ok=True)
    for ok in (False, False, False, True, True):
        fleet.probe("a", ok=ok)
    fleet.hear("a")
    assert not changes_with_time(fleet.state, fleet.now)
    for _ in range(5):
        fleet.feed(TrafficSucceeded(A))
    assert changes_with_time(fleet.state, at(59))
    assert not changes_with_time(fleet.state, at(60))
