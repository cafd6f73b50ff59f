"""The flow controller's laws, one by one and over random histories."""

import pytest

from services.core.admission.flow_controller import LANE_IDLE, FlowController
from services.core.admission.refusals import Cause
from services.core.admission.settings import BandSettings, FlowControlSettings
from services.core.admission.tickets import Drop, Effect, Evict, Stage, Ticket
from services.core.admission.usage_limits import PriorityHoldback, SoftReflectiveCeiling
from services.core.outcomes import DropReason
from services.core.units import ms, seconds
from tests.core.admission.shapes import at, shown, ticket

FULL, FREE = 1.0, 0.0


def controller(**settings: object) -> FlowController:
    return FlowController(FlowControlSettings(**settings))  # type: ignore[arg-type]  # The settings check them.


def drop_of(effects: list[Effect]) -> Drop:
    assert isinstance(effects[-1], Drop)
    return effects[-1]


# --- Coming in -------------------------------------------------------------------------------------


def test_nobody_ahead_and_room_passes_without_a_queue() -> None:
    flow, first = controller(), ticket()
    assert flow.passes(first, 0.99, at(0))
    assert first.stage is Stage.DISPATCHED
    assert flow.queued == 0
    assert flow.next_deadline(at(0)) is None
    assert not flow.waits("llama")
    assert not flow.waits("unheard-of")


def test_an_offer_with_room_is_a_dispatch() -> None:
    assert shown(controller().offer(ticket("a"), FREE, at(0))) == ["dispatch a"]


def test_a_full_pool_makes_its_requests_wait_in_order() -> None:
    flow = controller()
    names = ["a", "b", "c"]
    assert [flow.offer(ticket(name), FULL, at(0)) for name in names] == [[], [], []]
    assert (flow.queued, flow.waiting_pools()) == (3, ["llama"])
    assert flow.advance("llama", FULL, at(1)) == []
    assert [shown(flow.advance("llama", FREE, at(1))) for _ in range(4)] == [
        ["dispatch a"],
        ["dispatch b"],
        ["dispatch c"],
        [],
    ]
    assert flow.advance("unheard-of", FREE, at(1)) == []


def test_a_newcomer_does_not_pass_its_equals_but_passes_those_below() -> None:
    flow = controller()
    flow.offer(ticket("waits"), FULL, at(0))
    assert not flow.passes(ticket("equal"), FREE, at(0))
    assert not flow.passes(ticket("below", priority=-1), FREE, at(0))
    assert flow.passes(ticket("above", priority=1), FREE, at(0))


def test_bands_are_strict_within_a_pool() -> None:
    flow = controller()
    for name, priority in (("low", -1), ("mid", 0), ("high", 5)):
        flow.offer(ticket(name, priority=priority), FULL, at(0))
    order = [shown(flow.advance("llama", FREE, at(1)))[0] for _ in range(3)]
    assert order == ["dispatch high", "dispatch mid", "dispatch low"]


def test_f191_a_saturated_pool_blocks_nobody_elses_requests() -> None:
    flow = controller()
    flow.offer(ticket("x", pool="busy", priority=5), FULL, at(0))
    assert flow.passes(ticket("y", pool="idle", priority=-1), FREE, at(0))
    flow.offer(ticket("z", pool="idle"), FULL, at(0))
    assert shown(flow.advance("idle", FREE, at(1))) == ["dispatch z"]
    assert flow.waiting_pools() == ["busy"]


def test_a_lower_priority_waits_at_its_ceiling_while_a_higher_one_passes() -> None:
    flow = controller(
        usage_limit=PriorityHoldback(0.5), priority_bands={1: BandSettings(), -1: BandSettings()}
    )
    assert not flow.passes(ticket("low", priority=-1), 0.6, at(0))
    assert flow.passes(ticket("high", priority=1), 0.6, at(0))
    assert flow.offer(ticket("low", priority=-1), 0.6, at(0)) == []
    assert flow.advance("llama", 0.6, at(0)) == []
    assert shown(flow.advance("llama", 0.4, at(0))) == ["dispatch low"]


def test_a_soft_ceiling_lets_one_turn_in_so_many_through() -> None:
    flow = controller(
        usage_limit=SoftReflectiveCeiling(), priority_bands={0: BandSettings(), -1: BandSettings()}
    )
    offered = [shown(flow.offer(ticket(str(n), priority=-1, pool=f"p{n}"), 0.5, at(0))) for n in range(2)]
    assert offered == [["dispatch 0"], ["dispatch 1"]]
    for number in range(3):
        flow.offer(ticket(str(number), priority=-1), 0.8, at(0))
    turns = [shown(flow.advance("llama", 0.8, at(0))) for _ in range(7)]
    assert turns == [[], [], ["dispatch 0"], [], [], [], ["dispatch 1"]]
    assert flow.advance("llama", 1.0, at(0)) == []


# --- Bounds ----------------------------------------------------------------------------------------


def test_a_full_band_refuses_the_newcomer_with_the_time_it_takes_to_drain() -> None:
    flow = controller(default_priority_band=BandSettings(max_requests=2))
    for number in range(10):
        flow.passes(ticket(f"sent{number}"), FREE, at(number / 10))
    for name in "ab":
        flow.offer(ticket(name), FULL, at(1))
    told = [drop_of(flow.offer(ticket(name), FULL, at(5))) for name in "cd"]
    assert [drop.reason for drop in told] == [DropReason.QUEUE_FULL] * 2
    # Ten in five seconds: two a second. Two wait; the second caller also waits for the first to come back.
    assert [drop.retry_after for drop in told] == [seconds(1.5), seconds(2)]


def test_a_queue_that_drains_nothing_promises_nothing_short() -> None:
    flow = controller(default_priority_band=BandSettings(max_requests=1))
    flow.passes(ticket("other", priority=1), FREE, at(0))
    flow.offer(ticket("a"), FULL, at(0))
    assert drop_of(flow.offer(ticket("b"), FULL, at(0))).retry_after == seconds(60)


def test_bands_are_bounded_over_all_pools() -> None:
    flow = controller(default_priority_band=BandSettings(max_bytes=100))
    assert flow.offer(ticket("a", size=60, pool="one"), FULL, at(0)) == []
    assert drop_of(flow.offer(ticket("b", size=60, pool="two"), FULL, at(0))).cause is Cause.FULL


def test_common_bounds_push_out_the_lowest_and_newest_first() -> None:
    flow = controller(max_requests=3)
    for name, priority in (("low1", -5), ("low2", -5), ("mid", -1)):
        flow.offer(ticket(name, priority=priority, pool=name), FULL, at(0))
    effects = flow.offer(ticket("new"), FULL, at(0))
    assert shown(effects) == ["drop low2 PUSHED_OUT"]
    assert drop_of(effects).reason is DropReason.EVICTED
    assert drop_of(effects).retry_after is not None
    assert flow.queued == 3


def test_as_many_leave_as_the_bytes_need_and_nobody_in_vain() -> None:
    flow = controller(max_bytes=100)
    for name, size in (("a", 40), ("b", 30), ("c", 20)):
        flow.offer(ticket(name, priority=-1, size=size), FULL, at(0))
    assert shown(flow.offer(ticket("huge", size=101), FULL, at(0))) == ["drop huge FULL"]
    assert flow.queued == 3
    assert shown(flow.offer(ticket("big", size=55), FULL, at(0))) == [
        "drop c PUSHED_OUT",
        "drop b PUSHED_OUT",
    ]
    assert shown(flow.offer(ticket("big2", size=45), FULL, at(0))) == ["drop a PUSHED_OUT"]
    assert flow.queued == 2


def test_equals_are_not_pushed_out() -> None:
    flow = controller(max_requests=1)
    flow.offer(ticket("a"), FULL, at(0))
    assert shown(flow.offer(ticket("b"), FULL, at(0))) == ["drop b FULL"]
    assert shown(flow.offer(ticket("c", priority=-1), FULL, at(0))) == ["drop c FULL"]


# --- Time ------------------------------------------------------------------------------------------


def test_who_waits_longer_than_the_ttl_is_dropped_and_told_when_to_come_back() -> None:
    flow = controller(default_request_ttl=seconds(5))
    flow.passes(ticket("sent"), FREE, at(0))
    flow.offer(ticket("a"), FULL, at(0))
    assert flow.next_deadline(at(0)) == at(5)
    assert flow.tick(at(4.9)) == []
    drop = drop_of(flow.tick(at(5)))
    assert (drop.reason, drop.cause) == (DropReason.QUEUED_TOO_LONG, Cause.EXPIRED)
    assert drop.retry_after == seconds(5)
    assert flow.next_deadline(at(5)) is None


def test_f190_a_request_that_was_late_before_it_was_queued_is_never_sent() -> None:
    flow = controller()
    late = ticket("late", received=0, ttl=0.05)
    assert drop_of(flow.offer(late, FREE, at(0.1))).reason is DropReason.QUEUED_TOO_LONG
    flow.offer(ticket("waits", ttl=5), FULL, at(0))
    assert shown(flow.advance("llama", FREE, at(5))) == ["drop waits EXPIRED"]


def test_an_expired_request_makes_room_for_a_newcomer() -> None:
    flow = controller(default_priority_band=BandSettings(max_requests=1))
    flow.offer(ticket("old", ttl=1), FULL, at(0))
    assert shown(flow.offer(ticket("new", received=2), FULL, at(2))) == ["drop old EXPIRED"]
    assert flow.queued == 1


def test_a_pool_without_endpoints_refuses_at_once_by_default() -> None:
    drop = drop_of(controller().offer(ticket(), None, at(0)))
    assert (drop.reason, drop.cause, drop.retry_after) == (DropReason.NO_ENDPOINTS, Cause.NOBODY_THERE, None)


def test_a_pool_that_loses_its_endpoints_holds_its_queue_as_long_as_it_may() -> None:
    flow = controller(no_endpoint_request_ttl=seconds(3))
    flow.offer(ticket("a"), FULL, at(0))
    assert flow.advance("llama", None, at(10)) == []
    flow.offer(ticket("b", received=11), None, at(11))
    assert flow.next_deadline(at(11)) == at(13)
    drop = drop_of(flow.advance("llama", None, at(13)))
    assert (drop.ticket.request_id, drop.reason, drop.cause) == (
        "a",
        DropReason.NO_ENDPOINTS,
        Cause.NOBODY_CAME,
    )
    assert shown(flow.advance("llama", FREE, at(13.5))) == ["dispatch b"]


def test_the_wait_for_endpoints_counts_from_when_they_were_gone() -> None:
    flow = controller(no_endpoint_request_ttl=seconds(3))
    flow.offer(ticket("a"), FULL, at(0))
    flow.advance("llama", None, at(10))
    flow.advance("llama", FULL, at(12))
    flow.advance("llama", None, at(12.5))
    assert flow.advance("llama", None, at(15)) == []
    assert shown(flow.advance("llama", None, at(15.5))) == ["drop a NOBODY_CAME"]


def test_the_ttl_of_a_request_whose_pool_is_empty_is_503() -> None:
    flow = controller(default_request_ttl=seconds(2), no_endpoint_request_ttl=seconds(60))
    flow.offer(ticket("a"), None, at(0))
    assert drop_of(flow.tick(at(2))).reason is DropReason.NO_ENDPOINTS
    flow.offer(ticket("other", pool="fine", received=2), FULL, at(2))
    assert flow.next_deadline(at(2)) == at(4)


# --- Ends ------------------------------------------------------------------------------------------


def test_a_caller_that_is_gone_leaves_the_queue_at_once() -> None:
    flow, gone = controller(), ticket("gone")
    flow.offer(gone, FULL, at(0))
    drop = flow.cancel(gone, at(1))
    assert drop is not None
    assert (drop.reason, drop.retry_after, flow.queued) == (DropReason.CANCELLED, None, 0)
    assert flow.cancel(gone, at(1)) is None
    assert flow.advance("llama", FREE, at(1)) == []


def test_a_closed_controller_takes_nothing_new_and_sends_what_waits() -> None:
    flow = controller()
    flow.offer(ticket("a"), FULL, at(0))
    flow.close()
    assert drop_of(flow.offer(ticket("b", pool="other"), FREE, at(0))).reason is DropReason.SHUTTING_DOWN
    assert shown(flow.advance("llama", FREE, at(1))) == ["dispatch a"]


def test_shutting_down_drops_everything_that_waits() -> None:
    flow = controller()
    for name in "ab":
        flow.offer(ticket(name, pool=name), FULL, at(0))
    assert shown(flow.shut_down(at(1))) == ["drop a CLOSED", "drop b CLOSED"]
    assert flow.queued == 0
    assert not flow.passes(ticket("c"), FREE, at(1))


def test_whoever_stands_before_the_queue_refuses_with_the_pools_drain_rate() -> None:
    flow = controller()
    for number in range(10):
        flow.passes(ticket(str(number)), FREE, at(number / 2))
    drop = flow.refuse(ticket("shed", priority=-1), 1.2, at(5))
    assert (drop.reason, drop.retry_after) == (DropReason.SATURATED, seconds(1))


# --- Taking back -----------------------------------------------------------------------------------


def sent(flow: FlowController, *names: str, priority: int = -1) -> list[Ticket]:
    tickets = [ticket(name, priority=priority) for name in names]
    for one in tickets:
        assert flow.passes(one, FREE, at(0))
    return tickets


def test_a_blocked_request_takes_sheddable_ones_back_two_at_a_time() -> None:
    flow = controller(enable_eviction=True)
    one, two, three = sent(flow, "one", "two", "three")
    effects = flow.offer(ticket("a"), FULL, at(1))
    assert shown(effects) == ["evict three"]
    assert isinstance(effects[0], Evict)
    assert effects[0].retry_after is not None
    assert three.stage is Stage.REVOKED
    assert flow.next_deadline(at(1)) == at(11)
    flow.offer(ticket("b"), FULL, at(1))
    assert flow.advance("llama", FULL, at(2)) == []
    assert flow.completed(three, at(2)) == seconds(1)
    assert flow.next_deadline(at(2)) == at(2.5)
    assert shown(flow.advance("llama", FULL, at(2.5))) == ["evict two", "evict one"]
    assert flow.completed(one, at(3)) == ms(500)
    assert flow.completed(one, at(3)) is None
    assert two.stage is Stage.REVOKED


def test_sheddable_requests_take_nothing_back_and_eviction_is_off_by_default() -> None:
    flow = controller(enable_eviction=True)
    sent(flow, "one")
    assert flow.offer(ticket("low", priority=-1), FULL, at(1)) == []
    off = controller()
    sent(off, "one")
    assert off.offer(ticket("a"), FULL, at(1)) == []


def test_an_answer_that_has_begun_is_not_cut() -> None:
    flow = controller(enable_eviction=True)
    (begun,) = sent(flow, "begun")
    flow.committed(begun)
    assert flow.offer(ticket("a"), FULL, at(1)) == []
    assert flow.completed(begun, at(2)) is None


def test_ends_of_what_was_not_sent_change_nothing() -> None:
    flow, waits, normal = controller(), ticket("waits"), ticket("normal")
    assert flow.passes(normal, FREE, at(0))
    flow.offer(waits, FULL, at(0))
    assert flow.completed(waits, at(1)) is None
    assert waits.stage is Stage.QUEUED
    assert flow.completed(normal, at(1)) is None
    assert normal.stage is Stage.ENDED


# --- Forgetting ------------------------------------------------------------------------------------


def test_priorities_that_nobody_uses_are_forgotten() -> None:
    flow = controller(
        enable_eviction=True, no_endpoint_request_ttl=seconds(3600), default_request_ttl=seconds(3600)
    )
    (old,) = sent(flow, "old", priority=-7)
    flow.offer(ticket("waits", priority=3), None, at(0))
    flow.passes(ticket("new", priority=4), FREE, at(LANE_IDLE / 1e9))
    assert [lane.priority for lane in flow.figures().lanes] == [4, 3]
    assert [band.priority for band in flow.figures().bands] == [3, 4]
    assert shown(flow.offer(ticket("a", priority=5, received=700), FULL, at(700))) == ["evict old"]
    assert flow.completed(old, at(701)) == seconds(1)


@pytest.mark.parametrize("priority", [-3, 0, 9])
def test_a_first_request_of_any_priority_is_ranked(priority: int) -> None:
    flow = controller(
        usage_limit=PriorityHoldback(0.5), priority_bands={-3: BandSettings(), 9: BandSettings()}
    )
    assert flow.passes(ticket(priority=priority), 0.49, at(0))
