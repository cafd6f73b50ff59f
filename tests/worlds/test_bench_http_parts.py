"""The benchmark's own parts: what the upstream says, and that a spoilt run is an error, not a figure."""

import asyncio
import json

import pytest

from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer
from services.wire.http1.limits import ResponseLimits
from services.wire.http1.requests import Request
from services.wire.http1.responses import ResponseParser
from services.worlds.bench_http_parts import EVENTS, BenchUpstream, drive

POST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b"
STREAM = b'{"stream": true}'


async def answer(upstream: BenchUpstream, body: bytes) -> tuple[bytes, bytes]:
    server = HttpServer(upstream)
    port = await server.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(POST % (len(body), body))
    parser = ResponseParser(ResponseLimits())
    parser.expect()
    received = b""
    async with asyncio.timeout(10):
        while not parser.complete:
            parser.feed(await reader.read(65536))
            received += parser.take_body()
    writer.close()
    await server.close()
    assert parser.head is not None
    return parser.head.header(b"content-type") or b"", received


async def test_the_upstream_answers_half_a_kilobyte_of_json() -> None:
    media_type, body = await answer(BenchUpstream(paced=False), b"{}")
    assert media_type == b"application/json"
    assert 400 < len(body) < 600
    assert json.loads(body)["usage"]["completion_tokens"] == EVENTS


@pytest.mark.parametrize("paced", [False, True])
async def test_the_upstream_streams_its_events_usage_and_end(paced: bool) -> None:
    media_type, body = await answer(BenchUpstream(paced=paced), STREAM)
    events = body.split(b"\n\n")[:-1]
    assert media_type.startswith(b"text/event-stream")
    assert len(events) == EVENTS + 2
    assert json.loads(events[-2][6:])["usage"]["completion_tokens"] == EVENTS
    assert events[-1] == b"data: [DONE]"


async def test_every_request_of_a_load_is_answered() -> None:
    server = HttpServer(BenchUpstream(paced=False))
    port = await server.listen("127.0.0.1", 0)
    figures = await drive(port, POST % (2, b"{}"), requests=25, connections=4)
    assert figures["requests_per_s"] > 0
    assert figures["p50_ms"] > 0
    await server.close()


async def test_an_answer_that_is_not_200_spoils_the_load() -> None:
    def refuse(_request: Request, responder: Responder) -> None:
        responder.respond(503)

    server = HttpServer(refuse)
    port = await server.listen("127.0.0.1", 0)
    with pytest.raises(RuntimeError, match="503"):
        await drive(port, POST % (2, b"{}"), requests=2, connections=1)
    await server.close()


async def test_a_lost_connection_spoils_the_load() -> None:
    server = HttpServer(lambda _request, responder: responder.abort())
    port = await server.listen("127.0.0.1", 0)
    with pytest.raises(RuntimeError, match="lost"):
        await drive(port, POST % (2, b"{}"), requests=2, connections=1)
    await server.close()
