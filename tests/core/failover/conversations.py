"""Conversations with one request's attempts: builders of its states, and a player of random ones.

No tests here; the test files of this folder share it.
"""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from services.core.failover import events as ev
from services.core.failover.attempts import PARK_POLL, Attempts
from services.core.failover.effects import (
    AttemptEffect,
    OutcomeKind,
    RecordOutcome,
    Send,
    SendHeartbeats,
)
from services.core.failover.plan import Plan, Replay
from services.core.failover.retry_budget import RetryBudget
from services.core.failover.states import IllegalMoveError, State
from services.core.inference import TrafficClass
from services.core.locality import ClusterId
from services.core.outcomes import DropReason
from services.core.policy import FailoverPolicy
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


def parked(**options: object) -> Attempts:
    attempts = begun(budget=empty_budget(), **options)  # type: ignore[arg-type] # Passed through as they are.
    assert attempts.apply(ev.ResetBeforeFirstByte(1), at(1)) == (outcome("a1", 1, OutcomeKind.RESET),)
    assert attempts.state is State.PARKED
    assert attempts.next_deadline == after(at(1), PARK_POLL)
    return attempts


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "connect",
                "unsent",
                "reset",
                "2xx",
                "4xx",
                "429",
                "5xx",
                "drained",
                "refused",
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
        "unsent": ev.NotSent(live),
        "reset": ev.ResetBeforeFirstByte(live, body_sent=False),
        "2xx": ev.HeadArrived(live, 200),
        "4xx": ev.HeadArrived(live, 404),
        "429": ev.HeadArrived(live, 429),
        "5xx": ev.HeadArrived(live, 503),
        "drained": ev.HeadArrived(live, 503, drained=True),
        "refused": ev.HeadArrived(live, 401, hop_refused=True),
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
