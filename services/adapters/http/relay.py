"""One attempt at an upstream: send, hold the head until the first event, then relay socket to socket.

    exchange = Exchange(origin, UpstreamRequest(...), client_request, listener, timeouts)
    pool.start(exchange)
    # listener.response_ready(exchange): look at exchange.head and exchange.observer, then
    exchange.commit(responder, extra_header_block)      # or exchange.abort() and start another
    # listener.attempt_failed(exchange, failure): nothing has reached the client
    # listener.relay_completed(exchange) or listener.relay_failed(exchange, failure): after commit

Callbacks, no task and no await per request or per chunk: at this door a task costs as much as the
relay itself. Which attempt follows which is the caller's plan; this module retries nothing.
A vanished client is the caller's to notice (`responder.on_disconnect`): it calls `abort`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from services.adapters.http.responder import Responder
from services.adapters.http.upstream import Origin, UpstreamConnection
from services.wire.http1.failures import (
    Failure,
    FirstByteTimeout,
    IdleTimeout,
    MalformedResponse,
    ResetBeforeFirstByte,
    ResponseTruncated,
    TotalTimeout,
)
from services.wire.http1.heads import request_head
from services.wire.http1.observer import EventObserver, PlainObserver
from services.wire.http1.passage import Passage
from services.wire.http1.requests import Request
from services.wire.http1.responses import ResponseError, ResponseHead
from services.wire.http1.rewriting import Rewriter

# Below this, one copy is cheaper than a second system call.
_JOIN_BYTES_MAX = 64 * 1024
# A body held for its first event longer than this is handed over unread: comments without end must not fill memory.
_HELD_BYTES_MAX = 1024 * 1024
_NONE: frozenset[bytes] = frozenset()


class UpstreamRequest(NamedTuple):
    """What is sent, byte-identical on every attempt. block: rendered end-to-end header lines."""

    method: bytes
    target: bytes
    block: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class ExchangeTimeouts:
    """Limits of one exchange in milliseconds.

    first_byte_ms: from sending until the first event (or body byte) is there. idle_ms: silence of the
    upstream after that; not counted while the client is too slow to take more. total_ms: everything.
    """

    first_byte_ms: int = 30_000
    idle_ms: int = 60_000
    total_ms: int = 3_600_000


DEFAULT_TIMEOUTS = ExchangeTimeouts()


class ExchangeListener(Protocol):
    """Whoever drives the attempts.

    Before commit: response_ready at most once, and attempt_failed at most once, even after response_ready.
    After commit: exactly one of the other two, unless the exchange is aborted.
    """

    def response_ready(self, exchange: "Exchange") -> None:
        """Head and first event are there and held; commit, abort, or decide later.

        The upstream is paused until the decision, so its end is noticed only afterwards.
        """

    def attempt_failed(self, exchange: "Exchange", failure: Failure) -> None:
        """The attempt is over before commit; nothing was written to the client."""

    def relay_completed(self, exchange: "Exchange") -> None:
        """The whole response was handed to the client; usage is in exchange.observer."""

    def relay_failed(self, exchange: "Exchange", failure: Failure) -> None:
        """The upstream failed after commit: call append_and_close or cut."""


class _State(Enum):
    WAITING = "waiting"
    READY = "ready"
    RELAYING = "relaying"
    ENDED = "ended"


# Enum members are reached through a descriptor, which costs more than the comparison they serve.
_WAITING: Final = _State.WAITING
_READY: Final = _State.READY
_RELAYING: Final = _State.RELAYING
_ENDED: Final = _State.ENDED

_SENT = UpstreamRequest(b"", b"", b"", b"")
"""Stands for a request that is on its way, so that a long answer does not keep its prompt in memory."""


class Exchange:
    """One request to one origin and its response. Public attributes are valid from response_ready on.

    head: the upstream's head. observer: EventObserver for event streams, PlainObserver otherwise.
    drop_usage: leave out events that hold nothing but usage. rewriter: alters a plain body behind the observer.
    """

    __slots__ = (
        "_client",
        "_complete",
        "_connection",
        "_drop_usage",
        "_held",
        "_held_size",
        "_listener",
        "_moved",
        "_moved_at",
        "_passage",
        "_reading_paused",
        "_request",
        "_responder",
        "_rewriter",
        "_seen_at",
        "_state",
        "_timeouts",
        "head",
        "observer",
        "origin",
    )

    def __init__(
        self,
        origin: Origin,
        request: UpstreamRequest,
        client: Request,
        listener: ExchangeListener,
        timeouts: ExchangeTimeouts = DEFAULT_TIMEOUTS,
        *,
        drop_usage: bool = False,
        rewriter: Rewriter | None = None,
    ) -> None:
        self.origin = origin
        self._request = request
        self._client = client
        self._listener = listener
        self._timeouts = timeouts
        self._drop_usage = drop_usage
        self._rewriter = rewriter
        self._state = _WAITING
        self._connection: UpstreamConnection | None = None
        self._passage: Passage | None = None
        self._responder: Responder
        self._held: list[bytes] = []
        self._held_size = 0
        self._complete = False
        self._reading_paused = False
        self._moved = False
        self._moved_at = 0.0
        self._seen_at: float | None = None
        self.head: ResponseHead
        self.observer: EventObserver | PlainObserver

    @property
    def ended(self) -> bool:
        """Whether the exchange is over, however it ended."""
        return self._state is _ENDED

    def commit(self, responder: Responder, extra: bytes = b"", *, without: frozenset[bytes] = _NONE) -> None:
        """Send the held response to the client and relay the rest; only from response_ready on.

        extra: a rendered block of headers to add. without: lowercase upstream headers to leave out. A responder
        whose head is already sent (held beyond its time, kept alive by comments) gets the body only.
        """
        passage = self._passage
        if passage is None or self._state is not _READY:
            raise RuntimeError(f"commit of an exchange that is {self._state.value}")
        held = self._held
        body = held[0] if len(held) == 1 else b"".join(held)
        complete = self._complete
        if responder.started:
            out = passage.join_started(body, complete=complete)
        else:
            passage.keep_alive = passage.keep_alive and responder.keep_alive
            out = passage.render_head(extra, without=without) + body
        self._held = []
        self._responder = responder
        self._state = _RELAYING
        responder.send_raw(out)
        if complete:
            self._finish()
            return
        responder.flow = self
        if self._reading_paused and not responder.paused:
            self.resume_reading()
        elif responder.paused:
            self.pause_reading()

    def abort(self) -> None:
        """Give the attempt up at any time: the upstream connection is closed at once, the listener is not called."""
        if self._state is not _ENDED:
            self._state = _ENDED
            self._let_go(reusable=False)

    @property
    def can_append(self) -> bool:
        """Whether an in-band error can still follow what the client has: an open-ended body, between events."""
        return self._passage is not None and self._passage.can_append

    def append_and_close(self, data: bytes) -> None:
        """After relay_failed: end the client's body properly with these last bytes, or cut when that cannot be done."""
        responder = self._responder
        passage = self._passage
        if passage is not None and passage.can_append:
            responder.send_raw(passage.append(data))
            responder.finish_raw(keep_alive=False)
        else:
            responder.abort()

    # FlowListener: the client's socket.

    def pause_reading(self) -> None:
        """The client is slow: let the upstream's bytes wait in its socket."""
        if not self._reading_paused and self._connection is not None:
            self._reading_paused = True
            self._connection.transport.pause_reading()

    def resume_reading(self) -> None:
        """The client has caught up."""
        if self._reading_paused and self._connection is not None:
            self._reading_paused = False
            self._moved = True
            self._connection.transport.resume_reading()

    # ConnectionUser: the upstream's socket.

    def connected(self, connection: UpstreamConnection) -> None:
        """Send the request."""
        self._connection = connection
        method, target, block, body = self._request
        self._request = _SENT
        connection.parser.expect(head_only=method == b"HEAD")
        head = request_head(method, target, connection.authority, block, len(body))
        if len(body) <= _JOIN_BYTES_MAX:
            connection.transport.write(head + body)
        else:
            connection.transport.writelines((head, body))

    def not_connected(self, failure: Failure) -> None:
        """There will be no connection."""
        if self._state is not _ENDED:
            self._state = _ENDED
            self._listener.attempt_failed(self, failure)

    def data_arrived(self, data: bytes) -> None:
        """Pass one read on, or hold it until the first event is whole."""
        assert self._connection is not None  # noqa: S101  # the connection calls only while it is ours
        parser = self._connection.parser
        self._moved = True
        try:
            raw = parser.feed(data)
        except ResponseError as error:
            self._fail(MalformedResponse(str(error)))
            return
        complete = parser.complete
        passage = self._passage
        if self._state is _RELAYING and passage is not None:
            out = passage.pass_on(raw, parser.take_body(), at_boundary=parser.at_boundary, complete=complete)
            if out:
                self._responder.send_raw(out)
            if passage.unfinished:
                self._fail(ResponseTruncated())
            elif complete:
                self._finish()
        elif parser.head is not None:
            self._hold(
                parser.head, raw, parser.take_body(), at_boundary=parser.at_boundary, complete=complete
            )

    def connection_lost(self, *, clean: bool) -> None:
        """The upstream ended the connection: the end of a close-delimited body, or a failure."""
        connection = self._connection
        assert connection is not None  # noqa: S101  # the connection calls only while it is ours
        self._connection = None
        parser = connection.parser
        if not parser.started:
            self._fail(ResetBeforeFirstByte(reused=connection.served > 0))
            return
        if not (clean and parser.end()):
            self._fail(ResponseTruncated())
            return
        passage = self._passage
        if self._state is _RELAYING and passage is not None:
            out = passage.pass_on(b"", b"", at_boundary=True, complete=True)
            self._responder.send_raw(out)
            if passage.unfinished:
                self._fail(ResponseTruncated())
            else:
                self._finish()
        elif parser.head is not None:
            self._hold(parser.head, b"", b"", at_boundary=True, complete=True)

    def check(self, now: float) -> None:
        """Enforce the time limits; the sweep's resolution is the error."""
        if self._seen_at is None:
            self._seen_at = self._moved_at = now
            return
        if self._moved or self._reading_paused:
            self._moved = False
            self._moved_at = now
        timeouts = self._timeouts
        age_ms = (now - self._seen_at) * 1000
        if age_ms > timeouts.total_ms:
            self._fail(TotalTimeout())
        elif self._state is _WAITING and age_ms > timeouts.first_byte_ms:
            self._fail(FirstByteTimeout())
        elif self._state is _RELAYING and (now - self._moved_at) * 1000 > timeouts.idle_ms:
            self._fail(IdleTimeout())

    def _hold(
        self, head: ResponseHead, raw: bytes, body: bytes, *, at_boundary: bool, complete: bool
    ) -> None:
        """Keep what came before commit, and tell the listener once it can judge the response."""
        passage = self._passage
        if passage is None:
            passage = self._open_passage(head)
        out = passage.pass_on(raw, body, at_boundary=at_boundary, complete=complete)
        if out:
            self._held.append(out)
        self._held_size += len(body)
        if passage.unfinished:
            self._fail(ResponseTruncated())
            return
        if complete:
            self._complete = True
            self._let_go(reusable=head.keep_alive)
        if self._state is not _WAITING:
            return
        if complete or self.observer.ready or self._held_size > _HELD_BYTES_MAX:
            self._state = _READY
            self._listener.response_ready(self)
            if self._state is _READY:
                self.pause_reading()

    def _open_passage(self, head: ResponseHead) -> Passage:
        self.head = head
        client = self._client
        self.observer = (
            EventObserver(drop_usage=self._drop_usage) if head.is_event_stream else PlainObserver()
        )
        self._passage = Passage(
            head,
            self.observer,
            client_minor_version=client.minor_version,
            client_keep_alive=client.keep_alive,
            head_request=client.method == b"HEAD",
            rewriter=self._rewriter,
        )
        return self._passage

    def _finish(self) -> None:
        """Everything was handed to the client's socket: free the upstream, then the client's connection."""
        passage = self._passage
        responder = self._responder
        self._state = _ENDED
        self._let_go(reusable=self.head.keep_alive)
        responder.flow = None
        self._listener.relay_completed(self)
        responder.finish_raw(keep_alive=passage is not None and passage.keep_alive)

    def _fail(self, failure: Failure) -> None:
        was = self._state
        if was is _ENDED:
            return
        self._state = _ENDED
        self._let_go(reusable=False)
        if was is _RELAYING:
            self._responder.flow = None
            self._listener.relay_failed(self, failure)
        else:
            self._listener.attempt_failed(self, failure)

    def _let_go(self, *, reusable: bool) -> None:
        connection = self._connection
        if connection is None:
            return
        self._connection = None
        if self._reading_paused:
            self._reading_paused = False
            if reusable:
                connection.transport.resume_reading()
        connection.release(reusable=reusable)
