"""The server over real sockets: answers, limits in bytes and time, back-pressure, drain."""

import asyncio
import socket

import pytest

from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer, ServerOptions
from services.wire.http1.requests import Request
from tests.adapters.http.peers import connected, serving
from tests.support.wait import eventually as until

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
OPTIONS = ServerOptions(sweep_ms=5)


def post(body: bytes, *lines: bytes) -> bytes:
    extra = b"".join(line + b"\r\n" for line in lines)
    return b"POST /p HTTP/1.1\r\nHost: h\r\n%bContent-Length: %d\r\n\r\n%b" % (extra, len(body), body)


def echo(request: Request, responder: Responder) -> None:
    responder.respond(200, [(b"x-method", request.method)], request.target + b" " + request.body)


async def test_drain_finishes_what_runs_and_closes_the_idle() -> None:
    waiting: list[Responder] = []

    def late(request: Request, responder: Responder) -> None:
        if request.path == b"/a":
            waiting.append(responder)
        else:
            echo(request, responder)

    async with serving(late) as (server, port), connected(port) as busy, connected(port) as idle:
        await idle.send(post(b"x"))
        await idle.response()
        await busy.send(GET)
        await until(lambda: bool(waiting))
        draining = asyncio.gather(server.drain(5_000), asyncio.sleep(0))
        assert await idle.receive_all() == b""
        with pytest.raises(OSError, match=r"."):
            await asyncio.open_connection("127.0.0.1", port)
        waiting[0].respond(200, [], b"done")
        head, body = await busy.response()
        assert (head.header(b"connection"), body) == (b"close", b"done")
        assert (await draining)[0] is True


async def test_drain_cuts_at_its_deadline() -> None:
    waiting: list[Responder] = []
    async with (
        serving(lambda _request, responder: waiting.append(responder)) as (server, port),
        connected(port) as client,
    ):
        await client.send(GET)
        await until(lambda: bool(waiting))
        assert await server.drain(20) is False
        assert server.connections == 0


async def test_two_servers_share_a_port_when_asked() -> None:
    first = HttpServer(echo, ServerOptions(reuse_port=True))
    second = HttpServer(echo, ServerOptions(reuse_port=True))
    port = await first.listen("127.0.0.1", 0)
    assert await second.listen("127.0.0.1", port) == port
    await first.close()
    async with connected(port) as client:
        await client.send(GET)
        assert (await client.response())[0].status == 200
    await second.close()


async def test_a_port_in_use_is_an_error_of_the_system() -> None:
    async with serving(echo) as (_, port):
        with pytest.raises(OSError, match="in use"):
            await HttpServer(echo).listen("127.0.0.1", port)


async def test_a_bound_socket_can_be_listened_on() -> None:
    server = HttpServer(echo)
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    port = await server.listen_on(sock)
    async with connected(port) as client:
        await client.send(GET)
        assert (await client.response())[0].status == 200
    await server.close()
