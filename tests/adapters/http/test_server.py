"""The server over real sockets: answers, limits in bytes and time, back-pressure, drain."""

import asyncio
import logging
import socket
from dataclasses import replace

import pytest

from services.adapters.http.responder import ClientGone, Responder
from services.adapters.http.server import HttpServer, ServerOptions, coroutine_handler
from services.wire.http1.limits import RequestLimits
from services.wire.http1.refusals import Refusal
from services.wire.http1.requests import Request
from tests.adapters.http.peers import RawClient, connected, serving
from tests.support.wait import eventually as until

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
OPTIONS = ServerOptions(sweep_ms=5)


def post(body: bytes, *lines: bytes) -> bytes:
    extra = b"".join(line + b"\r\n" for line in lines)
    return b"POST /p HTTP/1.1\r\nHost: h\r\n%bContent-Length: %d\r\n\r\n%b" % (extra, len(body), body)


def echo(request: Request, responder: Responder) -> None:
    responder.respond(200, [(b"x-method", request.method)], request.target + b" " + request.body)


async def test_answers_come_in_order_on_a_kept_connection() -> None:
    async with serving(echo) as (server, port), connected(port) as client:
        for body in (b"one", b"two"):
            await client.send(post(body))
            head, answer = await client.response()
            assert (head.status, head.header(b"x-method"), answer) == (200, b"POST", b"/p " + body)
        assert server.connections == 1


async def test_small_writes_are_not_delayed() -> None:
    """A relay without TCP_NODELAY stalls each event stream by a delayed acknowledgement (42 ms)."""
    seen: list[int] = []

    class Watching(HttpServer):
        def opened(self, connection: object) -> bool:
            sock = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]  # the connection's own
            seen.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            return super().opened(connection)  # type: ignore[arg-type]  # widened above

    server = Watching(echo)
    port = await server.listen("127.0.0.1", 0)
    async with connected(port) as client:
        await client.send(GET)
        await client.response()
    await server.close()
    assert seen
    assert all(seen)


async def test_pipelined_requests_are_answered_in_order_even_by_late_handlers() -> None:
    waiting: list[Responder] = []

    def late(request: Request, responder: Responder) -> None:
        if request.path == b"/late":
            waiting.append(responder)
        else:
            echo(request, responder)

    async with serving(late) as (_, port), connected(port) as client:
        await client.send(b"GET /late HTTP/1.1\r\nHost: h\r\n\r\n" + GET * 3)
        await until(lambda: bool(waiting))
        waiting[0].respond(200, [], b"first")
        assert [(await client.response())[1] for _ in range(4)] == [b"first", b"/a ", b"/a ", b"/a "]


async def test_a_request_that_arrives_in_pieces_during_an_answer_is_served_next() -> None:
    waiting: list[Responder] = []
    async with (
        serving(lambda _request, responder: waiting.append(responder)) as (_, port),
        connected(port) as client,
    ):
        await client.send(GET + post(b"hello")[:-2])
        await until(lambda: len(waiting) == 1)
        waiting[0].respond(200)
        await client.response()
        await client.send(b"lo")
        await until(lambda: len(waiting) == 2)
        assert waiting[1].request.body == b"hello"


async def test_a_flood_is_answered_up_to_the_bound_then_refused() -> None:
    options = replace(OPTIONS, limits=RequestLimits(pipelined_requests=4))
    async with serving(echo, options) as (_, port), connected(port) as client:
        await client.send(GET * 50)
        statuses = [(await client.response())[0].status for _ in range(5)]
        assert statuses == [200, 200, 200, 200, 429]


async def test_head_and_statuses_without_body_send_none() -> None:
    async with (
        serving(
            lambda request, responder: responder.respond(204 if request.path == b"/n" else 200, [], b"body")
        ) as (
            _,
            port,
        ),
        connected(port) as client,
    ):
        await client.send(b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n")
        head, body = await client.response(head_only=True)
        assert (head.header(b"content-length"), body) == (b"4", b"")
        await client.send(b"GET /n HTTP/1.1\r\nHost: h\r\n\r\n")
        head, body = await client.response()
        assert (head.status, head.header(b"content-length"), body) == (204, None, b"")


@pytest.mark.parametrize("line", [b"Connection: close\r\n", b""])
async def test_a_client_that_does_not_stay_is_closed(line: bytes) -> None:
    version = b"1.1" if line else b"1.0"
    async with serving(echo) as (_, port), connected(port) as client:
        await client.send(b"GET /a HTTP/%b\r\nHost: h\r\n%b\r\n" % (version, line))
        answer = await client.receive_all()
        assert b"connection: close" in answer
        assert answer.endswith(b"/a ")


async def test_http_1_0_may_stay() -> None:
    async with serving(echo) as (_, port), connected(port) as client:
        for _ in range(2):
            await client.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            head, _body = await client.response()
            assert head.header(b"connection") == b"keep-alive"


async def test_continue_is_sent_when_the_client_waits_for_it() -> None:
    async with serving(echo) as (_, port), connected(port) as client:
        await client.send(post(b"hello", b"Expect: 100-continue")[:-5])
        assert await client.receive_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"hello")
        assert (await client.response())[1] == b"/p hello"


async def test_a_refusal_reaches_a_client_that_is_still_sending() -> None:
    options = replace(OPTIONS, limits=RequestLimits(body_bytes=1000))
    async with serving(echo, options) as (_, port), connected(port) as client:
        await client.send(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n" + b"a" * 400_000)
        head, body = await client.response()
        assert (head.status, head.header(b"connection")) == (413, b"close")
        assert body == b"The request body is larger than this server accepts.\n"
        assert await client.receive_all() == b""


async def test_a_refused_client_that_never_stops_sending_is_cut() -> None:
    options = replace(OPTIONS, limits=RequestLimits(body_bytes=10), linger_ms=60_000)
    async with serving(echo, options) as (server, port), connected(port) as client:
        await client.send(post(b"a" * 20))
        await client.response()
        flood = asyncio.gather(send_until_cut(client), return_exceptions=True)
        await until(lambda: server.connections == 0)
        await flood


async def send_until_cut(client: RawClient) -> None:
    while True:
        await client.send(b"a" * 65536)
        await asyncio.sleep(0)


async def test_a_refused_client_is_not_waited_for_longer_than_the_linger() -> None:
    options = replace(OPTIONS, limits=RequestLimits(body_bytes=10), linger_ms=20)
    async with serving(echo, options) as (server, port), connected(port) as client:
        await client.send(post(b"a" * 20))
        await client.response()
        await until(lambda: server.connections == 0)


async def test_doors_render_refusals_in_their_own_form() -> None:
    seen: list[Refusal] = []

    def refuse(refusal: Refusal, responder: Responder) -> None:
        seen.append(refusal)
        responder.respond(refusal.status, [(b"content-type", b"application/json")], b"{}")

    server = HttpServer(echo, OPTIONS, refuse=refuse)
    port = await server.listen("127.0.0.1", 0)
    async with connected(port) as client:
        await client.send(b"garbage\r\n\r\n")
        head, body = await client.response()
        assert (head.status, body) == (501, b"{}")
        assert [refusal.reason for refusal in seen] == ["unknown_method"]
    await server.close()


async def test_a_slow_head_is_refused_whatever_its_progress() -> None:
    async with serving(echo, replace(OPTIONS, header_ms=30)) as (server, port), connected(port) as client:
        await client.send(b"GET /a HTTP/1.1\r\nHost: h\r\n")

        async def drip() -> None:
            while server.connections:
                await client.send(b"X: y\r\n")
                await asyncio.sleep(0.002)

        dripping = asyncio.gather(drip(), return_exceptions=True)
        head, _ = await client.response()
        assert head.status == 408
        await client.close()
        await dripping


async def test_a_silent_new_connection_is_closed() -> None:
    async with serving(echo, replace(OPTIONS, header_ms=20)) as (_, port), connected(port) as client:
        assert await client.receive_all() == b""


async def test_an_idle_connection_is_closed() -> None:
    async with serving(echo, replace(OPTIONS, keep_alive_ms=20)) as (_, port), connected(port) as client:
        await client.send(GET)
        await client.response()
        assert await client.receive_all() == b""


@pytest.mark.parametrize("options", [replace(OPTIONS, body_idle_ms=20), replace(OPTIONS, body_ms=20)])
async def test_a_body_that_stalls_is_refused(options: ServerOptions) -> None:
    async with serving(echo, options) as (_, port), connected(port) as client:
        await client.send(post(b"hello")[:-1])
        assert (await client.response())[0].status == 408


async def test_more_connections_than_the_bound_are_turned_away() -> None:
    async with serving(echo, replace(OPTIONS, connections_max=1)) as (server, port), connected(port) as first:
        await first.send(GET)
        await first.response()
        async with connected(port) as second:
            assert (await second.receive_all()).startswith(b"HTTP/1.1 503 ")
        assert server.requests_refused_full == 1
        await first.send(GET)
        assert (await first.response())[0].status == 200


async def test_a_failing_handler_costs_one_answer(caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Request, responder: Responder) -> None:
        if request.path == b"/late":
            responder.start(200)
        raise ValueError("broken on purpose")

    with caplog.at_level(logging.CRITICAL, logger="services.adapters.http.connection"):
        async with serving(fail) as (_, port):
            async with connected(port) as client:
                await client.send(GET)
                assert (await client.response())[0].status == 500
                await client.send(GET)
                assert (await client.response())[0].status == 500
            async with connected(port) as client:
                await client.send(b"GET /late HTTP/1.1\r\nHost: h\r\n\r\n")
                assert b"0\r\n\r\n" not in await _rest(client)


async def _rest(client: RawClient) -> bytes:
    try:
        return await client.receive_all()
    except ConnectionResetError:
        return b""


async def stream(_request: Request, responder: Responder) -> None:
    responder.start(200, [(b"content-type", b"text/event-stream")])
    for number in range(3):
        await responder.write(b"data: %d\n\n" % number)
    responder.end()


@pytest.mark.parametrize(("version", "framing"), [(b"1.1", b"chunked"), (b"1.0", None)])
async def test_answers_can_be_streamed(version: bytes, framing: bytes | None) -> None:
    async with serving(coroutine_handler(stream)) as (_, port), connected(port) as client:
        await client.send(b"GET /s HTTP/%b\r\nHost: h\r\n\r\n" % version)
        head, body = await client.response()
        assert head.header(b"transfer-encoding") == framing
        assert body == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


async def test_a_streamed_answer_to_head_has_no_body() -> None:
    async with serving(coroutine_handler(stream)) as (_, port), connected(port) as client:
        await client.send(b"HEAD /s HTTP/1.1\r\nHost: h\r\n\r\n" + GET)
        assert (await client.response(head_only=True))[1] == b""
        assert (await client.response())[0].status == 200


async def test_a_client_that_does_not_read_stops_the_producer() -> None:
    written = 0
    gone = asyncio.Event()

    async def flood(_request: Request, responder: Responder) -> None:
        nonlocal written
        responder.start(200)
        try:
            while True:
                await responder.write(b"x" * 65536)
                written += 65536
        except (ClientGone, asyncio.CancelledError):
            gone.set()
            raise

    async with serving(coroutine_handler(flood)) as (server, port), connected(port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # the stream's transport is a socket's
        await client.send(GET)
        await until(lambda: any(connection.write_paused for connection in server._connections))
        stopped_at = written
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
        await client.receive(stopped_at)
        await until(lambda: written > stopped_at)
        client.reset()
        async with asyncio.timeout(5):
            await gone.wait()


async def test_a_client_that_takes_nothing_for_too_long_is_cut() -> None:
    async def flood(_request: Request, responder: Responder) -> None:
        responder.start(200)
        while True:
            await responder.write(b"x" * 65536)

    options = replace(OPTIONS, write_stall_ms=30)
    async with serving(coroutine_handler(flood), options) as (server, port), connected(port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # the stream's transport is a socket's
        await client.send(GET)
        await until(lambda: server.connections == 0)


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_vanished_client_is_told_once(how: str) -> None:
    waiting: list[Responder] = []
    gone: list[str] = []

    def wait(_request: Request, responder: Responder) -> None:
        responder.on_disconnect = lambda: gone.append("gone")
        waiting.append(responder)

    async with serving(wait) as (server, port):
        async with connected(port) as client:
            await client.send(GET)
            await until(lambda: bool(waiting))
            if how == "reset":
                client.reset()
        await until(lambda: server.connections == 0)
        assert gone == ["gone"]
        assert not waiting[0].open
        waiting[0].respond(200, [], b"nobody reads this")
        waiting[0].start(200)
        assert waiting[0].peer == ""


async def test_a_coroutine_that_raises_or_forgets_to_answer_gives_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(request: Request, _responder: Responder) -> None:
        if request.path == b"/a":
            raise ValueError("broken on purpose")

    with caplog.at_level(logging.CRITICAL, logger="services.adapters.http.server"):
        async with serving(coroutine_handler(fail)) as (_, port), connected(port) as client:
            for path in (b"/a", b"/forgets"):
                await client.send(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % path)
                assert (await client.response())[0].status == 500
