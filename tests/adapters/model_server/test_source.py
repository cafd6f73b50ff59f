"""Fetching pages over real sockets: warm connections, bounds in bytes and time, every way to fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from services.adapters.model_server.source import HttpMetricsSource
from services.adapters.ports import ScrapePage
from services.adapters.system.clock import SystemClock
from services.core.units import Duration, seconds
from tests.support.wait import eventually

MIB = 1 << 20
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Origin:
    """A server whose conversations a test writes; counts connections and requests."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.ended = 0
        self.requests: list[bytes] = []


@asynccontextmanager
async def serving(serve: Serve, host: str = "127.0.0.1") -> AsyncIterator[Origin]:
    """Run `serve` for every connection; each is closed and over before this ends."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        found.ended += 1

    found = Origin()
    server = await asyncio.start_server(converse, host, 0)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found
        await eventually(lambda: found.ended == found.connections)


@asynccontextmanager
async def origin(answer: Callable[[int], bytes], *, close_after: bool = False) -> AsyncIterator[Origin]:
    """Answer the nth request with the bytes `answer(n)`; then close the connection if told so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            found.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer(len(found.requests)))
            if close_after:
                return

    async with serving(serve) as found:
        yield found


def page(body: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (extra, len(body), body)


@asynccontextmanager
async def source() -> AsyncIterator[HttpMetricsSource]:
    made = HttpMetricsSource(SystemClock())
    yield made
    await made.close()


async def fetch(
    made: HttpMetricsSource, port: int, max_bytes: int = 4 * MIB, timeout: Duration = seconds(10)
) -> ScrapePage:
    return await made.fetch(f"http://127.0.0.1:{port}/metrics", timeout, max_bytes)


async def test_pages_come_over_one_warm_connection() -> None:
    async with origin(lambda number: page(b"page %d" % number)) as server, source() as made:
        bodies = [(await fetch(made, server.port)).body for _ in range(5)]
        assert bodies == [b"page %d" % number for number in range(1, 6)]
        assert server.connections == 1
        assert server.requests[0].startswith(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % server.port)


async def test_chunked_and_close_delimited_pages_are_read_whole() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with origin(lambda _: chunked) as server, source() as made:
        assert (await fetch(made, server.port)).body == b"abcde"
    async with (
        origin(lambda _: b"HTTP/1.1 200 OK\r\n\r\nto the end", close_after=True) as server,
        source() as made,
    ):
        assert (await fetch(made, server.port)).body == b"to the end"
        assert (await fetch(made, server.port)).body == b"to the end"
        assert server.connections == 2


async def test_a_connection_that_the_server_closed_meanwhile_is_replaced_without_a_failure() -> None:
    async with origin(lambda _: page(b"x"), close_after=True) as server, source() as made:
        for _ in range(3):
            answer = await fetch(made, server.port)
            assert (answer.failure, answer.body) == ("", b"x")


async def test_a_connection_that_closes_under_the_request_is_retried_once() -> None:
    """The race of keep-alive: the second request meets a server that has just decided to close."""
    accepted: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(page(b"%d" % len(accepted)))
        if len(accepted) == 1:
            await reader.readuntil(b"\r\n\r\n")
        else:
            await reader.read()

    async with serving(serve) as server, source() as made:
        assert (await fetch(made, server.port)).body == b"1"
        assert (await fetch(made, server.port)).body == b"2"


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "status"),
        (b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", "status"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", "broken"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "broken"),
        (b"", "broken"),
    ],
)
async def test_what_is_no_page_is_a_failure_in_one_word(answer: bytes, failure: str) -> None:
    async with origin(lambda _: answer, close_after=True) as server, source() as made:
        for _ in range(2):
            answered = await fetch(made, server.port)
            assert (answered.failure, answered.body) == (failure, b"")


async def test_nobody_there_is_refused() -> None:
    async with origin(lambda _: b"") as server, source() as made:
        port = server.port
    assert (await fetch(made, port)).failure == "refused"


async def test_f010_a_page_without_end_and_a_page_too_large_are_cut_at_the_bound() -> None:
    """20 MiB announced, 20 MiB in chunks, and a stream that never ends: each costs at most the bound."""
    line = b'other_bucket{le="0.1"} 1\n' * 40_000
    announced = (
        page(b"", b"")[: -len(b"content-length: 0\r\n\r\n")] + b"content-length: 20971520\r\n\r\n" + line
    )
    chunk = b"%x\r\n%b\r\n" % (len(line), line)
    chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk * 20
    async with origin(lambda number: announced if number == 1 else chunks) as server, source() as made:
        for _ in range(2):
            answer = await fetch(made, server.port)
            assert (answer.failure, answer.body) == ("too_large", b"")
        assert len(server.requests) == 2

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(line)
            await writer.drain()

    async with serving(endless) as without_end, source() as made:
        assert (await fetch(made, without_end.port)).failure == "too_large"


async def test_f014_a_server_that_accepts_and_never_answers_costs_its_deadline_and_nobody_elses() -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(hang) as hanging, origin(lambda _: page(b"x")) as server, source() as made:
        async with asyncio.TaskGroup() as scope:
            stuck = scope.create_task(fetch(made, hanging.port, timeout=seconds(0.2)))
            quick = await fetch(made, server.port)
            assert quick.body == b"x"
            assert not stuck.done()
        assert stuck.result().failure == "timeout"


async def test_bytes_that_nobody_asked_for_close_the_connection() -> None:
    async with (
        origin(lambda number: page(b"x") + (page(b"y") if number == 1 else b"")) as server,
        source() as made,
    ):
        assert (await fetch(made, server.port)).failure in ("", "broken")
        assert (await fetch(made, server.port)).body == b"x"
        assert server.connections == 2


async def test_f013_an_ipv6_server_is_asked_with_its_host_in_brackets() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(page(b"six"))

    async with serving(serve, "::1") as server, source() as made:
        port = server.port
        answer = await made.fetch(f"http://[::1]:{port}/metrics", seconds(10), MIB)
        assert answer.body == b"six"
        assert b"host: [::1]:%d\r\n" % port in seen[0]


@pytest.mark.parametrize("url", ["https://h:1/m", "http://h/m", "h:1/m", "http://:1/m", "http://h:1/é"])
async def test_what_is_no_plain_http_url_with_a_port_is_refused(url: str) -> None:
    async with source() as made:
        with pytest.raises(ValueError, match="not a URL of the form"):
            await made.fetch(url, seconds(1), MIB)
