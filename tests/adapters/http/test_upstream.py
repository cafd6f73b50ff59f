"""The pool by itself: idle connections age, surplus is closed, faults are named, nothing is left behind."""

import socket

import pytest

from services.adapters.http.relay import Exchange, UpstreamRequest
from services.adapters.http.upstream import Origin, UpstreamOptions, UpstreamPool, _fault
from services.wire.http1.failures import (
    ConnectFailed,
    ConnectFault,
    Failure,
    PoolExhausted,
    ResetBeforeFirstByte,
)
from services.wire.http1.requests import Request
from tests.adapters.http.peers import ScriptedUpstream, UpstreamSide
from tests.support.wait import eventually

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Collector:
    """A listener that only counts: what it is shown, it never commits."""

    def __init__(self) -> None:
        self.ready = 0
        self.failures: list[Failure] = []

    def response_ready(self, exchange: Exchange) -> None:
        self.ready += 1
        exchange.abort()

    def attempt_failed(self, exchange: Exchange, failure: Failure) -> None:
        assert exchange.ended
        self.failures.append(failure)

    def relay_completed(self, exchange: Exchange) -> None:
        raise AssertionError(exchange)

    def relay_failed(self, exchange: Exchange, failure: Failure) -> None:
        raise AssertionError(exchange, failure)


def get(origin: Origin, listener: Collector) -> Exchange:
    return Exchange(origin, UpstreamRequest(b"GET", b"/", b"", b""), Request(b"GET", b"/", []), listener)


async def answer(side: UpstreamSide) -> None:
    while True:
        await side.request()
        await side.send(OK)


async def test_idle_connections_age_and_their_origin_is_forgotten() -> None:
    async with ScriptedUpstream(answer) as upstream:
        pool = UpstreamPool(UpstreamOptions(idle_ms=30, sweep_ms=5))
        listener = Collector()
        origin = Origin("127.0.0.1", upstream.port)
        pool.start(get(origin, listener))
        await eventually(lambda: pool.idle_connections(origin) == 1)
        await eventually(lambda: pool.open_connections(origin) == 0)
        assert pool._slots == {}
        await pool.close()


async def test_more_idle_connections_than_the_bound_are_closed() -> None:
    async with ScriptedUpstream(answer) as upstream:
        pool = UpstreamPool(UpstreamOptions(idle_max=2))
        listener = Collector()
        origin = Origin("127.0.0.1", upstream.port)
        for _ in range(5):
            pool.start(get(origin, listener))
        await eventually(lambda: listener.ready == 5)
        await eventually(lambda: pool.open_connections(origin) == 2)
        assert pool.idle_connections(origin) == 2
        await pool.close()
        assert pool.open_connections(origin) == 0


async def test_bytes_on_an_idle_connection_close_it() -> None:
    async def script(side: UpstreamSide) -> None:
        await side.request()
        await side.send(OK)
        await eventually(lambda: pool.idle_connections(origin) == 1)
        await side.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await side.receive_all()

    async with ScriptedUpstream(script) as upstream:
        pool = UpstreamPool()
        origin = Origin("127.0.0.1", upstream.port)
        pool.start(get(origin, Collector()))
        await eventually(lambda: pool.connects == 1 and pool.open_connections(origin) == 0)
        await pool.close()


async def test_small_requests_are_not_delayed() -> None:
    async with ScriptedUpstream(answer) as upstream:
        pool = UpstreamPool()
        origin = Origin("127.0.0.1", upstream.port)
        pool.start(get(origin, Collector()))
        await eventually(lambda: pool.idle_connections(origin) == 1)
        sock = pool._slots[origin].idle[0].transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await pool.close()


async def test_a_closed_pool_opens_nothing_and_fails_what_runs() -> None:
    async def hang(side: UpstreamSide) -> None:
        await side.request()
        await side.receive_all()

    async with ScriptedUpstream(hang) as upstream:
        pool = UpstreamPool()
        listener = Collector()
        origin = Origin("127.0.0.1", upstream.port)
        pool.start(get(origin, listener))
        await eventually(lambda: upstream.connections == 1)
        pool.start(get(origin, listener))
        await pool.close()
        assert set(listener.failures) == {
            ResetBeforeFirstByte(reused=False),
            ConnectFailed(ConnectFault.UNREACHABLE),
        }
        assert pool.open_connections(origin) == 0
        pool.start(get(origin, listener))
        await eventually(lambda: len(listener.failures) == 3)
        assert listener.failures[-1] == PoolExhausted()


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (TimeoutError(), ConnectFault.TIMEOUT),
        (ConnectionRefusedError(), ConnectFault.REFUSED),
        (ConnectionResetError(), ConnectFault.RESET),
        (socket.gaierror(), ConnectFault.UNRESOLVED),
        (OSError(113, "no route"), ConnectFault.UNREACHABLE),
    ],
)
def test_connect_errors_have_names(error: OSError, fault: ConnectFault) -> None:
    assert _fault(error) is fault


@pytest.mark.parametrize(("host", "authority"), [("10.0.0.1", b"10.0.0.1:80"), ("::1", b"[::1]:80")])
def test_an_origin_names_its_authority(host: str, authority: bytes) -> None:
    assert Origin(host, 80).authority == authority
