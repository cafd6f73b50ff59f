"""The pod's listening socket and connections, with the two ways a host vanishes: reset and black hole.

Requests are framed and answered by the HTTP room; this module only decides whether bytes pass. A reset
sends RST on every connection, as peers of a crashed host see it once it is back. In a black hole every
socket stays open and nothing moves either way, as with a stopped process or a cut cable: the kernel still
completes handshakes into the backlog, nobody accepts them.
"""

import asyncio
import socket
import struct
from typing import cast

from services.adapters.http.connection import RefusalHandler, RequestHandler, Screen, ServerConnection
from services.wire.http1.limits import RequestLimits

BACKLOG = 1024
HELD_BYTES_MAX = 1024 * 1024
"""Bytes a connection in a black hole takes before it stops reading; the kernel's buffers do the rest."""
_LINGER_NONE = struct.pack("ii", 1, 0)


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket, not yet listening, so that connects are refused; port 0 takes a free one.

    Raises OSError when the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A pod comes back on the port it had, while connections of its former life are still in TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


class PodConnection(ServerConnection):
    """A server connection that can go dark: bytes are held in both directions until it surfaces."""

    def __init__(self, owner: "PodSockets") -> None:
        super().__init__(owner)
        self._sockets = owner
        self._carrier: asyncio.Transport
        self._inbound: list[bytes] = []
        self._inbound_bytes = 0
        self._outbound: list[bytes] = []
        self._stopped_reading = False
        self._close_later = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for reset and black hole."""
        # uvloop's transports are not subclasses of asyncio.Transport, though they are what it describes.
        self._carrier = cast("asyncio.Transport", transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, or hold them in the dark."""
        if not self._sockets.dark:
            super().data_received(data)
            return
        self._inbound.append(data)
        self._inbound_bytes += len(data)
        if self._inbound_bytes > HELD_BYTES_MAX and not self._stopped_reading:
            self._stopped_reading = True
            self._carrier.pause_reading()

    def send(self, data: bytes) -> None:
        """Write bytes, or hold them in the dark."""
        if self._sockets.dark:
            self._outbound.append(data)
        else:
            super().send(data)

    def close(self) -> None:
        """Close after what is written has gone out, and after the dark."""
        if self._sockets.dark:
            self._close_later = True
        else:
            super().close()

    def surface(self) -> None:
        """Let go what was held, in order: the network works again."""
        outbound, self._outbound = self._outbound, []
        inbound, self._inbound, self._inbound_bytes = self._inbound, [], 0
        if outbound:
            super().send(b"".join(outbound))
        if self._close_later:
            super().close()
            return
        if self._stopped_reading:
            self._stopped_reading = False
            self._carrier.resume_reading()
        for data in inbound:
            super().data_received(data)

    def reset(self) -> None:
        """Drop the connection with RST instead of FIN, and what was to be sent with it."""
        raw = self._carrier.get_extra_info("socket")
        if raw is not None:  # None once the transport has let go of it.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        self._carrier.abort()


class PodSockets:
    """Owns the pod's sockets (the `ConnectionOwner` of its connections)."""

    def __init__(
        self,
        listening: socket.socket,
        handler: RequestHandler,
        refuse: RefusalHandler,
        limits: RequestLimits,
    ) -> None:
        self.handler = handler
        self.refuse = refuse
        self.screen: Screen | None = None  # A simulated pod reads every body; vLLM does too.
        self.limits = limits
        self.draining = False
        self.dark = False
        self._connections: set[PodConnection] = set()
        self._listening: socket.socket | None = listening
        self._accepting: asyncio.Server | None = None
        self._emptied = asyncio.Event()

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._connections)

    async def accept(self) -> None:
        """Begin to accept connections."""
        if self._listening is not None:
            self._listening.listen(BACKLOG)
            # A duplicate, because closing an asyncio server closes its socket, and a black hole must keep one.
            duplicate = self._listening.dup()
            duplicate.setblocking(False)
            loop = asyncio.get_running_loop()
            self._accepting = await loop.create_server(
                lambda: PodConnection(self), sock=duplicate, backlog=BACKLOG
            )

    async def black_hole(self, on: bool) -> None:
        """Go dark or come back; connections that came meanwhile are accepted then."""
        if on == self.dark or self._listening is None:
            return
        self.dark = on
        if on:
            self._stop_accepting()
            return
        for connection in list(self._connections):
            connection.surface()
        await self.accept()

    def reset_connections(self) -> None:
        """Send RST on every connection; new ones are welcome."""
        for connection in list(self._connections):
            connection.reset()

    def crash(self) -> None:
        """Send RST on every connection and refuse new ones. The sockets cannot be used afterwards."""
        self._stop_listening()
        self.reset_connections()

    async def stop(self, grace_s: float) -> None:
        """Refuse new connections, let written bytes go out, and cut what is left after `grace_s` seconds."""
        self.draining = True
        self.dark = False
        self._stop_listening()
        for connection in list(self._connections):
            connection.close()
        try:
            async with asyncio.timeout(grace_s):
                await self._until_empty()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._until_empty()

    # ConnectionOwner

    def opened(self, connection: ServerConnection) -> bool:
        """Count a connection; a simulated pod takes any number."""
        self._connections.add(cast("PodConnection", connection))
        return True

    def closed(self, connection: ServerConnection) -> None:
        """Forget a connection."""
        self._connections.discard(cast("PodConnection", connection))
        if not self._connections:
            self._emptied.set()

    def _stop_accepting(self) -> None:
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None

    def _stop_listening(self) -> None:
        self._stop_accepting()
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    async def _until_empty(self) -> None:
        while self._connections:
            self._emptied.clear()
            await self._emptied.wait()
