"""The answer to one request: complete, streamed with back-pressure, or relayed bytes.

A Responder belongs to one request and dies with it, so a late callback can never write into the
next answer on the same connection. It frames; the connection writes. Apart from the connection
because handlers see only this.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from services.wire.http1.heads import header_block, status_line
from services.wire.http1.passage import LAST_CHUNK, chunk
from services.wire.http1.requests import Request

Header = tuple[bytes, bytes]


class ClientGone(ConnectionError):  # noqa: N818  # an event of every day, named as one
    """The client closed its connection; what is written for it would go nowhere."""


class ClientChannel(Protocol):
    """What a Responder needs of its connection."""

    peer: str

    def send(self, data: bytes) -> None:
        """Write bytes to the client."""

    def response_finished(self, *, keep_alive: bool) -> None:
        """The current response is complete; go on to the next request or close."""

    def abort(self) -> None:
        """Drop the connection at once."""

    @property
    def draining(self) -> bool:
        """Whether the server is going away, so that this must be the connection's last answer."""


class FlowListener(Protocol):
    """Told when the client stops and resumes taking bytes."""

    def pause_reading(self) -> None:
        """The client is slow; stop producing."""

    def resume_reading(self) -> None:
        """The client has caught up."""


class Responder:
    """Answer one request, once.

    Complete answer: `respond`. Stream: `start`, then `await write` (or `write_nowait`), then `end`.
    Relay: `send_raw`, then `finish_raw`; the relay does its own framing.
    on_disconnect is called, with no argument, at most once, when the client vanishes before
    the answer is complete. flow is told about back-pressure.
    """

    __slots__ = (
        "_channel",
        "_chunked",
        "_drained",
        "_keep_alive",
        "_no_body",
        "flow",
        "on_disconnect",
        "request",
        "started",
    )

    def __init__(self, channel: ClientChannel, request: Request) -> None:
        self._channel: ClientChannel | None = channel
        self._drained: asyncio.Future[None] | None = None
        self._chunked = False
        self._keep_alive = request.keep_alive
        self._no_body = False
        self.request = request
        self.started = False
        self.on_disconnect: Callable[[], object] | None = None
        self.flow: FlowListener | None = None

    @property
    def open(self) -> bool:
        """Whether the answer can still be written: the client is there and it is not finished."""
        return self._channel is not None

    @property
    def paused(self) -> bool:
        """Whether the client is slow and should be sent no more for now."""
        return self._drained is not None

    @property
    def peer(self) -> str:
        """The client's address, for logs and limits; empty once the answer is over."""
        return self._channel.peer if self._channel is not None else ""

    @property
    def keep_alive(self) -> bool:
        """Whether the connection may stay open after this answer."""
        return self._keep_alive and self._channel is not None and not self._channel.draining

    def respond(self, status: int, headers: Sequence[Header] = (), body: bytes = b"") -> None:
        """Answer completely. headers: lowercase end-to-end ones; Content-Length is added. Ignored if the client left."""
        if self._channel is None:
            return
        bodiless = status in (204, 304)
        length = b"" if bodiless else b"content-length: %d\r\n" % len(body)
        keep_alive = self.keep_alive
        head = b"%b%b%b%b\r\n" % (
            status_line(status),
            header_block(headers),
            length,
            self._persistence(keep_alive),
        )
        self.started = True
        self.send_raw(head if bodiless or self.request.method == b"HEAD" else head + body)
        self.finish_raw(keep_alive=keep_alive)

    def start(self, status: int, headers: Sequence[Header] = ()) -> None:
        """Send the head of a streamed answer: chunked, or until close for an HTTP/1.0 client."""
        if self._channel is None:
            return
        self.started = True
        self._no_body = self.request.method == b"HEAD" or status in (204, 304)
        self._chunked = self.request.minor_version >= 1 and not self._no_body
        if not self._chunked and not self._no_body:
            self._keep_alive = False
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        self._keep_alive = self.keep_alive
        head = b"%b%b%b%b\r\n" % (
            status_line(status),
            header_block(headers),
            framing,
            self._persistence(self._keep_alive),
        )
        self.send_raw(head)

    def write_nowait(self, data: bytes) -> None:
        """Send a piece of a started answer without waiting; ignored once the client left."""
        if data and not self._no_body:
            self.send_raw(chunk(data) if self._chunked else data)

    async def write(self, data: bytes) -> None:
        """Send a piece of a started answer, waiting while the client is slow; raises ClientGone."""
        self.write_nowait(data)
        if self._drained is not None:
            await asyncio.shield(self._drained)
        if self._channel is None:
            raise ClientGone("the client closed the connection")

    def end(self) -> None:
        """Complete a started answer."""
        if self._chunked:
            self.send_raw(LAST_CHUNK)
        self.finish_raw(keep_alive=self._keep_alive)

    def send_raw(self, data: bytes) -> None:
        """Send framed bytes as they are; ignored once the client left."""
        channel = self._channel
        if channel is not None and data:
            self.started = True
            channel.send(data)

    def finish_raw(self, *, keep_alive: bool) -> None:
        """The answer is complete; keep_alive tells whether the connection may serve another request."""
        channel = self._channel
        if channel is not None:
            self._detach()
            channel.response_finished(keep_alive=keep_alive)

    def abort(self) -> None:
        """Cut the connection: the only honest end of an answer whose framing cannot be completed."""
        channel = self._channel
        if channel is not None:
            self._detach()
            channel.abort()

    # Called by the connection.

    def client_gone(self) -> None:
        """The client closed its side before the answer was complete."""
        callback = self.on_disconnect
        self._detach()
        if callback is not None:
            callback()

    def writing_paused(self) -> None:
        """The client's socket takes no more for now."""
        if self._drained is None:
            self._drained = asyncio.get_running_loop().create_future()
        if self.flow is not None:
            self.flow.pause_reading()

    def writing_resumed(self) -> None:
        """The client's socket takes bytes again."""
        self._release()
        if self.flow is not None:
            self.flow.resume_reading()

    def _detach(self) -> None:
        self._channel = None
        self.on_disconnect = None
        self.flow = None
        if self._drained is not None:
            self._release()

    def _release(self) -> None:
        if self._drained is not None:
            if not self._drained.done():
                self._drained.set_result(None)
            self._drained = None

    def _persistence(self, keep_alive: bool) -> bytes:
        if not keep_alive:
            return b"connection: close\r\n"
        return b"connection: keep-alive\r\n" if self.request.minor_version == 0 else b""
