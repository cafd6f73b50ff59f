"""The table is complete, and its laws hold of any conversation."""

from collections.abc import Sequence
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.failover import events as ev
from services.core.failover.attempts import Attempts
from services.core.failover.effects import (
    CommitHead,
    FailInBand,
    Finish,
    OutcomeKind,
    RecordOutcome,
    Reject,
    Send,
    SendHeartbeats,
)
from services.core.failover.plan import Plan, Replay
from services.core.failover.retry_budget import RetryBudget
from services.core.failover.states import MOVES, Action, State
from tests.core.failover.conversations import (
    POLICY,
    REGIONS,
    STEPS,
    TARGETS,
    play,
)


def test_every_state_has_a_row_and_every_event_a_place() -> None:
    assert set(MOVES) == set(State)
    known = {event for row in MOVES.values() for event in row}
    assert known == set(get_args(ev.AttemptEvent))


def test_every_action_is_used_and_has_a_method() -> None:
    used = {action for row in MOVES.values() for action in row.values()}
    assert used == set(Action)
    assert len(Attempts.compiled()) == len(State)


def test_every_running_state_can_end_by_deadline_and_by_the_client() -> None:
    for state in State:
        if state not in {State.PLANNED, State.DONE}:
            assert MOVES[state][ev.DeadlinePassed] is Action.FAIL_LATE
            assert MOVES[state][ev.ClientGone] is Action.ABORT


def test_after_the_first_byte_no_action_can_send() -> None:
    sending = {Action.SEND_FIRST, Action.MOVE_AWAY, Action.ASK_AGAIN}
    for state in (State.HEARTBEAT, State.ANSWERING, State.DONE):
        assert not sending & set(MOVES[state].values())


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
