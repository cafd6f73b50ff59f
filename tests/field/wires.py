"""Both ends of a router as bytes: a client that sends what no library would, and a gateway that answers so."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from services.adapters.http.responder import Responder
from services.wire.http1.requests import Request
from tests.global_router.rig import MODEL, Gateway, bearer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BODY = b'{"model":"%b","messages":[]}' % MODEL.encode()
STREAMED = b'{"model":"%b","messages":[],"stream":true}' % MODEL.encode()
EVENT = b'data: {"choices":[{"delta":{"content":"\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9,"total_tokens":12}}\n\n'
DONE = b"data: [DONE]\n\n"
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"

Play = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Answer(NamedTuple):
    """One answer as the client read it; `rest` is what followed it on the connection until it closed."""

    status: int
    headers: dict[str, str]
    body: bytes
    rest: bytes


def head(*lines: bytes, target: bytes = b"/v1/chat/completions", authorization: str | None = None) -> bytes:
    """Render a request head up to its last line; the caller ends it."""
    token = (bearer() if authorization is None else authorization).encode()
    first = (b"POST %b HTTP/1.1" % target, b"host: router", b"authorization: %b" % token)
    return b"".join(line + b"\r\n" for line in (*first, *lines))


def sized(body: bytes) -> bytes:
    """Render the end of a head and a body of known length; the connection ends with the answer."""
    return b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def ask(port: int, sent: bytes) -> Answer:
    """Send bytes and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        async with asyncio.timeout(20):
            received = await reader.read()
    finally:
        writer.close()
    return parsed(received)


def parsed(received: bytes) -> Answer:
    """Read one answer off the bytes, its chunks joined."""
    top, _, rest = received.partition(b"\r\n\r\n")
    first, *lines = top.split(b"\r\n")
    pairs = (line.decode("latin-1").partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding") != "chunked":
        size = int(headers.get("content-length", len(rest)))
        return Answer(int(first.split(b" ")[1]), headers, rest[:size], rest[size:])
    body = b""
    while rest:
        size_line, _, rest = rest.partition(b"\r\n")
        size = int(size_line, 16)
        body += rest[:size]
        rest = rest[size + 2 :]
        if not size:
            break
    return Answer(int(first.split(b" ")[1]), headers, body, rest)


def keep(heads: list[Request]) -> Callable[[Request, Responder], None]:
    """Return a script that keeps requests and answers nothing of interest."""

    def script(request: Request, responder: Responder) -> None:
        heads.append(request)
        responder.respond(200, [(b"content-type", b"application/json")], b"{}")

    return script


@asynccontextmanager
async def playing(gateway: Gateway, *plays: Play) -> "AsyncIterator[None]":
    """Put a raw server in a gateway's place: request n is answered by play n, the last one for all further."""
    await gateway.server.close()
    left = list(plays)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            top = await reader.readuntil(b"\r\n\r\n")
            size = next(
                (
                    int(line[15:])
                    for line in top.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")
                ),
                0,
            )
            await reader.readexactly(size)
            if b"/readyz" in top.partition(b"\r\n")[0]:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            else:
                await (left.pop(0) if len(left) > 1 else left[0])(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", gateway.port)
    try:
        yield
    finally:
        server.close()


def say(*pieces: bytes) -> Play:
    """Return a play that writes pieces, each on its own, and closes."""

    async def play(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    return play


def stream(*events: bytes, lines: bytes = b"") -> bytes:
    """Render a whole chunked event stream."""
    return SSE + lines + CHUNKED + b"".join(map(chunk, events)) + b"0\r\n\r\n"
