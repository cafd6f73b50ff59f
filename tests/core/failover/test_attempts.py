"""Conversations with one request's attempts: one for each rule of failover."""

from collections.abc import Sequence

import pytest

from services.core.failover import events as ev
from services.core.failover.attempts import EXHAUSTED_RETRY_AFTER, PARK_AT_MOST, Attempts, Effects
from services.core.failover.effects import (
    AttemptEffect,
    CancelAttempt,
    CommitHead,
    Ending,
    FailInBand,
    Finish,
    OutcomeKind,
    Reject,
    Send,
    SendHeartbeats,
)
from services.core.failover.plan import Plan, Replay
from services.core.failover.retry_budget import RetryBudget
from services.core.failover.states import IllegalMoveError, State
from services.core.locality import ClusterId
from services.core.outcomes import DropReason
from services.core.policy import FailoverPolicy
from services.core.units import after, seconds
from tests.core.failover.conversations import (
    EXHAUSTED,
    LATE,
    POLICY,
    REGIONS,
    TARGETS,
    answering,
    at,
    begun,
    empty_budget,
    heartbeating,
    held,
    outcome,
    parked,
)


def test_an_answer_that_began_well_is_committed_in_one_step() -> None:
    attempts = begun()
    assert attempts.apply(ev.AnswerBegan(1), at(0.2)) == (
        outcome("a1", 1, OutcomeKind.ANSWERED),
        CommitHead(1),
    )
    assert attempts.apply(ev.BodyFinished(1), at(0.3)) == (Finish(Ending.COMPLETED),)


def test_the_head_is_held_until_the_first_event_and_then_the_answer_flows() -> None:
    attempts = held()
    assert attempts.apply(ev.FirstEventArrived(1), at(0.2)) == (
        outcome("a1", 1, OutcomeKind.ANSWERED),
        CommitHead(1),
    )
    assert attempts.apply(ev.FirstEventArrived(1), at(0.2)) == ()
    assert attempts.apply(ev.BodyFinished(1), at(1)) == (Finish(Ending.COMPLETED),)
    assert attempts.state is State.DONE
    assert (attempts.sent, attempts.budgeted, attempts.redispatched) == (1, 1, False)


@pytest.mark.parametrize("event", [ev.ConnectFailed(1), ev.ResetBeforeFirstByte(1)])
def test_a_cluster_without_an_answer_is_left_for_another_region(event: ev.AttemptEvent) -> None:
    effects = begun().apply(event, at(0.1))
    assert effects[-1] == Send("b1", 2)


def test_a_reset_after_the_head_but_before_the_first_event_is_retried() -> None:
    assert held().apply(ev.ResetBeforeFirstByte(1), at(0.2)) == (
        outcome("a1", 1, OutcomeKind.RESET),
        Send("b1", 2),
    )


def test_an_error_as_first_event_passes_when_there_is_no_retry() -> None:
    for attempts in (held(budget=empty_budget()), held(targets=("a1",))):
        assert attempts.apply(ev.SseErrorFirst(1), at(0.2)) == (
            outcome("a1", 1, OutcomeKind.GATEWAY_ERROR),
            CommitHead(1),
        )


def test_at_most_three_attempts_then_the_last_answer_passes() -> None:
    attempts = begun()
    attempts.apply(ev.HeadArrived(1, 500), at(0.1))
    attempts.apply(ev.HeadArrived(2, 500), at(0.2))
    assert attempts.apply(ev.HeadArrived(3, 502), at(0.3)) == (
        outcome("b1", 3, OutcomeKind.GATEWAY_ERROR),
        CommitHead(3),
    )


def test_back_pressure_passes_when_no_other_cluster_is_eligible() -> None:
    attempts = begun(("a1", "a2"))
    wish = seconds(3)
    assert attempts.apply(ev.HeadArrived(1, 429, wish), at(0.1), {"a2": "draining"}) == (
        outcome("a1", 1, OutcomeKind.BACK_PRESSURE, wish),
        CommitHead(1),
    )


def test_neighbours_serve_when_no_other_region_is_left() -> None:
    effects = begun().apply(ev.ConnectFailed(1), at(0.1), {"b1": None, "c1": None})
    assert effects[-1] == Send("a2", 2)


def test_a_broken_connection_tries_its_only_cluster_again() -> None:
    attempts = begun(("a1",))
    assert attempts.apply(ev.ResetBeforeFirstByte(1), at(0.1))[-1] == Send("a1", 2)
    assert attempts.apply(ev.ConnectFailed(2), at(0.1))[-1] == Send("a1", 3)


def test_a_lost_only_cluster_is_not_tried_again() -> None:
    attempts = begun(("a1",))
    assert attempts.apply(ev.ConnectFailed(1), at(0.1), {"a1": None}) == (
        outcome("a1", 1, OutcomeKind.CONNECT_FAILED),
        Reject(EXHAUSTED, EXHAUSTED_RETRY_AFTER),
        Finish(Ending.REJECTED),
    )


@pytest.mark.parametrize("attempts", [begun(budget=empty_budget()), held(budget=empty_budget())])
def test_a_lost_cluster_moves_its_requests_at_once_outside_the_budget(attempts: Attempts) -> None:
    lost = ev.ClusterLost(ClusterId("a1"))
    assert attempts.apply(lost, at(1)) == (
        outcome("a1", 1, OutcomeKind.ABANDONED),
        CancelAttempt(1),
        Send("b1", 2, redispatch=True),
    )
    assert (attempts.sent, attempts.budgeted, attempts.redispatched) == (2, 1, True)


def test_a_second_loss_costs_a_retry() -> None:
    attempts = begun()
    attempts.apply(ev.ClusterLost(ClusterId("a1")), at(1))
    assert attempts.apply(ev.ClusterLost(ClusterId("a1")), at(1.5)) == ()
    effects = attempts.apply(ev.ClusterLost(ClusterId("b1")), at(2), {"a1": None, "b1": None})
    assert effects[-1] == Send("a2", 3, redispatch=False)
    assert attempts.budgeted == 2


def test_with_nowhere_to_go_the_attempt_keeps_running() -> None:
    attempts = begun(("a1",))
    assert attempts.apply(ev.ClusterLost(ClusterId("a1")), at(1)) == ()
    assert attempts.apply(ev.HeadArrived(1, 200), at(2)) == ()


def test_a_request_that_may_not_be_replayed_is_not_moved() -> None:
    assert begun(replay=Replay.BEFORE_BODY).apply(ev.ClusterLost(ClusterId("a1")), at(1)) == ()


def test_failing_on_a_cluster_known_to_be_lost_is_a_re_dispatch() -> None:
    attempts = begun(budget=empty_budget())
    effects = attempts.apply(ev.ConnectFailed(1), at(1), {"a1": None})
    assert effects[-1] == Send("b1", 2, redispatch=True)


def test_drained_traffic_is_re_dispatched_once_and_then_refused() -> None:
    attempts = begun(budget=empty_budget())
    drained = ev.HeadArrived(1, 503, drained=True)
    assert attempts.apply(drained, at(0.1)) == (
        outcome("a1", 1, OutcomeKind.DRAINED),
        CancelAttempt(1),
        Send("a2", 2, redispatch=True),
    )
    assert attempts.apply(ev.HeadArrived(2, 503, drained=True), at(0.2)) == (
        outcome("a2", 2, OutcomeKind.DRAINED),
        CancelAttempt(2),
        Reject(DropReason.DRAINED),
        Finish(Ending.REJECTED),
    )


def test_a_cluster_that_is_unable_costs_no_retry() -> None:
    attempts = begun(budget=empty_budget())
    assert attempts.apply(ev.HeadArrived(1, 503, unable=True), at(0.1)) == (
        outcome("a1", 1, OutcomeKind.UNABLE),
        CancelAttempt(1),
        Send("a2", 2, redispatch=True),
    )


def test_without_a_retry_an_unanswered_request_waits_for_the_verdict_on_its_cluster() -> None:
    attempts = parked()
    assert attempts.apply(ev.ClusterLost(ClusterId("a1")), at(2)) == (Send("b1", 2, redispatch=True),)
    assert attempts.apply(ev.HeadArrived(2, 200), at(2.1)) == ()


def test_a_parked_request_sees_a_loss_it_was_not_told_of() -> None:
    attempts = parked()
    assert attempts.tick(at(1.1), {"a1": None}) == (Send("b1", 2, redispatch=True),)


def test_a_parked_request_takes_a_retry_that_others_earned() -> None:
    budget = RetryBudget(FailoverPolicy(retry_bucket=1, retry_earned_per_request=1))
    assert budget.take()
    attempts = begun(budget=budget)
    assert budget.take()
    attempts.apply(ev.ConnectFailed(1), at(1))
    assert attempts.tick(at(1.1)) == ()
    budget.earn()
    assert attempts.tick(at(1.2)) == (Send("b1", 2),)


def test_a_parked_request_is_refused_in_the_end() -> None:
    attempts = parked()
    now = at(1)
    effects: Effects = ()
    while not effects:
        due = attempts.next_deadline
        assert due is not None
        assert due > now
        now = due
        effects = attempts.tick(now)
    assert effects == (Reject(EXHAUSTED, EXHAUSTED_RETRY_AFTER), Finish(Ending.REJECTED))
    assert now == after(at(1), PARK_AT_MOST)


def test_a_parked_request_ends_with_its_client_and_its_deadline() -> None:
    assert parked().apply(ev.ClientGone(), at(1.05)) == (Finish(Ending.CLIENT_GONE),)
    attempts = begun(budget=empty_budget(), deadline=at(1.05))
    attempts.apply(ev.ConnectFailed(1), at(1))
    assert attempts.next_deadline == at(1.05)
    assert attempts.tick(at(1.05)) == (Reject(LATE), Finish(Ending.REJECTED))


def test_nothing_is_parked_once_attempts_and_re_dispatch_are_used() -> None:
    attempts = begun()
    attempts.apply(ev.ClusterLost(ClusterId("a1")), at(1))
    attempts.apply(ev.ConnectFailed(2), at(1.1))
    attempts.apply(ev.ConnectFailed(3), at(1.2))
    assert attempts.sent == 4
    assert attempts.apply(ev.ConnectFailed(4), at(1.3))[-1] == Finish(Ending.REJECTED)


def test_headers_are_held_at_most_commit_after() -> None:
    attempts = begun()
    assert attempts.next_deadline == at(10)
    assert attempts.tick(at(9.999)) == ()
    assert attempts.tick(at(10)) == (SendHeartbeats(),)
    assert attempts.next_deadline == at(30)
    assert attempts.apply(ev.HeadArrived(1, 200), at(11)) == ()
    assert attempts.apply(ev.FirstEventArrived(1), at(12)) == (
        outcome("a1", 1, OutcomeKind.ANSWERED),
        CommitHead(1),
    )


@pytest.mark.parametrize(
    ("event", "effects"),
    [
        (ev.ConnectFailed(1), (outcome("a1", 1, OutcomeKind.CONNECT_FAILED), FailInBand(EXHAUSTED))),
        (ev.ResetBeforeFirstByte(1), (outcome("a1", 1, OutcomeKind.RESET), FailInBand(EXHAUSTED))),
        (
            ev.HeadArrived(1, 500),
            (outcome("a1", 1, OutcomeKind.GATEWAY_ERROR), CancelAttempt(1), FailInBand(EXHAUSTED)),
        ),
        (
            ev.HeadArrived(1, 404),
            (outcome("a1", 1, OutcomeKind.ANSWERED), CancelAttempt(1), FailInBand(EXHAUSTED)),
        ),
        (
            ev.HeadArrived(1, 503, drained=True),
            (outcome("a1", 1, OutcomeKind.DRAINED), CancelAttempt(1), FailInBand(DropReason.DRAINED)),
        ),
        (
            ev.FirstByteTimedOut(1),
            (outcome("a1", 1, OutcomeKind.TIMED_OUT), CancelAttempt(1), FailInBand(LATE)),
        ),
        (
            ev.DeadlinePassed(),
            (outcome("a1", 1, OutcomeKind.ABANDONED), CancelAttempt(1), FailInBand(LATE)),
        ),
    ],
)
def test_after_heartbeats_every_failure_is_in_band(
    event: ev.AttemptEvent, effects: Sequence[AttemptEffect]
) -> None:
    assert heartbeating().apply(event, at(11)) == (*effects, Finish(Ending.FAILED_IN_BAND))


def test_after_heartbeats_the_upstreams_own_error_event_passes() -> None:
    assert heartbeating().apply(ev.SseErrorFirst(1), at(11)) == (
        outcome("a1", 1, OutcomeKind.GATEWAY_ERROR),
        CommitHead(1),
    )


def test_an_idle_answer_is_cut_off_but_bytes_keep_it_alive() -> None:
    attempts = answering()
    assert attempts.next_deadline == at(60.2)
    attempts.touch(at(50))
    assert attempts.tick(at(60.2)) == ()
    assert attempts.tick(at(110)) == (
        outcome("a1", 1, OutcomeKind.BROKEN),
        CancelAttempt(1),
        FailInBand(LATE),
        Finish(Ending.FAILED_IN_BAND),
    )


def test_a_vanished_client_cancels_what_runs() -> None:
    assert begun().apply(ev.ClientGone(), at(1)) == (
        outcome("a1", 1, OutcomeKind.ABANDONED),
        CancelAttempt(1),
        Finish(Ending.CLIENT_GONE),
    )
    assert answering().apply(ev.ClientGone(), at(1)) == (CancelAttempt(1), Finish(Ending.CLIENT_GONE))


def test_after_the_end_nothing_happens() -> None:
    attempts = answering()
    attempts.apply(ev.BodyFinished(1), at(1))
    for event in (ev.BodyFinished(1), ev.ClusterLost(ClusterId("a1")), ev.ClientGone()):
        assert attempts.apply(event, at(2)) == ()
    assert attempts.next_deadline is None
    assert attempts.tick(at(9999)) == ()


def test_an_illegal_move_names_state_and_event() -> None:
    with pytest.raises(IllegalMoveError, match="FirstEventArrived in state WAITING"):
        begun().apply(ev.FirstEventArrived(1), at(1))
    with pytest.raises(IllegalMoveError, match="Started in state WAITING"):
        begun().start(at(1))


def test_before_the_start_there_is_no_deadline() -> None:
    attempts = Attempts(Plan(TARGETS, REGIONS), POLICY, RetryBudget(POLICY))
    assert attempts.next_deadline is None
    assert attempts.tick(at(1)) == ()


def test_after_the_first_byte_a_failure_is_told_in_band() -> None:
    assert answering().apply(ev.FailedAfterFirstByte(1), at(1)) == (
        outcome("a1", 1, OutcomeKind.BROKEN),
        FailInBand(EXHAUSTED),
        Finish(Ending.FAILED_IN_BAND),
    )


def test_the_third_kind_of_deadline_is_the_first_byte() -> None:
    attempts = begun(stream=False)
    assert attempts.tick(at(300)) == (
        outcome("a1", 1, OutcomeKind.TIMED_OUT),
        CancelAttempt(1),
        Reject(LATE),
        Finish(Ending.REJECTED),
    )


def test_an_answer_below_500_is_an_answer() -> None:
    assert begun().apply(ev.HeadArrived(1, 404), at(0.1))[-1] == CommitHead(1)


def test_an_error_as_first_event_inside_a_200_is_retried() -> None:
    assert held().apply(ev.SseErrorFirst(1), at(0.2)) == (
        outcome("a1", 1, OutcomeKind.GATEWAY_ERROR),
        CancelAttempt(1),
        Send("a2", 2),
    )


def test_an_empty_body_is_an_answer() -> None:
    assert held(stream=False).apply(ev.BodyFinished(1), at(0.2)) == (
        outcome("a1", 1, OutcomeKind.ANSWERED),
        CommitHead(1),
        Finish(Ending.COMPLETED),
    )


def test_a_parked_request_with_nowhere_left_is_refused_at_once() -> None:
    everyone = dict.fromkeys(TARGETS)
    assert parked().tick(at(1.1), everyone) == (
        Reject(EXHAUSTED, EXHAUSTED_RETRY_AFTER),
        Finish(Ending.REJECTED),
    )


def test_a_running_answer_survives_the_verdict_on_its_cluster() -> None:
    assert answering().apply(ev.ClusterLost(ClusterId("a1")), at(1)) == ()
    assert heartbeating().apply(ev.ClusterLost(ClusterId("a1")), at(11)) == ()
