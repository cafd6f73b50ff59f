"""The state table of one request: which event does what in which state, and nothing else.

Laws. (1) Nothing is retried after the first byte to the client, heartbeats included.
(2) At most `max_attempts` sends, each retry paid from the worker's bucket, plus at most one
re-dispatch, which is free because its cluster is lost, drained or says that it cannot serve. (3) Only planned targets
are ever sent to, so residency holds on every retry. (4) An event of an attempt that is no
longer the live one changes nothing. (5) Until the end there is always a deadline. (6) The last
effect is one `Finish`; after it nothing happens. (7) A request whose cluster gave no answer
while no retry is to be had is parked, for at most the time in which a dead cluster is found
out, so that a region's death costs no request for want of retries.

A pair that is missing here is illegal and raises `IllegalMoveError`.
"""

import enum
from collections.abc import Mapping

from services.core.failover import events as ev


class State(enum.IntEnum):
    """Where the request stands (an int, because the table is a tuple indexed by it)."""

    PLANNED = 0
    """Not sent yet."""
    WAITING = 1
    """Sent; no head yet."""
    HELD = 2
    """A 2xx head is here and held back until the first event shows what it is worth."""
    HEARTBEAT = 3
    """The client has 200 and heartbeats; the attempt has brought nothing yet."""
    ANSWERING = 4
    """The answer flows to the client."""
    PARKED = 5
    """Nothing runs; the request waits for a retry or for the verdict on its cluster."""
    DONE = 6
    """Finished."""


class Action(enum.Enum):
    """What the machine does on an event; each is one method of `Attempts`."""

    SEND_FIRST = "send_first"
    RETRY_UNANSWERED = "retry_unanswered"
    JUDGE_HEAD = "judge_head"
    RETRY_ERROR = "retry_error"
    COMMIT = "commit"
    COMMIT_EMPTY = "commit_empty"
    COMMIT_EARLY = "commit_early"
    COMPLETE = "complete"
    FAIL_BROKEN = "fail_broken"
    FAIL_IDLE = "fail_idle"
    FAIL_SLOW = "fail_slow"
    FAIL_LATE = "fail_late"
    ABORT = "abort"
    MOVE_AWAY = "move_away"
    ASK_AGAIN = "ask_again"
    IGNORE = "ignore"


class IllegalMoveError(Exception):
    """An event came that the state does not know; the message names both."""


_ALWAYS: Mapping[type, Action] = {
    ev.DeadlinePassed: Action.FAIL_LATE,
    ev.ClientGone: Action.ABORT,
}
_BEFORE_FIRST_EVENT: Mapping[type, Action] = {
    **_ALWAYS,
    ev.ResetBeforeFirstByte: Action.RETRY_UNANSWERED,
    ev.FirstByteTimedOut: Action.FAIL_SLOW,
}
_EVENT_DUE: Mapping[type, Action] = {
    **_BEFORE_FIRST_EVENT,
    ev.FirstEventArrived: Action.COMMIT,
    ev.SseErrorFirst: Action.RETRY_ERROR,
    ev.BodyFinished: Action.COMMIT_EMPTY,
}
_HEAD_DUE: Mapping[type, Action] = {
    **_BEFORE_FIRST_EVENT,
    ev.ConnectFailed: Action.RETRY_UNANSWERED,
    ev.NotSent: Action.RETRY_UNANSWERED,
    ev.HeadArrived: Action.JUDGE_HEAD,
    ev.AnswerBegan: Action.COMMIT,
}
_MOVABLE: Mapping[type, Action] = {
    ev.ClusterLost: Action.MOVE_AWAY,
    ev.CommitTimerFired: Action.COMMIT_EARLY,
}
_IMMOVABLE: Mapping[type, Action] = {ev.ClusterLost: Action.IGNORE}

MOVES: Mapping[State, Mapping[type, Action]] = {
    State.PLANNED: {ev.Started: Action.SEND_FIRST},
    State.WAITING: {**_HEAD_DUE, **_MOVABLE},
    State.HELD: {**_EVENT_DUE, **_MOVABLE},
    State.HEARTBEAT: {**_HEAD_DUE, **_EVENT_DUE, **_IMMOVABLE},
    State.ANSWERING: {
        **_ALWAYS,
        **_IMMOVABLE,
        ev.FirstEventArrived: Action.IGNORE,
        ev.BodyFinished: Action.COMPLETE,
        ev.FailedAfterFirstByte: Action.FAIL_BROKEN,
        ev.IdleTimedOut: Action.FAIL_IDLE,
    },
    State.PARKED: {**_ALWAYS, ev.ParkPolled: Action.ASK_AGAIN, ev.ClusterLost: Action.MOVE_AWAY},
    State.DONE: {**_IMMOVABLE, ev.ClientGone: Action.IGNORE},
}
