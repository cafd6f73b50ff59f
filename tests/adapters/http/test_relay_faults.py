"""Upstreams that fail at each stage over real sockets: how the failure is named and what the client reads."""

import asyncio
import socket

import pytest

from services.adapters.http.relay import ExchangeTimeouts
from services.adapters.http.upstream import Origin, UpstreamOptions
from services.wire.http1.failures import (
    ConnectFailed,
    ConnectFault,
    FirstByteTimeout,
    IdleTimeout,
    MalformedResponse,
    ResetBeforeFirstByte,
    ResponseTruncated,
    TotalTimeout,
)
from services.wire.http1.passage import LAST_CHUNK, chunk
from tests.adapters.http.gateway import (
    ERROR,
    EVENT,
    OK,
    POST,
    SSE,
    answering,
    ask,
    ending,
    free_port,
    gateway,
    stalling,
)
from tests.adapters.http.peers import ScriptedUpstream, UpstreamSide, connected
from tests.support.wait import eventually


async def test_a_refused_connection_is_a_connect_failure_and_another_origin_serves() -> None:
    async with (
        ScriptedUpstream(answering(OK)) as upstream,
        gateway(free_port(), upstream.port) as front,
        connected(front.port) as client,
    ):
        assert await ask(client) == (200, b"{}")
        assert front.failures == [ConnectFailed(ConnectFault.REFUSED)]


async def test_a_host_that_does_not_answer_is_a_connect_timeout() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = int(full.getsockname()[1])
        # The kernel completes the first handshakes by itself; fill its queue so that the next one hangs.
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        async with (
            gateway(port, options=UpstreamOptions(connect_ms=50)) as front,
            connected(front.port) as client,
        ):
            assert (await ask(client))[0] == 502
            assert front.failures == [ConnectFailed(ConnectFault.TIMEOUT)]
        for filler in fillers:
            filler.close()


async def test_a_reset_after_the_request_is_told_and_names_a_fresh_connection() -> None:
    async def script(side: UpstreamSide) -> None:
        await side.request()
        side.reset()

    async with (
        ScriptedUpstream(script) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        assert (await ask(client))[0] == 502
        assert front.failures == [ResetBeforeFirstByte(reused=False)]


async def test_a_kept_connection_that_dies_under_a_request_is_a_class_of_its_own() -> None:
    async def script(side: UpstreamSide) -> None:
        await side.request()
        await side.send(OK)
        await side.request()
        side.reset()

    async with (
        ScriptedUpstream(script, answering(OK)) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        assert await ask(client) == (200, b"{}")
        front.ports = [upstream.port] * 3
        assert await ask(client) == (200, b"{}")
        assert front.failures == [ResetBeforeFirstByte(reused=True)]


async def test_a_kept_connection_closed_while_idle_is_not_used() -> None:
    async def script(side: UpstreamSide) -> None:
        await side.request()
        await side.send(OK)

    async with (
        ScriptedUpstream(script) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        origin = Origin("127.0.0.1", upstream.port)
        for _ in range(3):
            assert await ask(client) == (200, b"{}")
            await eventually(lambda: front.pool.open_connections(origin) == 0)
        assert front.failures == []


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("sent", [OK[:30], OK[:-2], SSE, SSE + chunk(EVENT[:9]), SSE + chunk(b": ping\n\n")])
async def test_an_upstream_that_dies_before_the_first_event_fails_the_attempt_only(
    sent: bytes, reset: bool
) -> None:
    async def script(side: UpstreamSide) -> None:
        await side.request()
        await side.send(sent)
        if reset:
            await eventually(lambda: bool(front.exchanges and front.exchanges[0]._connection))
            await eventually(
                lambda: bool(front.exchanges[0]._connection and front.exchanges[0]._connection.parser.started)
            )
            side.reset()

    async with (
        ScriptedUpstream(script, answering(OK)) as upstream,
        gateway(upstream.port, upstream.port) as front,
        connected(front.port) as client,
    ):
        assert await ask(client) == (200, b"{}")
        assert front.failures == [ResponseTruncated()]


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("cut", [0, 9])
async def test_f049_a_stream_cut_short_ends_with_an_error_event(reset: bool, cut: int) -> None:
    """Whether the cut is between events or inside one, the client reads whole events, then the error."""
    partial = (b"%x\r\n" % len(EVENT) + EVENT[:cut]) if cut else b""

    async def script(side: UpstreamSide) -> None:
        await side.request()
        await side.send(SSE + chunk(EVENT) * 5 + partial)
        if reset:
            await eventually(lambda: bool(front.ready))
            await asyncio.sleep(0)
            side.reset()

    async with (
        ScriptedUpstream(script) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        assert await ask(client) == (200, EVENT * 5 + ERROR)
        assert front.relay_failures == [ResponseTruncated()]
        assert await client.receive_all() == b""


async def test_a_plain_body_cut_short_cuts_the_client() -> None:
    async with (
        ScriptedUpstream(ending(OK[:-1])) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        await client.send(POST)
        received = await client.receive_all()
        assert received.endswith(b"{")
        assert front.relay_failures == [ResponseTruncated()]


async def test_a_malformed_answer_fails_the_attempt() -> None:
    async with (
        ScriptedUpstream(stalling(b"SSH-2.0-x\r\n\r\n"), answering(OK)) as upstream,
        gateway(upstream.port, upstream.port) as front,
        connected(front.port) as client,
    ):
        assert await ask(client) == (200, b"{}")
        assert isinstance(front.failures[0], MalformedResponse)


async def test_a_malformed_chunk_after_the_first_event_never_reaches_the_client() -> None:
    async def script(side: UpstreamSide) -> None:
        await side.request()
        await side.send(SSE + chunk(EVENT))
        await eventually(lambda: bool(front.ready))
        await side.send(b"zz\r\ngarbage")
        await side.receive_all()

    async with (
        ScriptedUpstream(script) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        assert await ask(client) == (200, EVENT + ERROR)
        assert isinstance(front.relay_failures[0], MalformedResponse)


async def test_more_than_was_asked_for_spoils_the_connection() -> None:
    async def script(side: UpstreamSide) -> None:
        await side.request()
        await side.send(OK)
        await eventually(lambda: bool(front.completed))
        await side.send(OK)
        await side.receive_all()

    async with (
        ScriptedUpstream(script) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        assert await ask(client) == (200, b"{}")
        await eventually(lambda: front.pool.open_connections(Origin("127.0.0.1", upstream.port)) == 0)


@pytest.mark.parametrize("sent", [b"", OK[:30], SSE, SSE + chunk(b": ping\n\n")])
async def test_a_first_event_that_does_not_come_fails_the_attempt(sent: bytes) -> None:
    async with (
        ScriptedUpstream(stalling(sent), answering(OK)) as upstream,
        gateway(upstream.port, upstream.port) as front,
        connected(front.port) as client,
    ):
        front.timeouts = ExchangeTimeouts(first_byte_ms=40)
        assert await ask(client) == (200, b"{}")
        assert front.failures == [FirstByteTimeout()]


async def test_silence_after_the_first_event_ends_the_stream_with_an_error() -> None:
    async with ScriptedUpstream(stalling(SSE + chunk(EVENT))) as upstream, gateway(upstream.port) as front:
        front.timeouts = ExchangeTimeouts(idle_ms=40)
        async with connected(front.port) as client:
            assert await ask(client) == (200, EVENT + ERROR)
            assert front.relay_failures == [IdleTimeout()]


async def test_an_exchange_that_never_ends_is_ended() -> None:
    async def script(side: UpstreamSide) -> None:
        await side.request()
        await side.send(SSE)
        while True:
            await side.send(chunk(EVENT))
            await asyncio.sleep(0.001)

    async with ScriptedUpstream(script) as upstream, gateway(upstream.port) as front:
        front.timeouts = ExchangeTimeouts(total_ms=500)
        async with connected(front.port) as client:
            _, body = await ask(client)
            assert body.endswith(EVENT + ERROR)
            assert front.relay_failures == [TotalTimeout()]


async def test_a_slow_client_stops_the_upstream_and_is_not_taken_for_its_silence() -> None:
    """Back-pressure: with a client that does not read, the upstream's writes stop; nothing is lost when it reads again."""
    piece = chunk(b"data: " + b"x" * 65536 + b"\n\n")
    count = 400
    sent = 0

    async def script(side: UpstreamSide) -> None:
        nonlocal sent
        await side.request()
        await side.send(SSE)
        for _ in range(count):
            await side.send(piece)
            sent += 1
        await side.send(LAST_CHUNK)

    async with ScriptedUpstream(script) as upstream, gateway(upstream.port) as front:
        front.timeouts = ExchangeTimeouts(idle_ms=40)
        async with connected(front.port) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport
            await client.send(POST)
            await eventually(lambda: bool(front.exchanges and front.exchanges[0]._reading_paused))
            paused_since = asyncio.get_running_loop().time()
            await eventually(lambda: asyncio.get_running_loop().time() > paused_since + 0.15)
            assert sent < count
            assert front.relay_failures == []
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
            head, body = await client.last_response()
            assert (head.status, len(body)) == (200, (65536 + 8) * count)
            assert front.relay_failures == []
