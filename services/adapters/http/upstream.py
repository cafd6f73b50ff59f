"""Pooled keep-alive connections to upstreams, and the clock of the exchanges that run on them.

    pool = UpstreamPool(UpstreamOptions())
    exchange = Exchange(...); pool.start(exchange)      # see `relay`
    ...
    await pool.close()

The pool finds or opens a connection, hands it to the exchange, and takes it back when the response
left it clean. It knows origins and sockets, no request and no retry rule. Time limits are
enforced by one sweep over all connections, so that no timer is kept per request.
"""

import asyncio
import socket
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, cast

from services.wire.http1.failures import ConnectFailed, ConnectFault, Failure, PoolExhausted
from services.wire.http1.limits import ResponseLimits
from services.wire.http1.responses import ResponseParser


class Origin(NamedTuple):
    """Where an upstream listens; from configuration or discovery, never from a client."""

    host: str
    port: int

    @property
    def authority(self) -> bytes:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}".encode("ascii")


@dataclass(frozen=True, slots=True)
class UpstreamOptions:
    """Bounds of the pool; times are enforced at the next sweep, `sweep_ms` late at most.

    connect_ms: name resolution and TCP handshake together.
    connections_max: open connections per origin; above it an exchange fails with PoolExhausted.
    idle_max: idle connections kept per origin. idle_ms: an idle connection's age before it is
    closed; below the 5 s after which model servers on uvicorn close theirs, so that the race is rare.
    """

    connect_ms: int = 1_000
    connections_max: int = 4_096
    idle_max: int = 256
    idle_ms: int = 4_000
    sweep_ms: int = 100
    limits: ResponseLimits = field(default_factory=ResponseLimits)


class ConnectionUser(Protocol):
    """What a connection needs of the exchange that runs on it."""

    origin: Origin

    @property
    def ended(self) -> bool:
        """Whether the exchange needs no connection any more."""

    def connected(self, connection: "UpstreamConnection") -> None:
        """A connection is there: send the request."""

    def not_connected(self, failure: Failure) -> None:
        """There will be no connection."""

    def data_arrived(self, data: bytes) -> None:
        """The upstream sent bytes."""

    def connection_lost(self, *, clean: bool) -> None:
        """The upstream closed (clean) or reset the connection."""

    def check(self, now: float) -> None:
        """Enforce the exchange's own time limits; now in seconds of the event loop."""


class UpstreamConnection(asyncio.Protocol):
    """The asyncio protocol of one connection to an upstream; serves one exchange at a time.

    served: responses completed on it. idle_seen_at belongs to the pool's sweep.
    """

    def __init__(self, pool: "UpstreamPool", slot: "_Slot") -> None:
        self._pool = pool
        self._slot = slot
        self.parser = ResponseParser(pool.options.limits)
        self.authority = slot.authority
        self.user: ConnectionUser | None = None
        self.transport: asyncio.Transport
        self.served = 0
        self.idle_seen_at: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; TCP_NODELAY is set by both event loops."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the exchange; bytes on an idle connection mean that the peer is out of step."""
        user = self.user
        if user is None:
            self.transport.abort()
        else:
            user.data_arrived(data)

    def eof_received(self) -> bool:
        """Close when the peer closes its side."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and tell the exchange."""
        self._pool.forget(self, self._slot)
        user, self.user = self.user, None
        if user is not None:
            user.connection_lost(clean=exc is None)
        self.parser.close()

    def release(self, *, reusable: bool) -> None:
        """The exchange is over: back to the pool, or close."""
        self.user = None
        # Unsent request bytes mean that the peer answered early and may close: not worth a second request.
        if reusable and not self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self.served += 1
            self._pool.keep(self, self._slot)
        else:
            self.transport.abort()


class _Slot:
    """The connections of one origin. idle is a stack, so that the surplus ages at its bottom."""

    __slots__ = ("authority", "idle", "total")

    def __init__(self, authority: bytes) -> None:
        self.authority = authority
        self.idle: list[UpstreamConnection] = []
        self.total = 0


class UpstreamPool:
    """Connections to all origins of one worker. connects counts connection attempts.

    connect_ms begins as the option says and may be changed at any time.
    """

    def __init__(self, options: UpstreamOptions | None = None) -> None:
        self.options = options or UpstreamOptions()
        self.connect_ms = self.options.connect_ms
        self.connects = 0
        self._slots: dict[Origin, _Slot] = {}
        self._connections: set[UpstreamConnection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._emptied = asyncio.Event()

    def start(self, user: ConnectionUser) -> None:
        """Give the exchange a connection: at once when an idle one is open, otherwise later.

        Never fails re-entrantly: `not_connected` is called from the event loop.
        """
        slot = self._slots.get(user.origin)
        if slot is None:
            slot = self._slots[user.origin] = _Slot(user.origin.authority)
        idle = slot.idle
        while idle:
            connection = idle.pop()
            if not connection.transport.is_closing():
                connection.user = user
                user.connected(connection)
                return
        self._connect(user, slot)

    def idle_connections(self, origin: Origin) -> int:
        """How many idle connections to an origin are kept."""
        slot = self._slots.get(origin)
        return len(slot.idle) if slot is not None else 0

    def open_connections(self, origin: Origin) -> int:
        """How many connections to an origin are open or being opened."""
        slot = self._slots.get(origin)
        return slot.total if slot is not None else 0

    async def close(self) -> None:
        """Close every connection; exchanges still running fail."""
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for connection in list(self._connections):
            connection.transport.abort()
        if self._connections:
            self._emptied.clear()
            await self._emptied.wait()

    # Called by connections.

    def keep(self, connection: UpstreamConnection, slot: _Slot) -> None:
        """Take a clean connection back."""
        if len(slot.idle) < self.options.idle_max and not self._closed:
            connection.idle_seen_at = None
            slot.idle.append(connection)
        else:
            connection.transport.close()

    def forget(self, connection: UpstreamConnection, slot: _Slot) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()
        slot.total -= 1
        if connection.user is None and connection in slot.idle:
            slot.idle.remove(connection)
        self._prune(slot)

    def _prune(self, slot: _Slot) -> None:
        """Forget an origin nobody is connected to, so that departed pods leave nothing behind."""
        if slot.total == 0:
            for origin, known in list(self._slots.items()):
                if known is slot:
                    del self._slots[origin]

    def _connect(self, user: ConnectionUser, slot: _Slot) -> None:
        loop = asyncio.get_running_loop()
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(self.options.sweep_ms / 1000, self._sweep, loop)
        if slot.total >= self.options.connections_max or self._closed:
            loop.call_soon(user.not_connected, PoolExhausted())
            return
        slot.total += 1
        self.connects += 1
        task = loop.create_task(self._open(loop, user, slot))
        self._connecting.add(task)
        task.add_done_callback(partial(self._opened, user, slot))

    def _opened(self, user: ConnectionUser, slot: _Slot, task: asyncio.Task[None]) -> None:
        """A cancelled task may never have run, so what it owes is settled here."""
        self._connecting.discard(task)
        if task.cancelled():
            self._not_opened(user, slot, ConnectFault.UNREACHABLE)

    def _not_opened(self, user: ConnectionUser, slot: _Slot, fault: ConnectFault) -> None:
        slot.total -= 1
        self._prune(slot)
        user.not_connected(ConnectFailed(fault))

    async def _open(self, loop: asyncio.AbstractEventLoop, user: ConnectionUser, slot: _Slot) -> None:
        try:
            async with asyncio.timeout(self.connect_ms / 1000):
                _, connection = await loop.create_connection(
                    lambda: UpstreamConnection(self, slot), user.origin.host, user.origin.port
                )
        except OSError as error:
            self._not_opened(user, slot, _fault(error))
            return
        self._connections.add(connection)
        if connection.transport.is_closing():
            user.not_connected(ConnectFailed(ConnectFault.RESET))
        elif user.ended:
            self.keep(connection, slot)
        else:
            connection.user = user
            user.connected(connection)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        idle_s = self.options.idle_ms / 1000
        for connection in list(self._connections):
            user = connection.user
            if user is not None:
                user.check(now)
            elif connection.idle_seen_at is None:
                connection.idle_seen_at = now
            elif now - connection.idle_seen_at > idle_s:
                connection.transport.close()
        self._sweep_timer = loop.call_later(self.options.sweep_ms / 1000, self._sweep, loop)


def _fault(error: OSError) -> ConnectFault:
    if isinstance(error, TimeoutError):
        return ConnectFault.TIMEOUT
    if isinstance(error, ConnectionRefusedError):
        return ConnectFault.REFUSED
    if isinstance(error, ConnectionError):
        return ConnectFault.RESET
    if isinstance(error, socket.gaierror):
        return ConnectFault.UNRESOLVED
    return ConnectFault.UNREACHABLE
