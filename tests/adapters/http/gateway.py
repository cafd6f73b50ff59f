"""A front that drives exchanges as a test says, and upstream scripts for each stage of a response."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from services.adapters.http.relay import Exchange, ExchangeTimeouts, UpstreamRequest
from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer, ServerOptions
from services.adapters.http.upstream import Origin, UpstreamOptions, UpstreamPool
from services.wire.http1.failures import (
    Failure,
)
from services.wire.http1.heads import forwardable_block
from services.wire.http1.requests import Request
from tests.adapters.http.peers import RawClient, UpstreamSide

POST = b"POST /v1/x?y HTTP/1.1\r\nHost: h\r\nAuthorization: t\r\nContent-Length: 5\r\n\r\nhello"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"total_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"upstream failed"}}\n\n'
LONG = ExchangeTimeouts()


@dataclass
class Gateway:
    """A front that drives one exchange per request as the test says, and records what it is told."""

    pool: UpstreamPool
    port: int = 0
    server: HttpServer = field(init=False)
    commits: bool = True
    drop_usage: bool = False
    timeouts: ExchangeTimeouts = LONG
    ports: list[int] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    relay_failures: list[Failure] = field(default_factory=list)
    ready: list[Exchange] = field(default_factory=list)
    completed: list[Exchange] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    responders: list[Responder] = field(default_factory=list)
    started: int = 0

    def __call__(self, request: Request, responder: Responder) -> None:
        self.responders.append(responder)
        self.start(request, responder)

    def start(self, request: Request, responder: Responder) -> None:
        origin = Origin("127.0.0.1", self.ports[min(self.started, len(self.ports) - 1)])
        self.started += 1
        outbound = UpstreamRequest(
            request.method, request.target, forwardable_block(request.headers), request.body
        )
        exchange = Exchange(origin, outbound, request, self, self.timeouts, drop_usage=self.drop_usage)
        self.exchanges.append(exchange)
        responder.on_disconnect = exchange.abort
        self.pool.start(exchange)

    def response_ready(self, exchange: Exchange) -> None:
        self.ready.append(exchange)
        if self.commits:
            exchange.commit(self.responders[-1], b"x-gir-cluster: c\r\n")

    def attempt_failed(self, exchange: Exchange, failure: Failure) -> None:
        assert exchange.ended
        self.failures.append(failure)
        if self.started < len(self.ports):
            self.start(self.responders[-1].request, self.responders[-1])
        else:
            self.responders[-1].respond(502, [], b"failed")

    def relay_completed(self, exchange: Exchange) -> None:
        self.completed.append(exchange)

    def relay_failed(self, exchange: Exchange, failure: Failure) -> None:
        self.relay_failures.append(failure)
        exchange.append_and_close(ERROR)


@asynccontextmanager
async def gateway(
    *ports: int, options: UpstreamOptions | None = None, server_options: ServerOptions | None = None
) -> AsyncIterator[Gateway]:
    pool = UpstreamPool(options or UpstreamOptions(sweep_ms=5))
    front = Gateway(pool, ports=list(ports))
    front.server = HttpServer(front, server_options)
    front.port = await front.server.listen("127.0.0.1", 0)
    try:
        yield front
    finally:
        await front.server.close()
        await pool.close()


def answering(*pieces: bytes) -> Callable[[UpstreamSide], Awaitable[None]]:
    """A script that answers every request with the pieces, each written by itself."""

    async def script(side: UpstreamSide) -> None:
        while True:
            await side.request()
            for piece in pieces:
                await side.send(piece)
                await asyncio.sleep(0)

    return script


def ending(*pieces: bytes) -> Callable[[UpstreamSide], Awaitable[None]]:
    """A script that answers one request with the pieces and then closes."""

    async def script(side: UpstreamSide) -> None:
        await side.request()
        for piece in pieces:
            await side.send(piece)

    return script


def stalling(*pieces: bytes) -> Callable[[UpstreamSide], Awaitable[None]]:
    """A script that sends the pieces and then says nothing more."""

    async def script(side: UpstreamSide) -> None:
        await side.request()
        for piece in pieces:
            await side.send(piece)
        await side.receive_all()

    return script


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def ask(client: RawClient, request: bytes = POST) -> tuple[int, bytes]:
    await client.send(request)
    head, body = await client.response()
    return head.status, body
