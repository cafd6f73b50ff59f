"""How requests end: the effects of an ending, in their order, and when it comes."""

import pytest

from services.core.failover import events as ev
from services.core.failover.effects import (
    CancelAttempt,
    Ending,
    FailInBand,
    Finish,
    OutcomeKind,
    Reject,
)
from services.core.inference import TrafficClass
from services.core.policy import FailoverPolicy, Timeouts
from services.core.units import seconds
from tests.core.failover.conversations import LATE, at, begun, outcome


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


def test_an_answer_that_is_no_stream_has_no_heartbeats() -> None:
    assert begun(stream=False).next_deadline == at(300)
