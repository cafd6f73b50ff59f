"""The attempts of one request: a sans-I/O machine over the table in `states`.

No socket, no clock, no health state: the shell performs effects, reads time, and says
which clusters are unroutable now. The laws stand with the table.
"""

from collections.abc import Callable, Mapping
from typing import Final

from services.core.failover import events as ev
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
from services.core.failover.events import AttemptEvent
from services.core.failover.plan import Plan, Replay
from services.core.failover.retry_budget import RetryBudget
from services.core.failover.states import MOVES, Action, IllegalMoveError, State
from services.core.outcomes import DropReason
from services.core.policy import FailoverPolicy
from services.core.units import Duration, Instant, after, ms, seconds

Effects = tuple[AttemptEffect, ...]
Unroutable = Mapping[str, object]
"""Clusters nothing new may be sent to now (UNHEALTHY, draining, ejected, misplaced)."""

NONE_UNROUTABLE: Unroutable = {}

PARK_AT_MOST = seconds(3)
"""A dead cluster is found out within 3 s of its last report; waiting longer cannot help."""

PARK_POLL = ms(100)
"""How often a parked request asks the bucket again; first attempts refill it meanwhile."""

EXHAUSTED_RETRY_AFTER = seconds(1)
"""Hint to clients of a rejected request: by then the failed cluster has been ejected or is back."""

# Enum members are reached through a descriptor, which costs more than the comparison they serve.
_PLANNED, _WAITING, _ANSWERING, _DONE = State.PLANNED, State.WAITING, State.ANSWERING, State.DONE
_ANSWERED: Final = OutcomeKind.ANSWERED

RETRIED_BELOW_500 = frozenset((408, 425, 429))


class Attempts:
    """One request's attempts. `sent` counts every send, `budgeted` those that are no re-dispatch.

    `start` once, then `apply` for each event, `tick` at `next_deadline`, `touch` when bytes pass.
    Each attempt yields one `RecordOutcome`; one that was answered may yield `BROKEN` after it.
    """

    __slots__ = (
        "_budget",
        "_commit_at",
        "_live",
        "_park_until",
        "_plan",
        "_policy",
        "_still_since",
        "_total_at",
        "_tried",
        "_wait_until",
        "budgeted",
        "cluster",
        "redispatched",
        "sent",
        "state",
    )

    def __init__(self, plan: Plan, policy: FailoverPolicy, budget: RetryBudget) -> None:
        self._plan = plan
        self._policy = policy
        self._budget = budget
        self._total_at = self._wait_until = self._park_until = self._still_since = Instant(0)
        self._commit_at: Instant | None = None
        self._live = 0
        self._tried: tuple[str, ...] = ()
        self.state = _PLANNED
        self.cluster = plan.targets[0]
        self.sent = self.budgeted = 0
        self.redispatched = False

    def start(self, now: Instant) -> Effects:
        """Send the first attempt."""
        return self.apply(_STARTED, now)

    def apply(self, event: AttemptEvent, now: Instant, unroutable: Unroutable = NONE_UNROUTABLE) -> Effects:
        """Return what follows from `event`. Raises `IllegalMoveError` for one the state does not know."""
        attempt = event.attempt
        if attempt is not None and attempt != self._live:
            return ()
        move = _TABLE[self.state].get(event.__class__)
        if move is None:
            raise IllegalMoveError(f"{type(event).__name__} in state {self.state.name}")
        return move(self, event, now, unroutable)

    @property
    def next_deadline(self) -> Instant | None:
        """When `tick` is due; None only before the start and after the end."""
        state = self.state
        if state is _DONE or state is _PLANNED:
            return None
        if state is _ANSWERING:
            return min(self._total_at, after(self._still_since, self._policy.timeouts.idle))
        due = min(self._total_at, self._wait_until)
        if self._commit_at is not None and (state is State.WAITING or state is State.HELD):
            return min(due, self._commit_at)
        return due

    def tick(self, now: Instant, unroutable: Unroutable = NONE_UNROUTABLE) -> Effects:
        """Apply the gravest deadline that has passed, if one has."""
        due = self.next_deadline
        if due is None or now < due:
            return ()
        event: AttemptEvent
        if now >= self._total_at:
            event = ev.DeadlinePassed()
        elif self.state is State.ANSWERING:
            event = ev.IdleTimedOut(self._live)
        elif self.state is State.PARKED:
            event = ev.ParkPolled()
        elif now >= self._wait_until:
            event = ev.FirstByteTimedOut(self._live)
        else:
            event = ev.CommitTimerFired()
        return self.apply(event, now, unroutable)

    def touch(self, now: Instant) -> None:
        """Bytes of the answer passed; the idle timeout counts anew."""
        self._still_since = now

    # --- Sending ----------------------------------------------------------------------------------

    def _send_first(self, _event: AttemptEvent, now: Instant, _unroutable: Unroutable) -> Effects:
        plan = self._plan
        timeouts = self._policy.timeouts
        self._total_at = after(now, timeouts.total)
        if plan.deadline is not None and plan.deadline < self._total_at:
            self._total_at = plan.deadline
        if plan.stream:
            self._commit_at = after(now, timeouts.commit_after)
        self._budget.earn()
        self.budgeted = 1
        return (self._send(self.cluster, now, redispatch=False),)

    def _send(self, cluster: str, now: Instant, *, redispatch: bool) -> Send:
        self.sent += 1
        self._live = self.sent
        self._tried += (cluster,)
        self.cluster = cluster
        self.state = _WAITING
        timeouts = self._policy.timeouts
        # The first byte of an answer that is no stream comes only when all of it has been generated.
        plan = self._plan
        wait = timeouts.first_byte(plan.traffic_class) if plan.stream else timeouts.first_byte_batch
        self._wait_until = after(now, wait)
        return Send(cluster, self.sent, redispatch)

    def _target(self, unroutable: Unroutable, *, body_sent: bool, answered: bool) -> str | None:
        """Return where the request may go next, None when it may go nowhere.

        After no answer a cluster of another region comes first: the silent one may have died with its
        region, and a re-dispatch is granted only once. The same cluster comes last, and only if it
        gave no answer and is not known to be lost (a connection can break without its cluster).
        """
        plan = self._plan
        if plan.replay is Replay.NEVER or (plan.replay is Replay.BEFORE_BODY and body_sent):
            return None
        here = plan.regions.get(self.cluster)
        near: str | None = None
        for target in plan.targets:
            if target in self._tried or target in unroutable:
                continue
            if answered or plan.regions.get(target) != here:
                return target
            near = near or target
        if near is not None:
            return near
        return None if answered or self.cluster in unroutable else self.cluster

    def _resend(self, target: str | None, now: Instant, *, free: bool) -> tuple[Send, ...]:
        """Send to `target` if a free re-dispatch or a paid retry is to be had; empty when not."""
        if target is None:
            return ()
        if free and not self.redispatched:
            self.redispatched = True
            return (self._send(target, now, redispatch=True),)
        if self.budgeted < self._policy.max_attempts and self._budget.take():
            self.budgeted += 1
            return (self._send(target, now, redispatch=False),)
        return ()

    # --- Endings ----------------------------------------------------------------------------------

    def _outcome(self, kind: OutcomeKind, retry_after: Duration | None = None) -> RecordOutcome:
        return RecordOutcome(self.cluster, self._live, kind, retry_after)

    def _finish(self, ending: Ending) -> Finish:
        self.state = _DONE
        self._live = 0
        return Finish(ending)

    def _fail(self, reason: DropReason, retry_after: Duration | None = None) -> Effects:
        """End the request with an error of our own, in band once the client has got a head."""
        if self.state is State.HEARTBEAT or self.state is _ANSWERING:
            return (FailInBand(reason), self._finish(Ending.FAILED_IN_BAND))
        return (Reject(reason, retry_after), self._finish(Ending.REJECTED))

    def _answer(self, now: Instant, kind: OutcomeKind, retry_after: Duration | None = None) -> Effects:
        """Pass the live attempt's answer on, whatever it is."""
        self.state = _ANSWERING
        self._still_since = now
        return (RecordOutcome(self.cluster, self._live, kind, retry_after), CommitHead(self._live))

    def _abandon(self) -> Effects:
        """Cancel whatever runs; an attempt that was not answered yet says nothing of its cluster."""
        if self.state is State.PARKED:
            return ()
        if self.state is State.ANSWERING:
            return (CancelAttempt(self._live),)
        return (self._outcome(OutcomeKind.ABANDONED), CancelAttempt(self._live))

    # --- Actions, one per member of `Action` --------------------------------------------------------

    def _retry_unanswered(
        self,
        event: ev.ConnectFailed | ev.NotSent | ev.ResetBeforeFirstByte,
        now: Instant,
        unroutable: Unroutable,
    ) -> Effects:
        body_sent = isinstance(event, ev.ResetBeforeFirstByte) and event.body_sent
        outcome = self._outcome(_UNANSWERED[event.__class__])
        if self.state is State.HEARTBEAT:
            return (outcome, *self._fail(DropReason.ATTEMPTS_EXHAUSTED))
        target = self._target(unroutable, body_sent=body_sent, answered=False)
        sends = self._resend(target, now, free=self.cluster in unroutable)
        if sends:
            return (outcome, *sends)
        if target is None or (self.redispatched and self.budgeted >= self._policy.max_attempts):
            return (outcome, *self._fail(DropReason.ATTEMPTS_EXHAUSTED, EXHAUSTED_RETRY_AFTER))
        self.state = State.PARKED
        self._live = 0
        self._park_until = after(now, PARK_AT_MOST)
        self._wait_until = after(now, PARK_POLL)
        return (outcome,)

    def _ask_again(self, _event: AttemptEvent, now: Instant, unroutable: Unroutable) -> Effects:
        # A request is parked only when it may be sent again, so the body no longer matters.
        target = self._target(unroutable, body_sent=False, answered=False)
        sends = self._resend(target, now, free=self.cluster in unroutable)
        if sends:
            return sends
        if target is None or now >= self._park_until:
            return self._fail(DropReason.ATTEMPTS_EXHAUSTED, EXHAUSTED_RETRY_AFTER)
        self._wait_until = min(after(now, PARK_POLL), self._park_until)
        return ()

    def _judge_head(self, event: ev.HeadArrived, now: Instant, unroutable: Unroutable) -> Effects:
        status = event.status
        if 200 <= status < 300:
            if self.state is State.WAITING:
                self.state = State.HELD
            return ()
        drained = event.drained and status == 503
        kind = _kind_of(500 if event.hop_refused else status)
        if drained:
            kind = OutcomeKind.DRAINED
        elif event.unable:
            kind = OutcomeKind.UNABLE
        failed = (self._outcome(kind, event.retry_after), CancelAttempt(self._live))
        reason = DropReason.DRAINED if drained else DropReason.ATTEMPTS_EXHAUSTED
        if self.state is State.HEARTBEAT:
            return (*failed, *self._fail(reason))
        if status >= 500 or status in RETRIED_BELOW_500 or event.hop_refused:
            target = self._target(unroutable, body_sent=event.body_sent, answered=True)
            free = drained or event.unable or self.cluster in unroutable
            sends = self._resend(target, now, free=free)
            if sends:
                return (*failed, *sends)
            if drained or event.hop_refused:
                # What tier 1 says to this router is no answer to the client.
                return (*failed, *self._fail(reason, event.retry_after))
        return self._answer(now, kind, event.retry_after)

    def _retry_error(self, _event: AttemptEvent, now: Instant, unroutable: Unroutable) -> Effects:
        failed = (self._outcome(OutcomeKind.GATEWAY_ERROR), CancelAttempt(self._live))
        if self.state is State.HELD:
            target = self._target(unroutable, body_sent=True, answered=True)
            sends = self._resend(target, now, free=self.cluster in unroutable)
            if sends:
                return (*failed, *sends)
        return self._answer(now, OutcomeKind.GATEWAY_ERROR)

    def _commit(self, _event: AttemptEvent, now: Instant, _unroutable: Unroutable) -> Effects:
        # `_answer`, written out: every request comes this way.
        self.state = _ANSWERING
        self._still_since = now
        return (RecordOutcome(self.cluster, self._live, _ANSWERED), CommitHead(self._live))

    def _commit_empty(self, _event: AttemptEvent, now: Instant, _unroutable: Unroutable) -> Effects:
        return (*self._answer(now, _ANSWERED), self._finish(Ending.COMPLETED))

    def _commit_early(self, _event: AttemptEvent, _now: Instant, _unroutable: Unroutable) -> Effects:
        self.state = State.HEARTBEAT
        return (SendHeartbeats(),)

    def _complete(self, _event: AttemptEvent, _now: Instant, _unroutable: Unroutable) -> Effects:
        # `_finish`, written out: every request comes this way.
        self.state = _DONE
        self._live = 0
        return _COMPLETED

    def _fail_broken(self, _event: AttemptEvent, _now: Instant, _unroutable: Unroutable) -> Effects:
        return (self._outcome(OutcomeKind.BROKEN), *self._fail(DropReason.ATTEMPTS_EXHAUSTED))

    def _fail_idle(self, _event: AttemptEvent, _now: Instant, _unroutable: Unroutable) -> Effects:
        broken = self._outcome(OutcomeKind.BROKEN)
        return (broken, CancelAttempt(self._live), *self._fail(DropReason.DEADLINE_EXCEEDED))

    def _fail_slow(self, _event: AttemptEvent, _now: Instant, _unroutable: Unroutable) -> Effects:
        slow = self._outcome(OutcomeKind.TIMED_OUT)
        return (slow, CancelAttempt(self._live), *self._fail(DropReason.DEADLINE_EXCEEDED))

    def _fail_late(self, _event: AttemptEvent, _now: Instant, _unroutable: Unroutable) -> Effects:
        return (*self._abandon(), *self._fail(DropReason.DEADLINE_EXCEEDED))

    def _abort(self, _event: AttemptEvent, _now: Instant, _unroutable: Unroutable) -> Effects:
        return (*self._abandon(), self._finish(Ending.CLIENT_GONE))

    def _move_away(self, event: ev.ClusterLost, now: Instant, unroutable: Unroutable) -> Effects:
        """Send an attempt without a first byte elsewhere; where nothing else is left it is kept running."""
        if event.cluster != self.cluster:
            return ()
        cancelled = self._abandon()
        without = unroutable if event.cluster in unroutable else {**unroutable, event.cluster: event}
        # Whether a running attempt has sent its body is not known here, so it counts as sent.
        body_sent = self.state is not State.PARKED
        target = self._target(without, body_sent=body_sent, answered=False)
        sends = self._resend(target, now, free=True)
        return (*cancelled, *sends) if sends else ()

    def _ignore(self, _event: AttemptEvent, _now: Instant, _unroutable: Unroutable) -> Effects:
        return ()

    @classmethod
    def compiled(cls) -> tuple[Mapping[type, Callable[..., Effects]], ...]:
        """Return the table with each action replaced by its method, indexed by state."""

        def method(action: Action) -> Callable[..., Effects]:
            found: Callable[..., Effects] = getattr(cls, f"_{action.value}")
            return found

        return tuple({event: method(action) for event, action in MOVES[state].items()} for state in State)


_UNANSWERED: Mapping[type, OutcomeKind] = {
    ev.ConnectFailed: OutcomeKind.CONNECT_FAILED,
    ev.NotSent: OutcomeKind.NOT_SENT,
    ev.ResetBeforeFirstByte: OutcomeKind.RESET,
}


def _kind_of(status: int) -> OutcomeKind:
    if status >= 500:
        return OutcomeKind.GATEWAY_ERROR
    return OutcomeKind.BACK_PRESSURE if status == 429 else OutcomeKind.ANSWERED


_STARTED = ev.Started()
_COMPLETED: Final = (Finish(Ending.COMPLETED),)
_TABLE = Attempts.compiled()
