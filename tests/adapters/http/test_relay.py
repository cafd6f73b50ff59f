"""Attempts over real sockets: what passes, vanished clients, re-dispatch, late decisions, drain."""

import asyncio

import pytest

from services.adapters.http.relay import Exchange, UpstreamRequest
from services.adapters.http.upstream import Origin, UpstreamOptions
from services.wire.http1.failures import (
    PoolExhausted,
)
from services.wire.http1.passage import LAST_CHUNK, chunk
from services.wire.http1.requests import Request
from tests.adapters.http.gateway import (
    DONE,
    EVENT,
    OK,
    POST,
    SSE,
    USAGE,
    answering,
    ask,
    ending,
    gateway,
    stalling,
)
from tests.adapters.http.peers import ScriptedUpstream, UpstreamSide, connected
from tests.support.wait import eventually


async def test_a_request_arrives_with_its_end_to_end_headers_and_its_body() -> None:
    seen: list[bytes] = []

    async def script(side: UpstreamSide) -> None:
        seen.append(await side.request())
        await side.send(OK)

    async with (
        ScriptedUpstream(script) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        await client.send(POST)
        assert await client.receive_until(b"{}") == (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nx-gir-cluster: c\r\n\r\n{}"
        )
        assert seen == [
            b"POST /v1/x?y HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nauthorization: t\r\naccept-encoding: identity\r\n"
            b"content-length: 5\r\n\r\nhello" % upstream.port
        ]
        await eventually(lambda: len(front.completed) == 1)


async def test_upstream_connections_are_kept_and_used_again() -> None:
    async with (
        ScriptedUpstream(answering(OK)) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        for _ in range(5):
            assert await ask(client) == (200, b"{}")
        assert (upstream.connections, front.pool.connects) == (1, 1)
        assert front.pool.idle_connections(Origin("127.0.0.1", upstream.port)) == 1


async def test_a_stream_passes_untouched_event_by_event() -> None:
    pieces = (SSE + chunk(EVENT), chunk(EVENT), chunk(USAGE), chunk(DONE) + LAST_CHUNK)
    async with (
        ScriptedUpstream(answering(*pieces)) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        await client.send(POST)
        await client.receive_until(b"\r\n\r\n")
        assert await client.receive(len(b"".join(pieces)) - len(SSE)) == b"".join(pieces)[len(SSE) :]
        await eventually(lambda: len(front.completed) == 1)
        observer = front.completed[0].observer
        assert (observer.usage_object(), observer.done) == (b'{"total_tokens":5}', True)


async def test_f043_a_stream_of_single_bytes_arrives_whole() -> None:
    data = SSE + chunk('data: {"c":"你好 😀"}\n\n'.encode()) + chunk(DONE) + LAST_CHUNK
    pieces = [data[at : at + 1] for at in range(len(data))]
    async with (
        ScriptedUpstream(answering(*pieces)) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        assert await ask(client) == (200, 'data: {"c":"你好 😀"}\n\n'.encode() + DONE)


async def test_f052_the_usage_event_nobody_asked_for_is_left_out() -> None:
    async with (
        ScriptedUpstream(answering(SSE + chunk(EVENT + USAGE + DONE) + LAST_CHUNK)) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        front.drop_usage = True
        assert await ask(client) == (200, EVENT + DONE)
        assert front.completed[0].observer.usage_object() == b'{"total_tokens":5}'


async def test_f037_bodies_larger_than_every_buffer_pass_both_ways() -> None:
    large = b"x" * 3_000_000
    received: list[int] = []

    async def script(side: UpstreamSide) -> None:
        received.append(len((await side.request()).partition(b"\r\n\r\n")[2]))
        await side.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(large) + large)

    async with (
        ScriptedUpstream(script) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        request = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(large) + large
        sending = asyncio.gather(client.send(request))
        head, body = await client.response()
        await sending
        assert (head.status, body == large, received) == (200, True, [len(large)])


async def test_a_body_until_close_completes_with_the_connection() -> None:
    upstream_answer = b"HTTP/1.1 200 OK\r\n\r\nhello"
    async with (
        ScriptedUpstream(ending(upstream_answer)) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        assert await ask(client) == (200, b"hello")
        assert await ask(client) == (200, b"hello")
        assert upstream.connections == 2


async def test_the_answer_to_head_is_a_head() -> None:
    async def script(side: UpstreamSide) -> None:
        while True:
            request = await side.request()
            await side.send(OK[:-2] if request.startswith(b"HEAD") else OK)

    async with (
        ScriptedUpstream(script) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        await client.send(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
        head, body = await client.response(head_only=True)
        assert (head.header(b"content-length"), body) == (b"2", b"")
        assert await ask(client) == (200, b"{}")
        assert upstream.connections == 1


@pytest.mark.parametrize("stage", ["waiting", "streaming", "slow"])
@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_vanished_client_closes_the_upstream(stage: str, how: str) -> None:
    gone = asyncio.Event()

    async def script(side: UpstreamSide) -> None:
        await side.request()
        try:
            if stage != "waiting":
                await side.send(SSE + chunk(EVENT))
            while stage == "slow":
                await side.send(chunk(EVENT) * 1000)
            await side.receive_all()
        except ConnectionError:
            pass
        gone.set()

    async with (
        ScriptedUpstream(script) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        if stage == "slow":
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport
        await client.send(POST)
        if stage == "waiting":
            await eventually(lambda: upstream.connections == 1)
        elif stage == "streaming":
            await client.receive_until(EVENT)
        else:
            await eventually(lambda: bool(front.exchanges and front.exchanges[0]._reading_paused))
        if how == "reset":
            client.reset()
        else:
            await client.close()
        async with asyncio.timeout(5):
            await gone.wait()
        assert (front.failures, front.relay_failures, front.completed) == ([], [], [])


async def test_an_attempt_can_be_given_up_from_outside_and_sent_elsewhere() -> None:
    """Re-dispatch: an attempt without a first byte is cancelled; the request is replayed byte for byte."""
    gone = asyncio.Event()
    requests: list[bytes] = []

    async def hanging(side: UpstreamSide) -> None:
        requests.append(await side.request())
        await side.receive_all()
        gone.set()

    async def serving(side: UpstreamSide) -> None:
        requests.append(await side.request())
        await side.send(OK)

    async with (
        ScriptedUpstream(hanging) as dead,
        ScriptedUpstream(serving) as alive,
        gateway(dead.port, alive.port) as front,
        connected(front.port) as client,
    ):
        await client.send(POST)
        await eventually(lambda: len(requests) == 1)
        front.exchanges[0].abort()
        front.exchanges[0].abort()
        front.start(front.responders[0].request, front.responders[0])
        head, body = await client.response()
        assert (head.status, body, front.failures) == (200, b"{}", [])
        async with asyncio.timeout(5):
            await gone.wait()
        assert requests[0].replace(b"%d" % dead.port, b"%d" % alive.port) == requests[1]


async def test_an_attempt_given_up_while_connecting_leaves_a_usable_connection() -> None:
    async with ScriptedUpstream(answering(OK)) as upstream, gateway(upstream.port) as front:
        request = Request(b"GET", b"/", [])
        exchange = Exchange(
            Origin("127.0.0.1", upstream.port), UpstreamRequest(b"GET", b"/", b"", b""), request, front
        )
        front.pool.start(exchange)
        exchange.abort()
        await eventually(lambda: front.pool.idle_connections(exchange.origin) == 1)
        async with connected(front.port) as client:
            assert await ask(client) == (200, b"{}")
        assert (front.pool.connects, front.failures) == (1, [])


async def test_a_response_held_for_a_late_decision_is_relayed_whole() -> None:
    pieces = (SSE + chunk(EVENT), chunk(EVENT), chunk(DONE) + LAST_CHUNK)
    async with ScriptedUpstream(answering(*pieces)) as upstream, gateway(upstream.port) as front:
        front.commits = False
        async with connected(front.port) as client:
            await client.send(POST)
            await eventually(lambda: bool(front.ready))
            observer = front.ready[0].observer
            assert (front.ready[0].head.status, observer.ready) == (200, True)
            front.ready[0].commit(front.responders[0])
            head, body = await client.response()
            assert (head.status, body) == (200, EVENT * 2 + DONE)


@pytest.mark.parametrize("answer", [SSE + chunk(EVENT + DONE) + LAST_CHUNK, OK])
async def test_a_client_kept_alive_with_comments_gets_the_body_behind_them(answer: bytes) -> None:
    """F046: a heartbeat is a comment line before the first event; the head is already sent by then."""
    async with ScriptedUpstream(answering(answer)) as upstream, gateway(upstream.port) as front:
        front.commits = False
        async with connected(front.port) as client:
            await client.send(POST)
            await eventually(lambda: bool(front.ready))
            front.responders[0].start(200, [(b"content-type", b"text/event-stream")])
            front.responders[0].write_nowait(b": waiting\n")
            front.ready[0].commit(front.responders[0])
            _, body = await client.response()
            assert body == b": waiting\n" + (EVENT + DONE if answer is not OK else b"{}")


async def test_an_empty_body_until_close_is_a_whole_response() -> None:
    async with (
        ScriptedUpstream(ending(b"HTTP/1.1 200 OK\r\n\r\n")) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        assert await ask(client) == (200, b"")


async def test_a_client_already_slow_at_commit_stops_the_upstream() -> None:
    piece = chunk(b"data: " + b"x" * 65536 + b"\n\n")

    async def script(side: UpstreamSide) -> None:
        await side.request()
        await side.send(SSE + piece * 3)
        await side.receive_all()

    async with (
        ScriptedUpstream(script) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        front.commits = False
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport
        await client.send(POST)
        await eventually(lambda: bool(front.ready))
        responder = front.responders[0]
        responder.start(200)
        while not responder.paused:
            responder.write_nowait(b"y" * 65536)
        front.ready[0].commit(responder)
        assert front.ready[0]._reading_paused
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
        reading = asyncio.gather(client.receive_all(), return_exceptions=True)
        await eventually(lambda: not front.ready[0]._reading_paused)
        client.reset()
        await reading


async def test_only_a_ready_exchange_can_be_committed() -> None:
    async with (
        ScriptedUpstream(stalling()) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        await client.send(POST)
        await eventually(lambda: bool(front.exchanges))
        assert not front.exchanges[0].can_append
        with pytest.raises(RuntimeError, match="waiting"):
            front.exchanges[0].commit(front.responders[0])


async def test_the_pools_bound_is_not_the_origins_fault() -> None:
    async with ScriptedUpstream(stalling()) as upstream:
        options = UpstreamOptions(connections_max=1)
        async with gateway(upstream.port, options=options) as front, connected(front.port) as first:
            await first.send(POST)
            await eventually(lambda: upstream.connections == 1)
            async with connected(front.port) as second:
                assert (await ask(second))[0] == 502
            assert front.failures == [PoolExhausted()]


async def test_draining_ends_the_clients_connection_after_the_relayed_answer() -> None:
    async with ScriptedUpstream(answering(OK)) as upstream, gateway(upstream.port) as front:
        front.commits = False
        async with connected(front.port) as client:
            await client.send(POST)
            await eventually(lambda: bool(front.ready))
            draining = asyncio.gather(front.server.drain(5_000), asyncio.sleep(0))
            await asyncio.sleep(0)
            front.ready[0].commit(front.responders[0])
            head, body = await client.response()
            assert (head.header(b"connection"), body) == (b"close", b"{}")
            assert (await draining)[0] is True


async def test_pipelined_requests_are_relayed_one_after_the_other() -> None:
    async with (
        ScriptedUpstream(answering(OK)) as upstream,
        gateway(upstream.port) as front,
        connected(front.port) as client,
    ):
        await client.send(POST * 3)
        assert [(await client.response())[1] for _ in range(3)] == [b"{}"] * 3
        assert upstream.connections == 1
