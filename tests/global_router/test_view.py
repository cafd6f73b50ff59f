from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.adapters.memory.clock import VirtualClock
from services.adapters.memory.feed import MemoryFeed
from services.adapters.ports import Change, ChangeKind, FeedListing, FeedReport, Listing, ProbeResult
from services.adapters.system.tasks import TaskScope
from services.core.failover.effects import OutcomeKind
from services.core.fleet import HealthState
from services.core.health.effects import Reason, RouterIsolated, TimersRestarted
from services.core.locality import ClusterId
from services.core.outcomes import DropReason, Rejected, Routed
from services.core.policy import PolicySnapshot
from services.core.scheduling.decide import decide
from services.core.units import Instant, ms, seconds
from services.global_router.policy_file import PolicyFile, StoredPolicy
from services.global_router.view import View
from services.wire.policy_codec import decode_policy, encode_policy
from tests.global_router.fleet_world import EU, World, policy, request
from tests.support.wait import eventually

A, B = ClusterId("a"), ClusterId("b")
HEALTHY, STALE, UNHEALTHY, PROBATION = (
    HealthState.HEALTHY,
    HealthState.STALE,
    HealthState.UNHEALTHY,
    HealthState.PROBATION,
)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.stop()


def targets(world: World) -> set[str]:
    """Return where a hundred requests would go now."""
    decisions = [
        decide(world.view.current, request(number), world.clock.now(), excluded=world.view.excluded)
        for number in range(100)
    ]
    return {
        decision.target if isinstance(decision, Routed) else decision.reason.value for decision in decisions
    }


async def test_without_a_policy_there_is_nothing_to_route_to(world: World) -> None:
    assert not world.view.ready
    assert world.view.policy_published_at_ms == 0
    decision = decide(world.view.current, request(1), world.clock.now())
    assert isinstance(decision, Rejected)


async def test_reports_become_a_snapshot_and_no_more_than_five_a_second(world: World) -> None:
    await world.start("a", "b", "c")
    await world.clock.advance(seconds(1))
    assert world.view.ready
    assert world.view.policy_published_at_ms == 1
    assert targets(world) == {"a", "b", "c"}
    before = world.view.tallies.rebuilds
    for _ in range(100):
        await world.report("a")
        await world.clock.advance(ms(20))
    assert world.view.tallies.rebuilds - before <= 10


async def test_a_quiet_fleet_is_not_rebuilt(world: World) -> None:
    await world.start("a", "b")
    world.reporting.clear()
    await world.clock.advance(seconds(30))
    before = world.view.tallies.rebuilds
    world.prober.answering.clear()
    await world.clock.advance(seconds(10))
    assert RouterIsolated() in world.effects
    after_isolation = world.view.tallies.rebuilds
    assert after_isolation > before
    assert not world.view.ready
    assert targets(world) == {"a", "b"}


async def test_a_dead_cluster_is_lost_within_the_bound_and_excluded_at_once(world: World) -> None:
    await world.start("a", "b", "c")
    await world.clock.advance(seconds(5))
    world.reporting.discard("b")
    world.prober.answering.discard("b")
    noticed: list[tuple[set[str], int]] = []
    world.view.on_cluster_lost = lambda _: noticed.append((targets(world), world.clock.now()))
    last_report = world.view.state.clusters[B].quiet_since
    await world.clock.advance(seconds(3))
    assert world.states() == {"a": HEALTHY, "b": UNHEALTHY, "c": HEALTHY}
    assert [reached for reached, _ in noticed] == [{"a", "c"}]
    assert noticed[0][1] - last_report <= seconds(2.25)
    assert targets(world) == {"a", "c"}
    assert world.view.excluded == {}


async def test_drain_and_misplacement_act_before_the_next_snapshot(world: World) -> None:
    await world.start("a", "b", "c")
    await world.clock.advance(seconds(1))
    world.reporting.clear()
    built = world.view.tallies.rebuilds
    await world.report("a", draining=True)
    await world.report("b", region="mars")
    await world.clock.settle()
    assert world.view.excluded == {"a": DropReason.DRAINED, "b": DropReason.REPORT_POLICY_MISMATCH}
    await world.report("b")
    await world.clock.settle()
    assert world.view.excluded == {"a": DropReason.DRAINED}
    assert world.view.tallies.rebuilds == built
    assert targets(world) == {"b", "c"}
    await world.clock.advance(ms(200))
    assert world.view.excluded == {}
    assert targets(world) == {"b", "c"}


async def test_connect_failures_eject_and_successes_reset(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(1))
    for kind in (
        OutcomeKind.CONNECT_FAILED,
        OutcomeKind.RESET,
        OutcomeKind.ANSWERED,
        OutcomeKind.CONNECT_FAILED,
    ):
        world.view.outcome("a", kind)
    assert world.lost == []
    state = world.view.state
    for kind in (
        OutcomeKind.BACK_PRESSURE,
        OutcomeKind.DRAINED,
        OutcomeKind.TIMED_OUT,
        OutcomeKind.ABANDONED,
    ):
        world.view.outcome("a", kind)
    world.view.outcome("b", OutcomeKind.ANSWERED)
    world.view.outcome("stranger", OutcomeKind.CONNECT_FAILED)
    assert world.view.state is state
    world.view.outcome("a", OutcomeKind.CONNECT_FAILED)
    world.view.outcome("a", OutcomeKind.CONNECT_FAILED)
    assert world.lost == [A]
    assert targets(world) == {"b"}


async def test_probation_is_tried_in_small_numbers_and_ends_by_success(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(1))
    assert not world.view.may_try("a")
    assert not world.view.may_try("stranger")
    world.reporting.discard("a")
    world.prober.answering.discard("a")
    await world.clock.advance(seconds(4))
    assert world.states()["a"] is UNHEALTHY
    for _ in range(1000):
        assert world.view.attempt_started(B) is None
    world.reporting.add("a")
    world.prober.answering.add("a")
    await world.clock.advance(seconds(2))
    assert world.states()["a"] is PROBATION
    began = world.view.state.clusters[A].entered_at
    for _ in range(3):
        assert world.view.may_try("a")
        assert world.view.attempt_started(A) == began
    assert not world.view.may_try("a")
    for _ in range(298):
        world.view.attempt_started(B)
    assert world.view.may_try("a")
    in_flight = world.view.state.clusters[A].trials.in_flight
    world.view.trial_ended(A, Instant(began - 1))
    assert world.view.state.clusters[A].trials.in_flight == in_flight
    world.view.trial_ended(A, began)
    assert world.view.state.clusters[A].trials.in_flight == in_flight - 1
    for _ in range(5):
        world.view.outcome("a", OutcomeKind.ANSWERED)
    assert world.states()["a"] is HEALTHY
    await world.clock.advance(seconds(1))
    ramps = {c.id: c.ramp for c in world.view.current.snapshot.candidates}
    assert ramps == {"a": 0.1, "b": 1.0}
    await world.clock.advance(seconds(30))
    assert 0.4 < {c.id: c.ramp for c in world.view.current.snapshot.candidates}["a"] < 0.6
    await world.clock.advance(seconds(60))
    assert {c.ramp for c in world.view.current.snapshot.candidates} == {1.0}
    assert world.view.tallies.moves[PROBATION, Reason.RETURNED] == 1


async def test_a_pause_of_the_process_condemns_nobody(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(1))
    world.clock.pause(seconds(20))
    await world.clock.advance(ms(1))
    assert world.view.tallies.late_ticks == 1
    assert any(isinstance(effect, TimersRestarted) for effect in world.effects)
    await world.clock.advance(seconds(2))
    assert world.states() == {"a": HEALTHY, "b": HEALTHY}
    assert world.lost == []


async def test_a_tombstone_makes_unknown_and_garbage_is_skipped(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(1))
    world.reporting.clear()
    await world.store.remove(ChangeKind.HEALTH, "a")
    await world.clock.settle()
    assert world.states()["a"] is HealthState.UNKNOWN
    for kind, key in ((ChangeKind.HEALTH, "b"), (ChangeKind.POLICY, "snapshot")):
        world.feed.publish(FeedReport(Change(9, kind, key, b"\xff\xff", live=True), world.clock.now()))
    for kind, key in ((ChangeKind.PODS, "b/pool"), (ChangeKind.POLICY, "drain/b")):
        world.feed.publish(FeedReport(Change(9, kind, key, b"\xff\xff", live=True), world.clock.now()))
    world.feed.publish(
        FeedReport(Change(9, ChangeKind.POLICY, "snapshot", None, live=True), world.clock.now())
    )
    assert world.view.tallies.undecodable == 2
    assert "is skipped" in caplog.text
    assert "the one in force stays" in caplog.text
    assert world.states()["b"] is HEALTHY


async def test_policy_decides_who_is_in_the_fleet_at_once(world: World) -> None:
    seen: list[PolicySnapshot] = []
    world.view.on_policy = seen.append
    await world.start("a", "b")
    await world.clock.advance(seconds(1))
    await world.publish(policy(2, "b", "c"))
    await world.clock.settle()
    assert [used.revision for used in seen] == [1, 2]
    assert set(world.states()) == {"b", "c"}
    assert targets(world) == {"b"}


async def test_a_replay_never_goes_back_to_an_older_policy(world: World) -> None:
    await world.start("a", "b")
    await world.publish(policy(7, "a"))
    await world.clock.settle()
    stale = Change(99, ChangeKind.POLICY, "snapshot", encode_policy(policy(3, "a", "b")), live=False)
    world.feed.publish(FeedReport(stale, world.clock.now()))
    assert world.view.policy is not None
    assert world.view.policy.revision == 7
    republished = Change(99, ChangeKind.POLICY, "snapshot", encode_policy(policy(1, "b")), live=True)
    world.feed.publish(FeedReport(republished, world.clock.now()))
    assert world.view.policy.revision == 1


async def test_the_policy_is_confirmed_while_the_store_speaks(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(10))
    confirmed_at = world.view.policy_confirmed_at
    assert confirmed_at is not None
    assert world.clock.now() - confirmed_at <= ms(500)
    world.server.stop()
    await world.clock.advance(seconds(100))
    assert world.view.policy_confirmed_at == confirmed_at


async def test_a_router_without_store_starts_from_disk_and_probes(tmp_path: Path) -> None:
    clock = VirtualClock()
    PolicyFile(tmp_path).save(encode_policy(policy(5, "a", "b")), clock.wall_ms())
    await clock.advance(seconds(20))
    world = World(PolicyFile(tmp_path), clock)
    world.server.stop()
    world.prober.answering = {"a"}
    world.view.start()
    world.supervisor.start()
    assert world.view.policy_confirmed_at is not None
    assert clock.now() - world.view.policy_confirmed_at == seconds(20)
    await clock.advance(seconds(3))
    assert world.states() == {"a": STALE, "b": UNHEALTHY}
    assert targets(world) == {"a"}
    # Whatever the store says replaces what came from disk, even a lower revision.
    world.server.start()
    await world.publish(policy(1, "b"))
    await world.fill()
    await clock.advance(seconds(6))
    assert world.view.policy is not None
    assert world.view.policy.revision == 1
    assert world.view.policy_confirmed_at > clock.now() - seconds(10)
    await eventually(lambda: _revision_on_disk(tmp_path, clock) == 1)
    await world.stop()


def _revision_on_disk(state_dir: Path, clock: VirtualClock) -> int:
    stored = PolicyFile(state_dir).load(clock.wall_ms())
    assert isinstance(stored, StoredPolicy)
    return decode_policy(stored.payload).revision


async def test_a_damaged_policy_file_is_said_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, scope = VirtualClock(), TaskScope(lambda *_: None)
    PolicyFile(tmp_path).save(b"\xff\xff", clock.wall_ms())
    view = View(clock, MemoryFeed(), EU, scope, PolicyFile(tmp_path))
    view.start()
    assert view.policy is None
    assert "waiting for the store" in caplog.text
    view.stop()
    view.stop()
    await scope.close()


async def test_a_probe_result_of_the_feed_reaches_the_state(world: World) -> None:
    await world.start("a", "b")
    await world.clock.settle()
    now = world.clock.now()
    world.feed.publish(ProbeResult(A, False, now, ms(1), "refused"))
    assert world.view.state.clusters[A].failing


async def test_reports_without_a_policy_are_no_fleet(world: World) -> None:
    world.view.start()
    world.supervisor.start()
    await world.report("a")
    await world.fill()
    world.reporting.add("a")
    world.scope.spawn(world.keep_reporting(), "reports")
    await world.clock.advance(seconds(3))
    assert world.states() == {}
    assert (world.view.ready, world.view.tallies.rebuilds) == (False, 0)


async def test_who_left_and_who_the_snapshot_shows_as_gone_are_both_unroutable(world: World) -> None:
    await world.start("a", "b", "c")
    await world.clock.advance(seconds(1))
    world.reporting.clear()
    await world.report("a", draining=True)
    await world.clock.advance(ms(300))
    await world.report("b", draining=True)
    await world.clock.settle()
    assert world.view.excluded == {"b": DropReason.DRAINED}
    assert world.view.unroutable == {"a": DropReason.DRAINED, "b": DropReason.DRAINED}
    await world.clock.advance(ms(300))
    assert world.view.unroutable == {"a": DropReason.DRAINED, "b": DropReason.DRAINED}


async def test_a_probe_of_a_stranger_leaves_the_view_alone(world: World) -> None:
    await world.start("a", "b")
    await world.clock.advance(seconds(1))
    state = world.view.state
    world.feed.publish(ProbeResult(ClusterId("stranger"), True, world.clock.now(), ms(1)))
    assert world.view.state is state


async def test_a_list_brings_what_it_can_and_skips_the_rest(world: World) -> None:
    await world.start("a", "b", "c")
    await world.clock.advance(seconds(1))
    world.reporting.clear()
    revision = world.view.current
    entries = [
        Change(50, ChangeKind.PODS, "a/pool", b"\xff\xff", live=False),
        Change(50, ChangeKind.HEALTH, "c", b"\xff\xff", live=False),
        Change(50, ChangeKind.POLICY, "snapshot", encode_policy(policy(1, "a", "b", "c")), live=True),
        *(Change(50, ChangeKind.HEALTH, name, world.told(name, draining=True), live=False) for name in "ab"),
    ]
    meta = world.server.meta()
    world.feed.publish(FeedListing(Listing(meta, tuple(entries)), world.clock.now()))
    assert world.view.excluded == {"a": DropReason.DRAINED, "b": DropReason.DRAINED}
    assert world.view.tallies.undecodable == 1
    assert world.view.current is revision


async def test_the_policy_on_disk_is_confirmed_while_the_store_speaks(tmp_path: Path) -> None:
    world = World(PolicyFile(tmp_path))
    await world.start("a", "b")
    await eventually(lambda: _age_on_disk(tmp_path, world.clock) == 0)
    await world.clock.advance(seconds(90))
    await eventually(lambda: _age_on_disk(tmp_path, world.clock) < seconds(60))
    await world.stop()


def _age_on_disk(state_dir: Path, clock: VirtualClock) -> int:
    stored = PolicyFile(state_dir).load(clock.wall_ms())
    return -1 if stored is None else stored.confirmed_ago
