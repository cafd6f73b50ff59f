"""Peers for the socket tests: a client that writes raw bytes, and an upstream that follows a script."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self

from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer, ServerOptions
from services.wire.http1.limits import ResponseLimits
from services.wire.http1.requests import Request
from services.wire.http1.responses import ResponseHead, ResponseParser

DEADLINE_S = 10.0

Script = Callable[["UpstreamSide"], Awaitable[None]]


class RawClient:
    """One client connection, driven by bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self, size: int) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.readexactly(size)

    async def receive_until(self, mark: bytes) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.readuntil(mark)

    async def receive_all(self) -> bytes:
        """Read until the server closes."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()

    async def response(self, *, head_only: bool = False) -> tuple[ResponseHead, bytes]:
        """Read one response to its end."""
        parser = ResponseParser(ResponseLimits())
        parser.expect(head_only=head_only)
        body = b""
        async with asyncio.timeout(DEADLINE_S):
            while not parser.complete:
                # A pipelined answer may follow, so never more than this one is taken.
                length = parser.head.content_length if parser.head is not None else None
                data = await self.reader.read(1 if length is None else length - len(body))
                if not data:
                    assert parser.end(), "the server closed inside its response"
                    break
                parser.feed(data)
                body += parser.take_body()
        assert parser.head is not None
        return parser.head, body

    async def last_response(self) -> tuple[ResponseHead, bytes]:
        """Read one response in large reads; nothing may follow it."""
        parser = ResponseParser(ResponseLimits())
        parser.expect()
        pieces = []
        async with asyncio.timeout(DEADLINE_S):
            while not parser.complete:
                parser.feed(await self.reader.read(65536))
                pieces.append(parser.take_body())
        assert parser.head is not None
        return parser.head, b"".join(pieces)

    def reset(self) -> None:
        """Vanish: close with a reset, as a killed process does."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


class UpstreamSide(RawClient):
    """The upstream's end of one connection."""

    async def request(self) -> bytes:
        """Read one request with a Content-Length (or none); its bytes."""
        head = await self.receive_until(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return head + await self.receive(int(line.partition(b":")[2]))
        return head


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = RawClient(reader, writer)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def serving(
    handler: Callable[[Request, Responder], None], options: ServerOptions | None = None
) -> AsyncIterator[tuple[HttpServer, int]]:
    server = HttpServer(handler, options)
    port = await server.listen("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close()


class ScriptedUpstream:
    """Accepts connections and runs the next script on each; connections counts them."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.port = 0
        self.failures: list[Exception] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self.failures == []

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        side = UpstreamSide(reader, writer)
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        try:
            await script(side)
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            pass  # The other side went first; scripts that care wait for it themselves.
        except Exception as error:  # noqa: BLE001  # a broken script is reported when the test ends
            self.failures.append(error)
        finally:
            await side.close()
