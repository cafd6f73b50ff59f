"""The table is complete: every state ends, every event is known somewhere, every action has a method."""

from typing import get_args

from services.core.failover import events as ev
from services.core.failover.attempts import Attempts
from services.core.failover.states import MOVES, Action, State


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
