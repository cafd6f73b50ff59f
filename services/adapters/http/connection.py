"""One client connection: feeds the request machine, runs the handler, writes the answers in order.

It owns the socket's life: pipelining, keep-alive, refusals, lingering close, the phases whose
timeouts the server's sweep enforces. No request is understood here beyond its framing. Apart from
the server so that a connection's states stand in one file.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol, cast

from services.adapters.http.responder import Responder
from services.wire.http1.heads import CONTINUE
from services.wire.http1.limits import RequestLimits
from services.wire.http1.refusals import Refusal
from services.wire.http1.requests import Request, RequestParser

_LOG = logging.getLogger(__name__)

# Bytes a refused client may still send while the refusal travels. Most clients write their whole body
# before they read, and a reset would cost them the 413; draining holds no memory and has a time limit.
_LINGER_BYTES_MAX = 64 * 1024 * 1024


class Phase(Enum):
    """What a connection is doing; each phase but BUSY has a time limit."""

    FIRST = "first"
    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    BUSY = "busy"
    LINGER = "linger"
    CLOSED = "closed"


# Enum members are reached through a descriptor, which costs more than the comparison they serve.
_BUSY: Final = Phase.BUSY
_IDLE: Final = Phase.IDLE
_LINGER: Final = Phase.LINGER

# Answers one request; called in the event loop when the request is complete and must not block.
RequestHandler = Callable[[Request, Responder], None]
# Judges a head whose body has not arrived; True when it has answered, so that the body is not read.
Screen = Callable[[Request, Responder], bool]
# Answers a refused request: renders the error in the door's own form.
RefusalHandler = Callable[[Refusal, Responder], None]


class ConnectionOwner(Protocol):
    """What a connection needs of its server."""

    limits: RequestLimits
    handler: RequestHandler
    refuse: RefusalHandler
    screen: Screen | None
    draining: bool

    def opened(self, connection: "ServerConnection") -> bool:
        """Count the connection; False when the server is full."""

    def closed(self, connection: "ServerConnection") -> None:
        """Forget the connection."""


class ServerConnection(asyncio.Protocol):
    """The asyncio protocol of one accepted socket.

    phase: see Phase. phase_seen_at, moved and moved_at belong to the server's sweep: it stamps the
    phase when it first meets it and turns `moved` into an instant, so that no clock is read per request.
    """

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._parser = RequestParser(owner.limits)
        self._queue: deque[Request | Refusal] = deque()
        self._current: Responder | None = None
        self._advancing = False
        self._reading_paused = False
        self._last_answer = False
        self._transport: asyncio.Transport
        self._linger_bytes = 0
        self.write_paused = False
        self.phase = Phase.FIRST
        self.phase_seen_at: float | None = None
        self.moved = False
        self.moved_at = 0.0
        self.peer = ""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or turn it away when the server is full."""
        # uvloop's transports are not subclasses of asyncio.Transport, though they are what it describes.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._owner.opened(self):
            self._answer_refusal(_SERVER_FULL, linger=False)

    def data_received(self, data: bytes) -> None:
        """Parse one read and go on with what became complete."""
        self.moved = True
        if self.phase is _LINGER:
            self._linger_bytes += len(data)
            if self._linger_bytes > _LINGER_BYTES_MAX:
                self._transport.abort()
            return
        items = self._parser.feed(data)
        if items:
            if len(items) == 1 and self._current is None and not self._queue:
                self._advancing = True
                self._answer(items[0])
                self._advancing = False
            else:
                self._queue.extend(items)
            if self._current is None:
                self._advance()
            if self._queue:
                self._bound_pipeline()
        elif self._current is None:
            self._await_rest()

    def eof_received(self) -> bool:
        """End the connection: a client that closes its sending side is taken as gone, as it cannot be told apart."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # why it was lost changes nothing
        """Tell the current answer that nobody waits for it."""
        self._set_phase(Phase.CLOSED)
        self._queue.clear()
        self._parser.close()
        self._owner.closed(self)
        current, self._current = self._current, None
        if current is not None:
            current.client_gone()

    def pause_writing(self) -> None:
        """The client is slow: tell whoever produces its bytes."""
        self.write_paused = True
        self.moved = True
        if self._current is not None:
            self._current.writing_paused()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.write_paused = False
        if self._current is not None:
            self._current.writing_resumed()

    # ClientChannel

    @property
    def draining(self) -> bool:
        """Whether this must be the connection's last answer."""
        return self._owner.draining

    def send(self, data: bytes) -> None:
        """Write bytes to the client."""
        self._transport.write(data)

    def response_finished(self, *, keep_alive: bool) -> None:
        """Go on to the next request, or close once everything is written."""
        self._current = None
        if self._last_answer:
            self._linger()
        elif not keep_alive or self._owner.draining:
            self.close()
        else:
            self.phase = _IDLE
            self.phase_seen_at = None
            if not self._advancing and (self._reading_paused or self._queue or self._parser.mid_request):
                self._advance()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._transport.abort()

    # The server

    def close(self) -> None:
        """Close after what is written has gone out."""
        self._transport.close()

    def time_out(self) -> None:
        """The server's sweep found the phase over its limit."""
        if self.phase in (Phase.HEAD, Phase.BODY):
            self._answer_refusal(_TOO_SLOW)
        elif self.phase in (Phase.FIRST, Phase.IDLE):
            self.close()
        else:
            self._transport.abort()

    # The conversation

    def _advance(self) -> None:
        """Answer queued requests while answers complete at once; iterative, as a flood must not recurse."""
        if self._advancing:
            return
        self._advancing = True
        queue = self._queue
        while queue and self._current is None and not self._transport.is_closing():
            self._answer(queue.popleft())
        self._advancing = False
        if self._current is None and not self._transport.is_closing() and self.phase is not Phase.LINGER:
            self._await_rest()
        if self._reading_paused and not queue:
            self._reading_paused = False
            self._transport.resume_reading()

    def _await_rest(self) -> None:
        parser = self._parser
        if parser.mid_body:
            if self.phase is not Phase.BODY and self._screened():
                return
            if parser.take_expectation():
                self._transport.write(CONTINUE)
            phase = Phase.BODY
        elif parser.mid_request:
            phase = Phase.HEAD
        else:
            return
        if self.phase is not phase:
            self._set_phase(phase)

    def _screened(self) -> bool:
        """Let the owner judge the head before the body is read; an answer ends the connection."""
        screen = self._owner.screen
        if screen is None:
            return False
        head = self._parser.head()
        self._current = responder = Responder(self, head)
        self._last_answer = True
        if screen(head, responder):
            return True
        self._current = None
        self._last_answer = False
        return False

    def _bound_pipeline(self) -> None:
        """Stop reading while answers are owed for requests already received."""
        if not self._reading_paused and not self._transport.is_closing():
            self._reading_paused = True
            self._transport.pause_reading()

    def _answer(self, item: Request | Refusal) -> None:
        if isinstance(item, Refusal):
            self._answer_refusal(item)
            return
        # `_set_phase`, written out: every request comes this way.
        self.phase = _BUSY
        self.phase_seen_at = None
        responder = self._current = Responder(self, item)
        if self.write_paused:
            responder.writing_paused()
        try:
            self._owner.handler(item, responder)
        except Exception:  # noqa: BLE001  # a handler's fault costs one answer, not the connection
            _LOG.exception("request handler failed")
            self.fail(responder)

    def fail(self, responder: Responder) -> None:
        """Answer 500 if nothing was sent yet, otherwise cut the connection."""
        if responder.started:
            responder.abort()
        elif responder.open:
            self._owner.refuse(_HANDLER_FAILED, responder)

    def _answer_refusal(self, refusal: Refusal, *, linger: bool = True) -> None:
        """Answer and close; unread bytes are drained for a while so that the answer is not lost to a reset."""
        self._set_phase(Phase.BUSY)
        self._last_answer = linger
        self._queue.clear()
        responder = self._current = Responder(self, Request(b"GET", b"*", [], keep_alive=False))
        self._owner.refuse(refusal, responder)

    def _linger(self) -> None:
        if self._transport.is_closing():
            return
        self._set_phase(Phase.LINGER)
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()
        self._transport.write_eof()

    def _set_phase(self, phase: Phase) -> None:
        self.phase = phase
        self.phase_seen_at = None


_SERVER_FULL = Refusal(503, "server_full", "This server has as many connections as it accepts.")
_TOO_SLOW = Refusal(408, "too_slow", "The request did not arrive in time.")
_HANDLER_FAILED = Refusal(500, "internal_error", "The server failed to handle the request.")
