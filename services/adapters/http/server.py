"""An HTTP/1.1 server on asyncio protocols: listening, limits on connections and time, drain.

    server = HttpServer(handler, ServerOptions())
    await server.listen("127.0.0.1", 8080)          # or listen_on(socket)
    ...
    await server.drain(deadline_ms=30_000)          # finish what runs, then close; False if cut short

`handler(request, responder)` is a plain callable, called in the event loop once the request is
complete; it answers through the Responder, now or later. `coroutine_handler(fn)` makes one out of
`async def fn(request, responder)`: cancelled when the client vanishes, 500 on an exception.
Request and Responder: `wire.http1.requests`, `adapters.http.responder`. No routing, no TLS here.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from services.adapters.http.connection import Phase, RefusalHandler, RequestHandler, Screen, ServerConnection
from services.adapters.http.responder import ClientGone, Responder
from services.wire.http1.limits import RequestLimits
from services.wire.http1.refusals import Refusal
from services.wire.http1.requests import Request

_LOG = logging.getLogger(__name__)

CoroutineHandler = Callable[[Request, Responder], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server listens and what it bounds; times are enforced at the next sweep, `sweep_ms` late at most.

    backlog: connections the kernel queues before they are accepted.
    connections_max: above it a connection gets 503 and is closed; bounds memory and descriptors.
    header_ms: from the first byte of a request (or from connecting) to the end of its head; not
    renewed by progress, which is what stops a slow-header attack.
    body_idle_ms: longest silence within a request body. body_ms: the whole body.
    keep_alive_ms: an idle connection between requests.
    write_stall_ms: a client that takes no byte of its answer for this long is cut.
    linger_ms: how long a refused client is drained so that it can read the refusal.
    """

    backlog: int = 1024
    reuse_port: bool = False
    connections_max: int = 10_000
    header_ms: int = 10_000
    body_idle_ms: int = 30_000
    body_ms: int = 300_000
    keep_alive_ms: int = 75_000
    write_stall_ms: int = 60_000
    linger_ms: int = 2_000
    sweep_ms: int = 250
    limits: RequestLimits = field(default_factory=RequestLimits)


def plain_refusal(refusal: Refusal, responder: Responder) -> None:
    """Answer a refusal as one line of text; doors give their own form instead."""
    responder.respond(
        refusal.status, [(b"content-type", b"text/plain; charset=utf-8")], refusal.detail.encode() + b"\n"
    )


class HttpServer:
    """Serve one handler on any number of listening sockets; see the module for its use.

    refuse answers requests that never become a Request (bad framing, too large, too slow, server
    full) and handlers that raise. screen judges heads whose body is still to come, so that what can be
    refused from the head alone is refused before the body is read.
    """

    def __init__(
        self,
        handler: RequestHandler,
        options: ServerOptions | None = None,
        *,
        refuse: RefusalHandler = plain_refusal,
        screen: Screen | None = None,
    ) -> None:
        self.options = options or ServerOptions()
        self.handler = handler
        self.refuse = refuse
        self.screen = screen
        self.limits = self.options.limits
        self.draining = False
        self.requests_refused_full = 0
        self._connections: set[ServerConnection] = set()
        self._listeners: list[asyncio.Server] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event = asyncio.Event()

    async def listen(self, host: str, port: int) -> int:
        """Listen on an address; port 0 takes a free one. Returns the port. Raises OSError when it is in use."""
        loop = asyncio.get_running_loop()
        options = self.options
        listener = await loop.create_server(
            self._accept, host, port, backlog=options.backlog, reuse_port=options.reuse_port or None
        )
        return self._listening(listener, loop)

    async def listen_on(self, sock: socket.socket) -> int:
        """Listen on a bound socket; returns its port."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(self._accept, sock=sock, backlog=self.options.backlog)
        return self._listening(listener, loop)

    @property
    def connections(self) -> int:
        """How many client connections are open."""
        return len(self._connections)

    async def drain(self, deadline_ms: int) -> bool:
        """Stop accepting, close idle connections, let running answers finish until the deadline, then cut the rest.

        Returns True when every answer finished in time. The server cannot be used afterwards.
        """
        self.draining = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections):
            if connection.phase in (Phase.FIRST, Phase.IDLE):
                connection.close()
        finished = True
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                await self._wait_until_empty()
        except TimeoutError:
            finished = False
        for connection in list(self._connections):
            connection.abort()
        await self._wait_until_empty()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        return finished

    async def close(self) -> None:
        """Stop at once: cut every connection."""
        await self.drain(deadline_ms=0)

    # ConnectionOwner

    def opened(self, connection: ServerConnection) -> bool:
        """Count a connection; False when there are too many."""
        self._connections.add(connection)
        if len(self._connections) <= self.options.connections_max and not self.draining:
            return True
        self.requests_refused_full += 1
        return False

    def closed(self, connection: ServerConnection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()

    def _accept(self) -> ServerConnection:
        return ServerConnection(self)

    def _listening(self, listener: asyncio.Server, loop: asyncio.AbstractEventLoop) -> int:
        self._listeners.append(listener)
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(self.options.sweep_ms / 1000, self._sweep, loop)
        return int(listener.sockets[0].getsockname()[1])

    async def _wait_until_empty(self) -> None:
        while self._connections:
            self._emptied.clear()
            await self._emptied.wait()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Enforce every connection's time limits in one pass, so that no timer is kept per request."""
        now = loop.time()
        for connection in list(self._connections):
            self._check(connection, now)
        self._sweep_timer = loop.call_later(self.options.sweep_ms / 1000, self._sweep, loop)

    def _check(self, connection: ServerConnection, now: float) -> None:
        options = self.options
        phase = connection.phase
        since = connection.phase_seen_at
        if since is None:
            connection.phase_seen_at = connection.moved_at = now
            connection.moved = False
            return
        if connection.moved:
            connection.moved = False
            connection.moved_at = now
        age_ms = (now - since) * 1000
        still_ms = (now - connection.moved_at) * 1000
        if phase is Phase.BUSY:
            overdue = connection.write_paused and still_ms > options.write_stall_ms
        elif phase is Phase.IDLE:
            overdue = age_ms > options.keep_alive_ms
        elif phase is Phase.BODY:
            overdue = age_ms > options.body_ms or still_ms > options.body_idle_ms
        elif phase is Phase.LINGER:
            overdue = age_ms > options.linger_ms
        else:
            overdue = age_ms > options.header_ms
        if overdue:
            connection.time_out()


def coroutine_handler(function: CoroutineHandler) -> RequestHandler:
    """Run an `async def` handler in a task per request: cancelled when the client vanishes, 500 when it raises."""

    def handle(request: Request, responder: Responder) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(_run(function, request, responder))
        running.add(task)
        task.add_done_callback(running.discard)
        responder.on_disconnect = task.cancel

    running: set[asyncio.Task[None]] = set()
    return handle


async def _run(function: CoroutineHandler, request: Request, responder: Responder) -> None:
    try:
        await function(request, responder)
    except ClientGone:
        return
    except Exception:  # noqa: BLE001  # the boundary of a request: its fault is answered and logged, never propagated
        _LOG.exception("request handler failed")
    else:
        if not responder.open:
            return
        _LOG.error("request handler returned without completing its answer")
    if responder.started:
        responder.abort()
    elif responder.open:
        responder.respond(500, [(b"content-type", b"text/plain; charset=utf-8")], b"The server failed.\n")
