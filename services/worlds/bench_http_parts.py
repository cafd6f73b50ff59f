"""The processes of the HTTP benchmark: a fast upstream, a bare relay, and a bounded load generator.

Each is started as `python -m services.worlds.bench_http_parts ROLE …`, so that the CPU of each is its
own. Nothing is judged here; `bench_http` measures and compares. Apart from it because these
parts run in other processes and must import as little as possible.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import sys
import time
from collections.abc import Callable
from typing import cast

import uvloop

from services.adapters.http.relay import Exchange, UpstreamRequest
from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer
from services.adapters.http.upstream import Origin, UpstreamPool
from services.wire.http1.failures import Failure
from services.wire.http1.heads import forwardable_block
from services.wire.http1.limits import ResponseLimits
from services.wire.http1.passage import LAST_CHUNK, chunk
from services.wire.http1.requests import Request
from services.wire.http1.responses import ResponseParser

EVENTS = 50
_JSON_HEADERS = [(b"content-type", b"application/json")]
_SSE_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_USAGE = {"prompt_tokens": 24, "completion_tokens": EVENTS, "total_tokens": 24 + EVENTS}
_ERROR_BODY = (
    b'{"error":{"message":"the upstream failed","type":"server_error","param":null,"code":"bad_gateway"}}'
)


def _answer_body() -> bytes:
    """A chat completion of 0.5 kB."""
    text = "A router that relays bytes should cost less than the bytes themselves. " * 4
    choice = {"index": 0, "message": {"role": "assistant", "content": text[:220]}, "finish_reason": "stop"}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "bench"}
    return json.dumps({**answer, "choices": [choice], "usage": _USAGE}).encode()


def _event_stream() -> list[bytes]:
    """The chunks of a stream of EVENTS content events, one usage event and the end mark."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    delta = {"choices": [{"index": 0, "delta": {"content": "token "}, "finish_reason": None}]}
    events = [{**base, **delta}] * EVENTS + [{**base, "choices": [], "usage": _USAGE}]
    return [chunk(b"data: " + json.dumps(event).encode() + b"\n\n") for event in events] + [
        chunk(b"data: [DONE]\n\n")
    ]


class BenchUpstream:
    """Answers every request from bytes made beforehand: JSON, or the event stream when the body asks for one.

    paced: each event is written by itself, in an iteration of the event loop of its own.
    """

    def __init__(self, *, paced: bool) -> None:
        self._json = _answer_body()
        self._chunks = _event_stream()
        self._stream = b"".join(self._chunks) + LAST_CHUNK
        self._paced = paced

    def __call__(self, request: Request, responder: Responder) -> None:
        """Answer one request."""
        if b'"stream": true' not in request.body and b'"stream":true' not in request.body:
            responder.respond(200, _JSON_HEADERS, self._json)
            return
        responder.start(200, _SSE_HEADERS)
        if self._paced:
            self._send_next(responder, 0)
        else:
            responder.send_raw(self._stream)
            responder.finish_raw(keep_alive=responder.keep_alive)

    def _send_next(self, responder: Responder, index: int) -> None:
        if index == len(self._chunks):
            responder.end()
            return
        responder.send_raw(self._chunks[index])
        asyncio.get_running_loop().call_later(0.0005, self._send_next, responder, index + 1)


class BareRelay:
    """The relay alone: every request goes to one upstream, nothing is decided or recorded."""

    def __init__(self, pool: UpstreamPool, origin: Origin) -> None:
        self._pool = pool
        self._origin = origin

    def __call__(self, request: Request, responder: Responder) -> None:
        """Relay one request."""
        outbound = UpstreamRequest(
            request.method, request.target, forwardable_block(request.headers), request.body
        )
        exchange = Exchange(self._origin, outbound, request, _BareAttempt(responder))
        responder.on_disconnect = exchange.abort
        self._pool.start(exchange)


class _BareAttempt:
    """One attempt, committed whatever it brings."""

    __slots__ = ("_responder",)

    def __init__(self, responder: Responder) -> None:
        self._responder = responder

    def response_ready(self, exchange: Exchange) -> None:
        exchange.commit(self._responder)

    def attempt_failed(self, exchange: Exchange, failure: Failure) -> None:  # noqa: ARG002  # the listener's shape
        self._responder.respond(502, _JSON_HEADERS, _ERROR_BODY)

    def relay_completed(self, exchange: Exchange) -> None:
        """Nothing is recorded here."""

    def relay_failed(self, exchange: Exchange, failure: Failure) -> None:  # noqa: ARG002  # the listener's shape
        exchange.append_and_close(b"data: " + _ERROR_BODY + b"\n\n")


class LoadConnection(asyncio.Protocol):
    """One closed-loop client: the next request goes out when the answer to the last is complete."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._parser = ResponseParser(ResponseLimits())
        self._transport: asyncio.Transport
        self._sent_at = 0.0
        self._owed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        """Count an answer once it is complete."""
        parser = self._parser
        parser.feed(data)
        parser.take_body()
        if not parser.complete:
            return
        if parser.head is None or parser.head.status != 200:
            self._load.finished.set_exception(RuntimeError(f"answered {parser.head and parser.head.status}"))
            return
        self._load.latencies.append(self._load.clock() - self._sent_at)
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection that ends while it is owed an answer spoils the run."""
        if self._owed and not self._load.finished.done():
            self._load.finished.set_exception(RuntimeError(f"connection lost: {exc}"))

    def _next(self) -> None:
        self._owed = self._load.take()
        if not self._owed:
            self._transport.close()
            return
        self._parser.expect()
        self._sent_at = self._load.clock()
        self._transport.write(self._load.request)


class Load:
    """A bounded number of requests over a number of connections."""

    def __init__(self, request: bytes, requests: int, connections: int, clock: Callable[[], float]) -> None:
        self.request = request
        self.clock = clock
        self.latencies: list[float] = []
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = requests
        self._connections = connections

    def take(self) -> bool:
        """Whether one more request is to be sent; ends the run when every connection was told no."""
        if self._left > 0:
            self._left -= 1
            return True
        self._connections -= 1
        if self._connections == 0 and not self.finished.done():
            self.finished.set_result(None)
        return False


async def drive(port: int, request: bytes, requests: int, connections: int) -> dict[str, float]:
    """Send the requests over the connections, each answered before its next; rate and median latency."""
    loop = asyncio.get_running_loop()
    load = Load(request, requests, connections, time.perf_counter)
    began = load.clock()
    for _ in range(connections):
        await loop.create_connection(lambda: LoadConnection(load), "127.0.0.1", port)
    await load.finished
    took = load.clock() - began
    return {"requests_per_s": requests / took, "p50_ms": statistics.median(load.latencies) * 1000}


async def _serve(server: HttpServer, port: int) -> None:
    await server.listen("127.0.0.1", port)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await server.close()


async def _upstream(port: int, *, paced: bool) -> None:
    await _serve(HttpServer(BenchUpstream(paced=paced)), port)


async def _relay(port: int, upstream_port: int) -> None:
    pool = UpstreamPool()
    try:
        await _serve(HttpServer(BareRelay(pool, Origin("127.0.0.1", upstream_port))), port)
    finally:
        await pool.close()


def main(arguments: list[str]) -> None:
    """Run one role until it is done (load) or terminated (upstream, relay)."""
    parser = argparse.ArgumentParser(prog="bench_http_parts")
    roles = parser.add_subparsers(dest="role", required=True)
    upstream = roles.add_parser("upstream")
    upstream.add_argument("--port", type=int, required=True)
    upstream.add_argument("--paced", action="store_true")
    relay = roles.add_parser("relay")
    relay.add_argument("--port", type=int, required=True)
    relay.add_argument("--upstream-port", type=int, required=True)
    load = roles.add_parser("load")
    load.add_argument("--port", type=int, required=True)
    load.add_argument("--requests", type=int, required=True)
    load.add_argument("--connections", type=int, required=True)
    options = parser.parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        if options.role == "upstream":
            uvloop.run(_upstream(options.port, paced=options.paced))
        elif options.role == "relay":
            uvloop.run(_relay(options.port, options.upstream_port))
        else:
            request = sys.stdin.buffer.read()
            figures = uvloop.run(drive(options.port, request, options.requests, options.connections))
            sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
