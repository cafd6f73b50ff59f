"""One request on its way to a pod: forwarded as it is, answered as the pod answers.

One pod is tried; only a connection that could not be made moves on to the next, because then nothing was
sent. Whether another cluster is tried is tier 2's to say. Callbacks over the relay's exchange, no task.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from services.adapters.http.relay import Exchange, ExchangeTimeouts, UpstreamRequest
from services.adapters.http.responder import Responder
from services.adapters.http.upstream import ConnectionUser, Origin
from services.core.outcomes import DropReason
from services.core.pods.table import Pod
from services.core.units import Duration
from services.endpoint_picker.lifecycle import Running
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import Pick
from services.endpoint_picker.sessions import session_token
from services.wire.ext_proc.metadata import SESSION_TOKEN
from services.wire.http1.failures import (
    ConnectFailed,
    Failure,
    FirstByteTimeout,
    PoolExhausted,
    TotalTimeout,
)
from services.wire.http1.rewriting import Rewriter
from services.wire.openai.errors import in_band_error
from services.wire.status import DoorReason

_SERVER_ERROR = 500
_TOO_MANY = 429
_OURS = b"x-gir-"
_SESSION = frozenset((SESSION_TOKEN,))


class Pool(Protocol):
    """What gives an exchange its connection."""

    def start(self, user: ConnectionUser) -> None:
        """Connect `user`, or tell it that it cannot be."""


class ForwardOwner(Protocol):
    """What a forward needs of its door."""

    pool: Pool
    timeouts: ExchangeTimeouts

    def origin(self, pod: Pod) -> Origin:
        """Return where a pod listens."""

    def connect_failed(self, pod: Pod) -> None:
        """A pod could not be connected to."""

    def committed(self, request: Running) -> None:
        """The answer begins to reach the caller."""

    def move(self, request: Running, pod: Pod) -> None:
        """The request goes to another pod."""

    def ended(self, forward: "Forward", outcome: Outcome) -> None:
        """The request is over; its answer has been given or its client is gone."""

    def refuse(
        self,
        responder: Responder,
        reason: DropReason | DoorReason,
        message: str,
        retry_after: Duration | None = None,
    ) -> None:
        """Answer a refusal in OpenAI's form."""


@dataclass(slots=True, eq=False)
class Forward:
    """An `ExchangeListener` that commits whatever the pod answers. `held` is what waits in the dark (a black hole).

    `rewriter` puts the client's name of the model back; None where the pod knows it by that name. `sessions`: the
    answer names its pod to whoever comes back.
    """

    owner: ForwardOwner
    request: Running
    pick: Pick
    upstream: UpstreamRequest
    responder: Responder
    timeouts: ExchangeTimeouts
    rewriter: Rewriter | None = None
    sessions: bool = False
    exchange: Exchange | None = None
    outcome: Outcome = Outcome.SUCCEEDED
    held: Callable[[], None] | None = None
    dark: bool = False

    def start(self) -> None:
        """Send the request to the pick's pod, unless its client left or it was evicted in the dark."""
        if self.request.ended:
            return
        origin = self.owner.origin(self.pick.pod)
        self.exchange = Exchange(
            origin, self.upstream, self.responder.request, self, self.timeouts, rewriter=self.rewriter
        )
        self.owner.pool.start(self.exchange)

    def client_gone(self) -> None:
        """The caller left: the pod stops computing."""
        self.stop()
        self.owner.ended(self, Outcome.CANCELLED)

    def stop(self) -> None:
        """Give the exchange up without an answer."""
        self.held = None
        if self.exchange is not None:
            self.exchange.abort()

    def evict(self, reason: DropReason | DoorReason, message: str, retry_after: Duration | None) -> None:
        """End before the answer has begun: the pod is needed for work that matters more. Later it is too late."""
        if self.request.ended or self.responder.started:
            return
        self.stop()
        self.owner.ended(self, Outcome.CANCELLED)
        self.owner.refuse(self.responder, reason, message, retry_after)

    def go_dark(self) -> None:
        """Let nothing pass until `surface`."""
        self.dark = True
        if self.exchange is not None:
            self.exchange.pause_reading()

    def surface(self) -> None:
        """Let pass what was held."""
        self.dark = False
        held, self.held = self.held, None
        if held is not None:
            held()
        elif self.exchange is not None and not self.responder.paused:
            self.exchange.resume_reading()

    # ExchangeListener

    def response_ready(self, exchange: Exchange) -> None:
        """Pass the answer on, whatever it says: judging it is tier 2's."""
        if self.dark:
            self.held = lambda: self.response_ready(exchange)
            return
        if exchange.head.status >= _SERVER_ERROR or exchange.observer.error is not None:
            self.outcome = Outcome.GATEWAY_ERROR
        elif exchange.head.status == _TOO_MANY:
            self.outcome = Outcome.SATURATED
        pod = self.pick.pod.id
        extra = b"x-gir-endpoint: %b\r\nx-gir-request-id: %b\r\n" % (
            pod.encode(),
            self.pick.request.request_id.encode(),
        )
        spoofed = exchange.head.names_starting(_OURS)
        if self.sessions:
            spoofed |= _SESSION
            extra += b"x-session-token: %b\r\n" % session_token(pod).encode()
        self.owner.committed(self.request)
        exchange.commit(self.responder, extra, without=spoofed)

    def attempt_failed(self, exchange: Exchange, failure: Failure) -> None:
        """Nothing reached the caller: try the next pod if nothing reached this one either."""
        if self.dark:
            self.held = lambda: self.attempt_failed(exchange, failure)
            return
        if isinstance(failure, ConnectFailed | PoolExhausted):
            if isinstance(failure, ConnectFailed):
                self.owner.connect_failed(self.pick.pod)
            if self.pick.fallbacks:
                pod, *rest = self.pick.fallbacks
                self.pick.fallbacks = tuple(rest)
                self.owner.move(self.request, pod)
                self.start()
                return
            self._fail(
                DropReason.ATTEMPTS_EXHAUSTED, "No endpoint could be connected to.", Outcome.CONNECT_FAILED
            )
        elif isinstance(failure, FirstByteTimeout | TotalTimeout):
            self._fail(
                DropReason.DEADLINE_EXCEEDED, "The endpoint did not answer in time.", Outcome.GATEWAY_ERROR
            )
        else:
            self._fail(
                DropReason.ATTEMPTS_EXHAUSTED,
                "The endpoint broke off before it answered.",
                Outcome.GATEWAY_ERROR,
            )

    def relay_completed(self, exchange: Exchange) -> None:  # noqa: ARG002 -- the listener's contract
        """The whole answer was passed on."""
        self.owner.ended(self, self.outcome)

    def relay_failed(self, exchange: Exchange, failure: Failure) -> None:
        """The pod broke off inside its answer: say so in the stream, or cut."""
        if self.dark:
            self.held = lambda: self.relay_failed(exchange, failure)
            return
        self.owner.ended(self, Outcome.BROKEN_OFF)
        if exchange.head.is_event_stream:
            message = "The endpoint broke off inside its answer."
            exchange.append_and_close(in_band_error(DropReason.ATTEMPTS_EXHAUSTED, message))
        else:
            # An event in JSON would end it properly and unreadably.
            self.responder.abort()

    def _fail(self, reason: DropReason, message: str, outcome: Outcome) -> None:
        self.owner.ended(self, outcome)
        self.owner.refuse(self.responder, reason, message)
