"""Fetching pages from model servers: one warm connection per server, bounded in bytes and in time.

A picker fetches five pages a second from every pod, so a general HTTP client costs more than reading the
page does. A fetch here is a write, a few reads and one future. What pages mean is `vllm`'s business; when
to fetch is the caller's, who never has two fetches to one server at once.
"""

import asyncio
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from services.adapters.ports import Clock, ScrapePage
from services.core.units import NS_PER_S, Duration
from services.wire.http1.heads import request_head
from services.wire.http1.limits import ResponseLimits
from services.wire.http1.responses import ResponseError, ResponseParser

TIMEOUT = "timeout"
TOO_LARGE = "too_large"
REFUSED = "refused"
STATUS = "status"
BROKEN = "broken"
"""The closed set of `ScrapePage.failure`: beside the port's four, an answer that is no HTTP or that broke off."""

_HEADERS = b"accept: text/plain;version=0.0.4, */*;q=0.5\r\naccept-encoding: identity\r\nuser-agent: gir\r\n"
_OK = 200


class _FetchError(Exception):
    """A fetch ended without a page; `failure` is one of the words above."""

    def __init__(self, failure: str, *, stale_connection: bool = False) -> None:
        super().__init__(failure)
        self.failure = failure
        self.stale_connection = stale_connection


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a URL leads, taken apart once."""

    host: str
    port: int
    request: bytes


class _Connection(asyncio.Protocol):
    """One connection to one server; serves one fetch at a time."""

    def __init__(self) -> None:
        self._parser = ResponseParser(ResponseLimits())
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[bytes] | None = None
        self._body: list[bytes] = []
        self._size = 0
        self._max_bytes = 0
        self._served = False
        self.open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio.Transport, though they are what it describes.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None:
            self.abort()  # Bytes nobody asked for: the peer is out of step.
            return
        parser = self._parser
        try:
            parser.feed(data)
        except ResponseError:
            self._end(_FetchError(BROKEN))
            return
        head = parser.head
        if head is None:
            return
        body = parser.take_body()
        self._size += len(body)
        if self._size > self._max_bytes or (head.content_length or 0) > self._max_bytes:
            self._end(_FetchError(TOO_LARGE))
            return
        self._body.append(body)
        if parser.complete:
            self._complete(keep=head.keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._waiter is not None:
            if exc is None and self._parser.end():
                self._complete(keep=False)
            else:
                self._end(_FetchError(BROKEN, stale_connection=self._served and self._parser.head is None))
        self._parser.close()

    def fetch(self, request: bytes, max_bytes: int) -> asyncio.Future[bytes]:
        """Send a request; the future yields the body, or raises `_FetchError`."""
        self._waiter = asyncio.get_running_loop().create_future()
        self._body, self._size, self._max_bytes = [], 0, max_bytes
        self._parser.expect()
        self._transport.write(request)
        return self._waiter

    def abort(self) -> None:
        """Drop the connection; a fetch in progress is forgotten."""
        self.open = False
        self._waiter = None
        self._transport.abort()

    def _complete(self, *, keep: bool) -> None:
        waiter, self._waiter = self._waiter, None
        head = self._parser.head
        self._served = True
        if not keep:
            self.open = False
            self._transport.close()
        if waiter is None or waiter.done() or head is None:
            return
        if head.status == _OK:
            waiter.set_result(b"".join(self._body))
        else:
            waiter.set_exception(_FetchError(STATUS))
        self._body = []

    def _end(self, error: _FetchError) -> None:
        waiter, self._waiter = self._waiter, None
        self._body = []
        self.abort()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


class HttpMetricsSource:
    """`MetricsSource` port over HTTP/1.1. Raises ValueError for a URL that is not `http://host:port/path`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[str, _Place] = {}
        self._connections: dict[tuple[str, int], _Connection] = {}

    async def fetch(self, url: str, timeout: Duration, max_bytes: int) -> ScrapePage:
        """Return the page at `url`, or a failure in one word; never later than `timeout`."""
        place = self._places.get(url)
        if place is None:
            place = self._places[url] = _place(url)
        try:
            async with asyncio.timeout(timeout / NS_PER_S):
                body = await self._fetch(place, max_bytes)
        except _FetchError as error:
            return ScrapePage(b"", error.failure, self._clock.now())
        except TimeoutError:
            return ScrapePage(b"", TIMEOUT, self._clock.now())
        except OSError:
            return ScrapePage(b"", REFUSED, self._clock.now())
        return ScrapePage(body, "", self._clock.now())

    async def close(self) -> None:
        """Drop every connection."""
        for connection in self._connections.values():
            connection.abort()
        self._connections.clear()

    async def _fetch(self, place: _Place, max_bytes: int) -> bytes:
        try:
            return await self._fetch_once(place, max_bytes)
        except _FetchError as error:
            if not error.stale_connection:
                raise
        # The server closed the warm connection as the request went out: its right, and no ill sign.
        return await self._fetch_once(place, max_bytes)

    async def _fetch_once(self, place: _Place, max_bytes: int) -> bytes:
        key = (place.host, place.port)
        connection = self._connections.pop(key, None)
        if connection is None or not connection.open:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Connection, place.host, place.port)
        try:
            body = await connection.fetch(place.request, max_bytes)
        except asyncio.CancelledError:
            connection.abort()
            raise
        if connection.open:
            displaced = self._connections.get(key)
            self._connections[key] = connection
            if displaced is not None:
                displaced.abort()
        return body


def _place(url: str) -> _Place:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.port is None or not url.isascii():
        raise ValueError(f"{url!r} is not a URL of the form http://host:port/path")
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    request = request_head(b"GET", target.encode(), parts.netloc.encode(), _HEADERS, 0)
    return _Place(parts.hostname, parts.port, request)
