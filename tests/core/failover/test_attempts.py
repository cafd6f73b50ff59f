"""Conversations with one request's attempts: what happens (`>>`) and what is to be done (`<<`)."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.failover import events as ev
from services.core.failover.attempts import (
    EXHAUSTED_RETRY_AFTER,
    PARK_AT_MOST,
    PARK_POLL,
    Attempts,
    Effects,
    Plan,
    Replay,
)
from services.core.failover.effects import (
    AttemptEffect,
    CancelAttempt,
    CommitHead,
    Ending,
    FailInBand,
    Finish,
    OutcomeKind,
    RecordOutcome,
    Reject,
    Send,
    SendHeartbeats,
)
from services.core.failover.retry_budget import RetryBudget
from services.core.failover.states import IllegalMoveError, State
from services.core.inference import TrafficClass
from services.core.locality import ClusterId
from services.core.outcomes import DropReason
from services.core.policy import FailoverPolicy, Timeouts
from services.core.units import Duration, Instant, after, seconds

POLICY = FailoverPolicy()
T0 = Instant(1_000_000_000_000)
REGIONS = {"a1": "A", "a2": "A", "b1": "B", "c1": "C"}
TARGETS = ("a1", "a2", "b1", "c1")
EXHAUSTED = DropReason.ATTEMPTS_EXHAUSTED
LATE = DropReason.DEADLINE_EXCEEDED


def at(span_s: float) -> Instant:
    return after(T0, seconds(span_s))


def empty_budget() -> RetryBudget:
    return RetryBudget(FailoverPolicy(retry_bucket=0, retry_earned_per_request=0))


def begun(
    targets: Sequence[str] = TARGETS,
    *,
    stream: bool = True,
    replay: Replay = Replay.ALWAYS,
    budget: RetryBudget | None = None,
    policy: FailoverPolicy = POLICY,
    traffic_class: TrafficClass = TrafficClass.INTERACTIVE,
    deadline: Instant | None = None,
) -> Attempts:
    plan = Plan(targets, REGIONS, traffic_class, stream, replay, deadline)
    attempts = Attempts(plan, policy, budget or RetryBudget(policy))
    assert attempts.start(T0) == (Send(targets[0], 1),)
    return attempts


def outcome(
    cluster: str, attempt: int, kind: OutcomeKind, retry_after: Duration | None = None
) -> RecordOutcome:
    return RecordOutcome(cluster, attempt, kind, retry_after)


def held(**options: object) -> Attempts:
    attempts = begun(**options)  # type: ignore[arg-type] # Keyword options are passed through as they are.
    assert attempts.apply(ev.HeadArrived(1, 200), at(0.1)) == ()
    assert attempts.state is State.HELD
    return attempts


def answering() -> Attempts:
    attempts = held()
    attempts.apply(ev.FirstEventArrived(1), at(0.2))
    return attempts


def heartbeating() -> Attempts:
    attempts = begun()
    assert attempts.tick(at(10)) == (SendHeartbeats(),)
    return attempts


# --- The happy path -----------------------------------------------------------------------------------


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


def test_an_empty_body_is_an_answer() -> None:
    assert held(stream=False).apply(ev.BodyFinished(1), at(0.2)) == (
        outcome("a1", 1, OutcomeKind.ANSWERED),
        CommitHead(1),
        Finish(Ending.COMPLETED),
    )


@pytest.mark.parametrize("status", [302, 400, 401, 404, 413, 422])
def test_an_answer_below_500_passes_at_once(status: int) -> None:
    attempts = begun()
    assert attempts.apply(ev.HeadArrived(1, status), at(0.1)) == (
        outcome("a1", 1, OutcomeKind.ANSWERED),
        CommitHead(1),
    )
    assert attempts.state is State.ANSWERING


# --- Retries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (500, OutcomeKind.GATEWAY_ERROR),
        (501, OutcomeKind.GATEWAY_ERROR),
        (502, OutcomeKind.GATEWAY_ERROR),
        (503, OutcomeKind.GATEWAY_ERROR),
        (504, OutcomeKind.GATEWAY_ERROR),
        (429, OutcomeKind.BACK_PRESSURE),
        (408, OutcomeKind.ANSWERED),
        (425, OutcomeKind.ANSWERED),
    ],
)
def test_retried_statuses_go_to_the_next_cluster_and_tell_what_the_answer_asked(
    status: int, kind: OutcomeKind
) -> None:
    wish = seconds(7)
    assert begun().apply(ev.HeadArrived(1, status, retry_after=wish), at(0.1)) == (
        outcome("a1", 1, kind, wish),
        CancelAttempt(1),
        Send("a2", 2),
    )


@pytest.mark.parametrize("event", [ev.ConnectFailed(1), ev.ResetBeforeFirstByte(1)])
def test_a_cluster_without_an_answer_is_left_for_another_region(event: ev.AttemptEvent) -> None:
    effects = begun().apply(event, at(0.1))
    assert effects[-1] == Send("b1", 2)


def test_a_reset_after_the_head_but_before_the_first_event_is_retried() -> None:
    assert held().apply(ev.ResetBeforeFirstByte(1), at(0.2)) == (
        outcome("a1", 1, OutcomeKind.RESET),
        Send("b1", 2),
    )


def test_an_error_as_first_event_inside_a_200_is_retried() -> None:
    assert held().apply(ev.SseErrorFirst(1), at(0.2)) == (
        outcome("a1", 1, OutcomeKind.GATEWAY_ERROR),
        CancelAttempt(1),
        Send("a2", 2),
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


def test_unroutable_clusters_are_skipped() -> None:
    effects = begun().apply(ev.HeadArrived(1, 500), at(0.1), {"a2": None, "b1": None})
    assert effects[-1] == Send("c1", 2)


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


@pytest.mark.parametrize(
    ("replay", "event", "again"),
    [
        (Replay.ALWAYS, ev.ResetBeforeFirstByte(1, body_sent=True), True),
        (Replay.BEFORE_BODY, ev.ResetBeforeFirstByte(1, body_sent=True), False),
        (Replay.BEFORE_BODY, ev.ResetBeforeFirstByte(1, body_sent=False), True),
        (Replay.BEFORE_BODY, ev.ConnectFailed(1), True),
        (Replay.BEFORE_BODY, ev.HeadArrived(1, 503), False),
        (Replay.BEFORE_BODY, ev.HeadArrived(1, 503, body_sent=False), True),
        (Replay.NEVER, ev.ConnectFailed(1), False),
        (Replay.NEVER, ev.HeadArrived(1, 503, body_sent=False), False),
    ],
)
def test_what_may_not_be_replayed_is_sent_again_only_before_its_body(
    replay: Replay, event: ev.AttemptEvent, again: bool
) -> None:
    effects = begun(replay=replay).apply(event, at(0.1))
    assert any(isinstance(effect, Send) for effect in effects) is again


# --- Re-dispatch and drain ----------------------------------------------------------------------------


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
    effects = attempts.apply(ev.ClusterLost(ClusterId("b1")), at(2), {"a1": None, "b1": None})
    assert effects[-1] == Send("a2", 3, redispatch=False)
    assert attempts.budgeted == 2


def test_with_nowhere_to_go_the_attempt_keeps_running() -> None:
    attempts = begun(("a1",))
    assert attempts.apply(ev.ClusterLost(ClusterId("a1")), at(1)) == ()
    assert attempts.apply(ev.HeadArrived(1, 200), at(2)) == ()


def test_another_clusters_loss_is_none_of_its_business() -> None:
    assert begun().apply(ev.ClusterLost(ClusterId("b1")), at(1)) == ()


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


# --- Parking ------------------------------------------------------------------------------------------


def parked(**options: object) -> Attempts:
    attempts = begun(budget=empty_budget(), **options)  # type: ignore[arg-type] # Passed through as they are.
    assert attempts.apply(ev.ResetBeforeFirstByte(1), at(1)) == (outcome("a1", 1, OutcomeKind.RESET),)
    assert attempts.state is State.PARKED
    assert attempts.next_deadline == after(at(1), PARK_POLL)
    return attempts


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


def test_a_parked_request_with_nowhere_left_is_refused_at_once() -> None:
    everyone = dict.fromkeys(TARGETS)
    assert parked().tick(at(1.1), everyone) == (
        Reject(EXHAUSTED, EXHAUSTED_RETRY_AFTER),
        Finish(Ending.REJECTED),
    )


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


# --- After the first byte -----------------------------------------------------------------------------


def test_after_the_first_byte_a_failure_is_told_in_band() -> None:
    assert answering().apply(ev.FailedAfterFirstByte(1), at(1)) == (
        outcome("a1", 1, OutcomeKind.BROKEN),
        FailInBand(EXHAUSTED),
        Finish(Ending.FAILED_IN_BAND),
    )


def test_a_running_answer_survives_the_verdict_on_its_cluster() -> None:
    assert answering().apply(ev.ClusterLost(ClusterId("a1")), at(1)) == ()
    assert heartbeating().apply(ev.ClusterLost(ClusterId("a1")), at(11)) == ()


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


def test_an_answer_that_is_no_stream_has_no_heartbeats() -> None:
    assert begun(stream=False).next_deadline == at(300)


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


# --- Deadlines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("traffic_class", "stream", "first_byte_s"),
    [
        (TrafficClass.INTERACTIVE, True, 30),
        (TrafficClass.STANDARD, True, 30),
        (TrafficClass.BATCH, True, 300),
        (TrafficClass.INTERACTIVE, False, 300),
    ],
)
def test_no_first_byte_in_time_is_a_refusal(
    traffic_class: TrafficClass, stream: bool, first_byte_s: float
) -> None:
    policy = FailoverPolicy(timeouts=Timeouts(commit_after=seconds(1000)))
    attempts = begun(traffic_class=traffic_class, stream=stream, policy=policy)
    assert attempts.next_deadline == at(first_byte_s)
    assert attempts.tick(at(first_byte_s)) == (
        outcome("a1", 1, OutcomeKind.TIMED_OUT),
        CancelAttempt(1),
        Reject(LATE),
        Finish(Ending.REJECTED),
    )


def test_every_attempt_has_its_own_first_byte_timeout() -> None:
    attempts = begun(stream=False)
    attempts.apply(ev.ConnectFailed(1), at(5))
    assert attempts.next_deadline == at(305)


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


def test_the_clients_deadline_narrows_the_total() -> None:
    attempts = begun(deadline=at(5))
    assert attempts.next_deadline == at(5)
    assert attempts.tick(at(5)) == (
        outcome("a1", 1, OutcomeKind.ABANDONED),
        CancelAttempt(1),
        Reject(LATE),
        Finish(Ending.REJECTED),
    )


def test_a_deadline_beyond_the_total_widens_nothing() -> None:
    attempts = begun(deadline=at(7200))
    attempts.apply(ev.HeadArrived(1, 200), at(1))
    attempts.apply(ev.FirstEventArrived(1), at(1))
    attempts.touch(at(3590))
    assert attempts.next_deadline == at(3600)
    assert attempts.tick(at(3600)) == (CancelAttempt(1), FailInBand(LATE), Finish(Ending.FAILED_IN_BAND))


# --- The client, fencing, illegal moves ----------------------------------------------------------------


def test_a_vanished_client_cancels_what_runs() -> None:
    assert begun().apply(ev.ClientGone(), at(1)) == (
        outcome("a1", 1, OutcomeKind.ABANDONED),
        CancelAttempt(1),
        Finish(Ending.CLIENT_GONE),
    )
    assert answering().apply(ev.ClientGone(), at(1)) == (CancelAttempt(1), Finish(Ending.CLIENT_GONE))


@pytest.mark.parametrize(
    "event",
    [
        ev.ConnectFailed(1),
        ev.HeadArrived(1, 200),
        ev.FirstEventArrived(1),
        ev.BodyFinished(1),
        ev.FailedAfterFirstByte(1),
        ev.FirstByteTimedOut(1),
        ev.IdleTimedOut(1),
    ],
)
def test_late_outcomes_of_a_cancelled_attempt_change_nothing(event: ev.AttemptEvent) -> None:
    attempts = begun()
    attempts.apply(ev.ClusterLost(ClusterId("a1")), at(1))
    assert attempts.apply(event, at(2)) == ()
    assert (attempts.state, attempts.cluster, attempts.sent) == (State.WAITING, "b1", 2)


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


# --- Properties ---------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "connect",
                "reset",
                "2xx",
                "4xx",
                "429",
                "5xx",
                "drained",
                "first",
                "error",
                "end",
                "broken",
                "lost",
                "gone",
                "wait",
                "late",
            ]
        ),
        st.integers(0, 40_000),
        st.sets(st.sampled_from(TARGETS)),
    ),
    max_size=14,
)


def event_of(word: str, attempts: Attempts) -> ev.AttemptEvent:
    live = attempts.sent
    events: Mapping[str, ev.AttemptEvent] = {
        "connect": ev.ConnectFailed(live),
        "reset": ev.ResetBeforeFirstByte(live, body_sent=False),
        "2xx": ev.HeadArrived(live, 200),
        "4xx": ev.HeadArrived(live, 404),
        "429": ev.HeadArrived(live, 429),
        "5xx": ev.HeadArrived(live, 503),
        "drained": ev.HeadArrived(live, 503, drained=True),
        "first": ev.FirstEventArrived(live),
        "error": ev.SseErrorFirst(live),
        "end": ev.BodyFinished(live),
        "broken": ev.FailedAfterFirstByte(live),
        "lost": ev.ClusterLost(ClusterId(attempts.cluster)),
        "gone": ev.ClientGone(),
        "late": ev.HeadArrived(live - 1, 500),
    }
    return events[word]


def play(attempts: Attempts, steps: Sequence[tuple[str, int, set[str]]]) -> list[AttemptEffect]:
    """Tell the machine every legal step, then only let time pass until it ends; return all effects."""
    now = T0
    effects = list(attempts.start(now))
    for word, span_ms, gone in steps:
        now = Instant(now + span_ms * 1_000_000)
        unroutable = dict.fromkeys(gone)
        if word == "wait":
            effects += attempts.tick(now, unroutable)
            continue
        try:
            effects += attempts.apply(event_of(word, attempts), now, unroutable)
        except IllegalMoveError:
            continue
    ticks = 0
    while (due := attempts.next_deadline) is not None:
        now = max(now, due)
        effects += attempts.tick(now)
        ticks += 1
        assert ticks < 500, "time passes and the request never ends"
    return effects


@settings(max_examples=200, deadline=None)
@given(STEPS, st.booleans(), st.sampled_from(Replay))
def test_every_request_ends_once_and_obeys_the_laws(
    steps: Sequence[tuple[str, int, set[str]]], stream: bool, replay: Replay
) -> None:
    """Invariant: one Finish, last; no send after the first byte; <= 3 attempts + 1 re-dispatch; planned targets."""
    attempts = Attempts(Plan(TARGETS, REGIONS, stream=stream, replay=replay), POLICY, RetryBudget(POLICY))
    effects = play(attempts, steps)
    assert [isinstance(effect, Finish) for effect in effects].count(True) == 1
    assert isinstance(effects[-1], Finish)
    kinds = [type(effect) for effect in effects]
    first_byte = next(
        (place for place, kind in enumerate(kinds) if kind in {CommitHead, SendHeartbeats}), None
    )
    sends = [effect for effect in effects if isinstance(effect, Send)]
    if first_byte is not None:
        assert Send not in kinds[first_byte:]
        assert Reject not in kinds
    else:
        assert FailInBand not in kinds
    assert sum(send.redispatch for send in sends) <= 1
    assert sum(not send.redispatch for send in sends) <= 3
    assert [send.attempt for send in sends] == list(range(1, len(sends) + 1))
    assert {send.cluster for send in sends} <= set(TARGETS)
    if replay is Replay.NEVER:
        assert len(sends) == 1
    outcomes = [effect for effect in effects if isinstance(effect, RecordOutcome)]
    unanswered = [effect for effect in outcomes if effect.kind is not OutcomeKind.BROKEN]
    assert [effect.attempt for effect in unanswered] == [send.attempt for send in sends]


@settings(max_examples=30, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=40))
def test_attempts_never_amplify(requests: list[list[tuple[str, int, set[str]]]]) -> None:
    """Invariant 8: attempts (re-dispatch excepted) <= 1.2 x requests + 3 for all requests of a worker."""
    budget = RetryBudget(POLICY)
    attempts_sent = 0
    for steps in requests:
        attempts = Attempts(Plan(TARGETS, REGIONS, stream=True), POLICY, budget)
        attempts_sent += sum(
            isinstance(effect, Send) and not effect.redispatch for effect in play(attempts, steps)
        )
    assert 10 * attempts_sent <= 12 * len(requests) + 30
