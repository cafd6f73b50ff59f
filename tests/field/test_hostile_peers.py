"""Whatever a data plane, a client or a pod does, a picker answers it clearly and counts nothing in flight afterwards.

Garbage is drawn from seeds, so that a failure is met again. Cases of the field with a number are in their own files.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire

from tests.endpoint_picker.cluster import MODEL, Cluster, chat, cluster_of
from tests.endpoint_picker.doors.processor import DataPlane
from tests.endpoint_picker.doors.test_ext_proc import DIRECT, asked, error
from tests.field.wires import parsed
from tests.support.wait import eventually

BODY = json.dumps(chat()).encode()
PAGE = b"vllm:num_requests_waiting 0\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc 0\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
EARLY_HINT = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"


async def at_rest(cluster: Cluster) -> None:
    """Wait until nothing counts as in flight, anywhere."""
    life, table = cluster.picker.doors.http.life, cluster.picker.observer.table
    await eventually(lambda: not life.running and not any(pod.in_flight for pod in table))
    assert cluster.picker.failure is not None
    assert not cluster.picker.failure.done()


# --- A data plane ---------------------------------------------------------------------------------


def head(**lines: bytes) -> wire.HttpHeaders:
    pairs = {":method": b"POST", ":path": b"/v1/chat/completions"}
    pairs |= {name.replace("_", "-"): value for name, value in lines.items()}
    values = [base_pb2.HeaderValue(key=name, raw_value=value) for name, value in pairs.items()]
    return wire.HttpHeaders(headers=base_pb2.HeaderMap(headers=values))


def response(status: bytes) -> wire.HttpHeaders:
    return wire.HttpHeaders(
        headers=base_pb2.HeaderMap(headers=[base_pb2.HeaderValue(key=":status", raw_value=status)])
    )


PARTS: tuple[dict[str, Any], ...] = (
    {"request_headers": head()},
    {"request_headers": head(content_encoding=b"," * 5000, content_length=b"9" * 5000)},
    {"request_headers": head(x_llm_d_slo_ttft_ms=b"nan", traceparent=b"\xff", x_session_token=b"%")},
    {"request_body": wire.HttpBody(body=BODY, end_of_stream=True)},
    {"request_body": wire.HttpBody(body=b"\xff", end_of_stream=False)},
    {"request_body": wire.HttpBody(end_of_stream=True)},
    {"request_trailers": wire.HttpTrailers()},
    {"response_headers": response(b"200")},
    {"response_headers": response(b"\xff9")},
    {"response_body": wire.HttpBody(body=b'data: {"usage":{"prompt_tokens":-1}}\n\n', end_of_stream=False)},
    {"response_body": wire.HttpBody(body=b'{"usage":' + b"[" * 3000, end_of_stream=True)},
    {"response_trailers": wire.HttpTrailers()},
)
ASKED = (PARTS[0], PARTS[3])


async def disorder(plane: DataPlane, chance: random.Random) -> None:
    """One stream of parts in any order, ended, cancelled, or cancelled at once."""
    call = plane.exchange().call
    parts = [*(ASKED if chance.random() < 0.5 else ()), *chance.choices(PARTS, k=chance.randint(1, 6))]
    try:
        for part in parts:
            await call.write(wire.ProcessingRequest(**part))
        if chance.random() < 0.4:
            call.cancel()
            return
        await call.done_writing()
        message: Any
        while (message := await call.read()) is not grpc.aio.EOF:
            if message.HasField("immediate_response"):
                answer = message.immediate_response
                assert answer.status.code in (400, 413, 415, 500)
                assert json.loads(answer.body)["error"]["code"]
        assert await call.code() is grpc.StatusCode.OK
    except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
        # The picker had ended the stream while parts were still written.
        assert call.done()


async def test_parts_in_any_order_are_answered_or_drained_and_leave_nothing() -> None:
    chance = random.Random(1)  # noqa: S311 -- garbage, not secrets
    async with asked(2, ext_proc={"body_wait_ms": 100}) as (cluster, plane):
        door = cluster.picker.doors.ext_proc
        for _ in range(10):
            async with asyncio.timeout(10):
                await asyncio.gather(*(disorder(plane, chance) for _ in range(20)))
        await eventually(lambda: door.streams == 0)
        await at_rest(cluster)
        assert door.held_bytes == 0
        assert (await plane.ask(BODY)).destination


async def test_streams_opened_and_dropped_by_the_hundred_leave_nothing() -> None:
    async with asked(2) as (cluster, plane):
        door = cluster.picker.doors.ext_proc
        for number in range(300):
            call = plane.exchange().call
            for part in ASKED[: number % 3]:
                await call.write(wire.ProcessingRequest(**part))
            call.cancel()
        # Opened after them on the same connection, so that all before it have arrived.
        assert (await plane.ask(BODY)).destination
        await eventually(lambda: door.streams == 0)
        await at_rest(cluster)
        assert door.held_bytes == 0


HINTS: tuple[Any, ...] = ([], "", ",,,", "[::1", "a" * 9000, [1, None, {"a": []}], {"a": "b"}, 5.0, True)


async def test_a_hint_that_names_nobody_lets_nobody_serve() -> None:
    async with asked(1) as (cluster, plane):
        for hint in HINTS:
            assert error(await plane.ask(BODY, subset=hint)) == (503, "no_endpoints")
        await at_rest(cluster)


# --- Clients --------------------------------------------------------------------------------------


def request(body: bytes) -> bytes:
    first = (b"POST /v1/chat/completions HTTP/1.1", b"host: x", b"connection: close")
    return b"\r\n".join((*first, b"content-length: %d" % len(body))) + b"\r\n\r\n" + body


async def sent(cluster: Cluster, data: bytes) -> bytes:
    """Send bytes and the end of the connection; return what comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.picker.http_port)
    writer.write(data)
    writer.write_eof()
    async with asyncio.timeout(10):
        try:
            received = await reader.read()
        except ConnectionError:
            received = b""
    writer.close()
    return received


async def test_mangled_requests_are_refused_and_never_the_servers_fault() -> None:
    chance = random.Random(2)  # noqa: S311 -- garbage, not secrets
    whole = request(BODY)
    async with cluster_of(1, http=DIRECT) as cluster:
        for _ in range(300):
            data = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(data))
                data[at : at + chance.choice((0, 1, 5))] = chance.choice(
                    (b"", b"\x00", b"\xff", b"\r\n", b'"', b"{", b" " * 50)
                )
            received = await sent(cluster, bytes(data))
            if received:
                assert parsed(received).status in (200, 400, 404, 405, 415, 501, 505)
        await at_rest(cluster)


async def test_clients_that_leave_at_any_byte_leave_nothing() -> None:
    chance = random.Random(3)  # noqa: S311 -- garbage, not secrets
    whole = request(json.dumps(chat(stream=True, max_tokens=200)).encode())
    async with cluster_of(2, http=DIRECT) as cluster:
        for number in range(150):
            _, writer = await asyncio.open_connection("127.0.0.1", cluster.picker.http_port)
            writer.write(whole if number % 3 else whole[: chance.randrange(len(whole))])
            if number % 2:
                await writer.drain()
                writer.transport.abort()
            else:
                writer.close()
        answer = await cluster.client.post("/v1/chat/completions", json=chat())
        assert answer.status_code == httpx.codes.OK
        await at_rest(cluster)


# --- Pods -----------------------------------------------------------------------------------------

Play = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


async def reset(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@asynccontextmanager
async def at_pod(play: Play) -> AsyncIterator[Cluster]:
    """A picker with one pod whose metrics are in order and whose answers are `play`."""

    async def pod(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            top = await reader.readuntil(b"\r\n\r\n")
            if b" /v1/" not in top.partition(b"\r\n")[0]:
                body = b'{"version":"0.11.0"}' if b"/version" in top else PAGE
                writer.write(
                    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
                    % (len(body), body)
                )
                return
            lines = top.lower().split(b"\r\n")
            size = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
            await reader.readexactly(size)
            if isinstance(play, bytes):
                writer.write(play)
                await writer.drain()
            else:
                await play(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(pod, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    pools = [{"name": "chat", "models": [MODEL], "endpoints": [{"id": "a", "address": address}]}]
    async with server, cluster_of(0, pools=pools, http=DIRECT) as cluster:
        await eventually(lambda: cluster.state("a") == "READY")
        yield cluster


@pytest.mark.parametrize(
    ("play", "status"),
    [
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, id="continue first"),
        pytest.param(EARLY_HINT * 5000 + OK, 503, id="hints without end"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n", 503, id="another protocol"),
        pytest.param(b"hello\r\n\r\n", 503, id="no http"),
        pytest.param(b"", 503, id="nothing"),
        pytest.param(reset, 503, id="reset"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", 503, id="two lengths"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: a\x00b\r\ncontent-length: 0\r\n\r\n", 503, id="zero byte"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * (1 << 20), 503, id="head without end"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            503,
            id="no chunk",
        ),
    ],
)
async def test_a_pod_that_answers_garbage_is_a_503_and_leaves_nothing(play: Play, status: int) -> None:
    async with at_pod(play) as cluster:
        answer = await cluster.client.post("/v1/chat/completions", json=chat())
        assert answer.status_code == status
        if status != httpx.codes.OK:
            assert answer.json()["error"]["code"] == "attempts_exhausted"
        await at_rest(cluster)
