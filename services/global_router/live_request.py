"""One HTTP request in flight: performs what the attempts machine asks, tells it what happened.

The machine (`core/failover`) decides; this object holds the sockets' ends. It makes no choice of its
own. Callbacks only: no task, no timer and no await per request; the life cycle's sweep brings
time. Apart from the life cycle, which owns what requests share.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from services.adapters.http.relay import Exchange, UpstreamRequest
from services.adapters.http.responder import Responder
from services.core.failover import events as ev
from services.core.failover.attempts import Attempts, Effects
from services.core.failover.effects import (
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
from services.core.failover.states import State
from services.core.inference import InferenceRequest
from services.core.outcomes import DropReason
from services.core.policy import MAX_ATTEMPTS_LIMIT
from services.core.residency import ANYWHERE
from services.core.units import Instant, after, seconds
from services.global_router.answers import answer_block, id_headers, respond_error
from services.global_router.hops import signed_for
from services.global_router.records import AttemptRecord, DecisionRecord
from services.wire.http1.failures import (
    ConnectFailed,
    Failure,
    FirstByteTimeout,
    IdleTimeout,
    PoolExhausted,
    ResponseTruncated,
    TotalTimeout,
)
from services.wire.http1.observer import EventObserver
from services.wire.http1.retry_after import retry_after_of
from services.wire.openai.errors import error_answer, in_band_error
from services.wire.status import DoorReason

if TYPE_CHECKING:
    from services.global_router.lifecycle import LifeCycle

_UNAUTHORIZED: Final = 401
_HOP_REFUSED: Final = DoorReason.HAND_OFF_REFUSED.value.encode()
_UNAVAILABLE: Final = 503
_UNABLE: Final = frozenset(
    reason.value.encode()
    for reason in (
        DropReason.NO_ENDPOINTS,
        DropReason.NO_HEALTHY_CLUSTER,
        DropReason.RESIDENCY_UNSATISFIABLE,
        DropReason.REPORT_POLICY_MISMATCH,
    )
)
"""Tier 1's own words for: alive, and not able to serve this request. Pods cannot say them: it strips theirs."""
"""Tier 1's refusal of this router's own token, never of the client's."""

HEARTBEAT: Final = b": waiting\n\n"
"""An SSE comment (WHATWG HTML 9.2.6): clients ignore it, and proxies see a living connection."""

HEARTBEAT_INTERVAL: Final = seconds(5)
"""Well under the 30 s or 60 s after which common proxies cut a silent stream."""

_NOT_FOR_CLIENTS: Final = frozenset(
    (
        b"x-gir-endpoint",
        b"x-gir-drained",
        b"x-request-id",
        b"x-gir-request-id",
        b"x-gir-cluster",
        b"x-gir-region",
        b"x-gir-jurisdiction",
        b"x-gir-attempts",
        b"x-gir-decision-ms",
    )
)
# Enum members are reached through a descriptor, which costs more than the comparison they serve.
_HEARTBEAT: Final = State.HEARTBEAT
_ANSWERING: Final = State.ANSWERING
_COMPLETED: Final = Ending.COMPLETED

_EVENT_DUE: Final = frozenset((State.HELD, State.HEARTBEAT))

# The two events of every good answer, made once; one re-dispatch may come on top of a policy's attempts.
_NUMBERS: Final = range(MAX_ATTEMPTS_LIMIT + 2)
_BEGAN: Final = tuple(ev.AnswerBegan(number) for number in _NUMBERS)
_FINISHED: Final = tuple(ev.BodyFinished(number) for number in _NUMBERS)

_MESSAGES: Final = {
    DropReason.ATTEMPTS_EXHAUSTED: "Every attempt to serve this request failed; please retry.",
    DropReason.DEADLINE_EXCEEDED: "The request was not served within its time limit.",
    DropReason.DRAINED: "The only cluster that may serve this request is being drained.",
}


class LiveRequest:
    """An `ExchangeListener` bound to one client request. `body` is byte-identical on every attempt.

    `at` is the cluster of the running or parked attempt, None once nothing is held anywhere.
    """

    __slots__ = (
        "_block",
        "_body",
        "_committed",
        "_drop_usage",
        "_exchange",
        "_heartbeat_at",
        "_life",
        "_target",
        "_trial",
        "at",
        "attempts",
        "inference",
        "record",
        "responder",
    )

    def __init__(
        self,
        life: "LifeCycle",
        responder: Responder,
        inference: InferenceRequest,
        attempts: Attempts,
        record: DecisionRecord,
        block: bytes,
        body: bytes,
        *,
        drop_usage: bool,
    ) -> None:
        self._life = life
        self.at: str | None = None
        self._block = block
        self._body = body
        self._drop_usage = drop_usage
        self._exchange: Exchange | None = None
        self._committed = False
        self._heartbeat_at = Instant(0)
        self._trial: Instant | None = None
        self._target = responder.request.target
        self.responder = responder
        self.inference = inference
        self.attempts = attempts
        self.record = record
        responder.on_disconnect = self.client_gone

    # --- What others tell it ------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Send the first attempt."""
        self._perform(self.attempts.start(now), now)

    def client_gone(self) -> None:
        """The client closed its connection; the upstream is cancelled at once."""
        now = self._life.clock.now()
        self._perform(self.attempts.apply(ev.ClientGone(), now), now)

    def cluster_lost(self, event: ev.ClusterLost, now: Instant) -> None:
        """The cluster died or was ejected: without a first byte, the attempt goes elsewhere."""
        self._perform(self.attempts.apply(event, now, self._life.view.unroutable), now)

    def tick(self, now: Instant) -> None:
        """Apply deadlines; called by the sweep. The exchange itself watches a flowing answer for silence."""
        attempts = self.attempts
        if attempts.state is _ANSWERING:
            attempts.touch(now)
        elif attempts.state is _HEARTBEAT and now >= self._heartbeat_at:
            self._heartbeat(now)
        effects = attempts.tick(now, self._life.view.unroutable)
        if effects:
            self._perform(effects, now)

    # --- ExchangeListener ---------------------------------------------------------------------------

    def response_ready(self, exchange: Exchange) -> None:
        """Head and first event are here: judge the head, then what came first."""
        if exchange is not self._exchange:
            return
        life = self._life
        now = life.clock.now()
        attempts = self.attempts
        number = attempts.sent
        head = exchange.head
        endpoint = head.header(b"x-gir-endpoint")
        if endpoint is not None:
            self.record.endpoint = endpoint.decode("latin-1")
        status = head.status
        failed = exchange.observer.error is not None and isinstance(exchange.observer, EventObserver)
        if 200 <= status < 300 and not failed:
            self._perform(attempts.apply(_BEGAN[number], now, life.view.unroutable), now)
            return
        retry_after = None
        drained = hop_refused = unable = False
        if status >= 400:
            retry_after = retry_after_of(head.headers, life.clock.wall_ms())
            drained = head.header(b"x-gir-drained") is not None
            dropped = head.header(b"x-gir-drop-reason")
            hop_refused = status == _UNAUTHORIZED and dropped == _HOP_REFUSED
            unable = status == _UNAVAILABLE and dropped in _UNABLE
        arrived = ev.HeadArrived(number, status, retry_after, drained, hop_refused, unable)
        self._perform(attempts.apply(arrived, now, life.view.unroutable), now)
        if exchange is self._exchange and attempts.sent == number and attempts.state in _EVENT_DUE:
            # The head was good, its first event is an error.
            self._perform(attempts.apply(ev.SseErrorFirst(number), now, life.view.unroutable), now)

    def attempt_failed(self, exchange: Exchange, failure: Failure) -> None:
        """The attempt ended before anything reached the client."""
        if exchange is not self._exchange:
            return
        now = self._life.clock.now()
        number = self.attempts.sent
        event: ev.AttemptEvent
        if isinstance(failure, ConnectFailed):
            event = ev.ConnectFailed(number)
        elif isinstance(failure, PoolExhausted):
            event = ev.NotSent(number)
        elif isinstance(failure, (FirstByteTimeout, TotalTimeout)):
            event = ev.FirstByteTimedOut(number)
        else:
            event = ev.ResetBeforeFirstByte(number)
        self._perform(self.attempts.apply(event, now, self._life.view.unroutable), now)

    def relay_completed(self, exchange: Exchange) -> None:
        """The whole answer was handed to the client's socket."""
        if exchange is self._exchange:
            now = self._life.clock.now()
            self._perform(self.attempts.apply(_FINISHED[self.attempts.sent], now), now)

    def relay_failed(self, exchange: Exchange, failure: Failure) -> None:
        """The answer broke off after the client had got something of it."""
        if exchange is not self._exchange:
            return
        now = self._life.clock.now()
        number = self.attempts.sent
        idle = isinstance(failure, (IdleTimeout, TotalTimeout)) and not isinstance(failure, ResponseTruncated)
        event = ev.IdleTimedOut(number) if idle else ev.FailedAfterFirstByte(number)
        self._perform(self.attempts.apply(event, now, self._life.view.unroutable), now)

    # --- Effects ------------------------------------------------------------------------------------

    def _perform(self, effects: Effects, now: Instant) -> None:
        for effect in effects:
            _PERFORM[effect.__class__](self, effect, now)

    def _send(self, effect: Send, now: Instant) -> None:
        life = self._life
        hop = life.hops.get(effect.cluster)
        self.record.attempts.append(AttemptRecord(effect.attempt, effect.cluster, effect.redispatch, now))
        if self.at is not None:
            self._leave()
        self.at = effect.cluster
        self._trial = life.attempt_started(effect.cluster, redispatch=effect.redispatch)
        residency = self.inference.residency
        if hop is None or not (residency is ANYWHERE or residency.allows(hop.locality)):
            # The policy dropped or moved the cluster between decision and attempt: nothing may go there.
            self._perform(
                self.attempts.apply(
                    ev.NotSent(effect.attempt), now, {**life.view.unroutable, effect.cluster: None}
                ),
                now,
            )
            return
        block = b"%bx-gir-hand-off: %b\r\nx-gir-request-id: %b\r\nx-gir-attempt: %d\r\n" % (
            self._block,
            signed_for(self.inference, hop, life.clock.wall_ms()),
            self.inference.request_id.encode("ascii"),
            effect.attempt,
        )
        request = self.responder.request
        exchange = self._exchange = Exchange(
            hop.origin,
            UpstreamRequest(request.method, self._target, block, self._body),
            request,
            self,
            life.exchange_timeouts,
            drop_usage=self._drop_usage,
        )
        life.pool.start(exchange)

    def _outcome(self, effect: RecordOutcome, now: Instant) -> None:
        entry = self.record.attempts[effect.attempt - 1]
        entry.outcome = effect.kind
        entry.ended_at = now
        if self._exchange is not None and effect.kind in _WITH_STATUS:
            entry.status = self._exchange.head.status
        self._life.attempt_ended(self, effect, now)

    def _commit(self, _effect: CommitHead, now: Instant) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if self.record.first_byte_at is None:
            self.record.first_byte_at = now
            self.record.status = exchange.head.status
        self._committed = True
        self._release_body()
        hop = self._life.hops.get(self.attempts.cluster)
        block = answer_block(self.record, hop, self.attempts.sent)
        exchange.commit(self.responder, block, without=_NOT_FOR_CLIENTS)

    def _release_body(self) -> None:
        """Let the prompt go: it is not sent again, and long streams must not use up the memory of replays."""
        self._life.replay_bytes -= len(self._body)
        self._body = self.responder.request.body = b""

    def _cancel(self, _effect: CancelAttempt, _now: Instant) -> None:
        if self._exchange is not None:
            self._exchange.abort()

    def _reject(self, effect: Reject, _now: Instant) -> None:
        reason = effect.reason
        self.record.drop_reason = reason.value
        message = _MESSAGES.get(reason, "The request was refused.")
        answer = error_answer(reason, message, retry_after=effect.retry_after)
        respond_error(self.responder, self.record, answer)

    def _send_heartbeats(self, _effect: SendHeartbeats, now: Instant) -> None:
        self.record.first_byte_at = now
        self.record.status = 200
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        self.responder.start(200, [*headers, *id_headers(self.record)])
        self._heartbeat(now)

    def _heartbeat(self, now: Instant) -> None:
        self._heartbeat_at = after(now, HEARTBEAT_INTERVAL)
        self.responder.write_nowait(HEARTBEAT)

    def _fail_in_band(self, effect: FailInBand, _now: Instant) -> None:
        reason = effect.reason
        self.record.drop_reason = reason.value
        event = in_band_error(reason, _MESSAGES.get(reason, "The answer broke off."))
        if self._exchange is not None and self._committed:
            self._exchange.append_and_close(event)
        else:
            self.responder.write_nowait(event)
            self.responder.end()

    def _finish(self, effect: Finish, now: Instant) -> None:
        ending = effect.ending
        exchange, self._exchange = self._exchange, None
        if ending is _COMPLETED and exchange is not None:
            self.record.usage = exchange.observer.usage_object()
        self._leave()
        self.record.ended_at = now
        self._life.finished(self, len(self._body), ending)

    def _leave(self) -> None:
        """Stop counting at the cluster of the last attempt; a parked request stays, to hear of its loss."""
        if self.at is not None and self._trial is not None:
            self._life.view.trial_ended(self.at, self._trial)
        self.at = self._trial = None

    @classmethod
    def performers(cls) -> Mapping[type, Callable[..., None]]:
        """Return what each effect makes of a request; one entry per member of `AttemptEffect`."""
        return {
            Send: cls._send,
            RecordOutcome: cls._outcome,
            CommitHead: cls._commit,
            Finish: cls._finish,
            CancelAttempt: cls._cancel,
            Reject: cls._reject,
            SendHeartbeats: cls._send_heartbeats,
            FailInBand: cls._fail_in_band,
        }


_WITH_STATUS: Final = frozenset(
    (
        OutcomeKind.ANSWERED,
        OutcomeKind.GATEWAY_ERROR,
        OutcomeKind.BACK_PRESSURE,
        OutcomeKind.DRAINED,
        OutcomeKind.BROKEN,
    )
)


_PERFORM: Final = LiveRequest.performers()
