"""What each event means to the request it is told to, and that a late one means nothing."""

import pytest

from services.core.failover import events as ev
from services.core.failover.effects import (
    CancelAttempt,
    CommitHead,
    Ending,
    Finish,
    OutcomeKind,
    Reject,
    Send,
)
from services.core.failover.plan import Replay
from services.core.failover.states import State
from services.core.locality import ClusterId
from services.core.units import seconds
from tests.core.failover.conversations import EXHAUSTED, at, begun, outcome


@pytest.mark.parametrize("status", [302, 400, 401, 404, 413, 422])
def test_an_answer_below_500_passes_at_once(status: int) -> None:
    attempts = begun()
    assert attempts.apply(ev.HeadArrived(1, status), at(0.1)) == (
        outcome("a1", 1, OutcomeKind.ANSWERED),
        CommitHead(1),
    )
    assert attempts.state is State.ANSWERING


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


def test_another_clusters_loss_is_none_of_its_business() -> None:
    assert begun().apply(ev.ClusterLost(ClusterId("b1")), at(1)) == ()


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


def test_unroutable_clusters_are_skipped() -> None:
    effects = begun().apply(ev.HeadArrived(1, 500), at(0.1), {"a2": None, "b1": None})
    assert effects[-1] == Send("c1", 2)


def test_what_this_worker_could_not_send_is_retried_and_says_nothing_of_the_cluster() -> None:
    assert begun().apply(ev.NotSent(1), at(0.1)) == (outcome("a1", 1, OutcomeKind.NOT_SENT), Send("b1", 2))


def test_a_refused_hand_off_is_a_gateway_error_and_no_answer_to_the_client() -> None:
    refused = ev.HeadArrived(1, 401, hop_refused=True)
    failed = (outcome("a1", 1, OutcomeKind.GATEWAY_ERROR), CancelAttempt(1))
    assert begun().apply(refused, at(0.1)) == (*failed, Send("a2", 2))
    assert begun(("a1",)).apply(refused, at(0.1)) == (
        *failed,
        Reject(EXHAUSTED),
        Finish(Ending.REJECTED),
    )


def test_a_cluster_that_cannot_serve_is_left_at_no_charge_and_held_to_be_well() -> None:
    """Law 2: free, but once; and what was answered passes on where nobody else is left."""
    unable = ev.HeadArrived(1, 503, unable=True)
    assert begun().apply(unable, at(0.1)) == (
        outcome("a1", 1, OutcomeKind.UNABLE),
        CancelAttempt(1),
        Send("a2", 2, redispatch=True),
    )
    assert begun(("a1",)).apply(unable, at(0.1)) == (outcome("a1", 1, OutcomeKind.UNABLE), CommitHead(1))
