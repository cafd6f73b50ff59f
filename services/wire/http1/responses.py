"""Client side of HTTP/1.1: an upstream's bytes in, one head and its body out (RFC 9112).

A sans-I/O machine over llhttp in its strict mode. It tells where the head ends in the raw bytes
and whether they stand at a chunk boundary, so that a relay can pass framing on untouched. It opens
no socket and judges no status. Apart from the pool so that each conversation is tested as bytes.
"""

from enum import Enum
from functools import partial
from typing import Final, NamedTuple

import httptools

from services.wire.http1.limits import ResponseLimits


class BodyFraming(Enum):
    """How the end of a response body is marked (RFC 9112 6.3)."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class ResponseError(Exception):
    """The upstream's bytes are not one valid HTTP/1.1 response; the connection is unusable."""


class ResponseHead(NamedTuple):
    """The final head of a response.

    headers: (lowercase name, value) pairs in order. content_length: bytes, None unless framing is
    LENGTH. keep_alive: whether the connection may serve another request afterwards. is_event_stream:
    whether the body is server-sent events, whatever the media type's parameters or letter case.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    framing: BodyFraming
    content_length: int | None
    keep_alive: bool
    is_event_stream: bool = False

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a lowercase header name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None


_HEAD_END: Final = b"\r\n\r\n"
_BODILESS_STATUSES: Final = frozenset((204, 205, 304))


class ResponseParser:
    """Parse the responses of one upstream connection, one `expect` per request.

    After each `feed` the caller looks at `head`, takes the new body bytes with `take_body`, and
    reads `complete` and `at_boundary`. Bytes beyond the response are an error: a peer that
    sends more than it was asked for is out of step, and its next answer would be somebody else's.
    """

    head: ResponseHead | None
    complete: bool

    def __init__(self, limits: ResponseLimits) -> None:
        self._limits = limits
        self._pieces: list[bytes] = []
        self._open_chunk: list[bool] = []
        # llhttp calls these three for every chunk; bound to C functions they cost no Python frame.
        self.on_body = self._pieces.append
        self.on_chunk_header = partial(self._open_chunk.append, True)  # append takes no keyword
        self.on_chunk_complete = self._open_chunk.clear
        self._parser = httptools.HttpResponseParser(self)
        self._spent = False
        self._awaited = False
        self._reset(head_only=False)

    @property
    def at_boundary(self) -> bool:
        """Whether the bytes so far end outside any chunk."""
        return not self._open_chunk

    @property
    def started(self) -> bool:
        """Whether any byte of the awaited response has come."""
        return self.head is not None or bool(self._held) or self._interim > 0

    def expect(self, *, head_only: bool = False) -> None:
        """Prepare for the response of the next request; head_only for HEAD, whose answer has no body."""
        if self._spent:
            self._parser = httptools.HttpResponseParser(self)
            self._spent = False
        self._reset(head_only=head_only)
        self._awaited = True

    def feed(self, data: bytes) -> bytes:
        """Consume one read; return the part of it that follows the head, framing included.

        Empty while the head is incomplete; the whole of data after that. Raises ResponseError.
        """
        if self.head is not None:
            self._feed_parser(data)
            return data
        return self._feed_head(data)

    def take_body(self) -> bytes:
        """Return the decoded body bytes of the reads since the last call."""
        pieces = self._pieces
        if not pieces:
            return b""
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return body

    def end(self) -> bool:
        """The peer closed its side in order: True if that completes the response (a close-delimited body)."""
        if self.head is not None and self.head.framing is BodyFraming.CLOSE:
            self.complete = True
            self._spent = True
        return self.complete

    def close(self) -> None:
        """Break the reference cycle with llhttp's callbacks."""
        self._parser = None  # type: ignore[assignment]  # `expect` is not called on a closed connection
        self._spent = True

    def _reset(self, *, head_only: bool) -> None:
        self.head = None
        self.complete = False
        self._head_only = head_only
        self._held = b""
        self._interim = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces.clear()
        self._open_chunk.clear()
        self._event_stream = False
        self._content_length: int | None = None
        self._chunked = False

    def _feed_head(self, data: bytes) -> bytes:
        held = self._held + data if self._held else data
        while True:
            end = held.find(_HEAD_END) + 4
            if end == 3:
                if len(held) > self._limits.head_bytes:
                    raise ResponseError("the response head is too large")
                self._held = held
                return b""
            if end > self._limits.head_bytes:
                raise ResponseError("the response head is too large")
            self._feed_parser(held[:end])
            held = held[end:]
            if self.head is not None:
                break
            self._interim += 1
            if self._interim > self._limits.interim_heads:
                raise ResponseError("too many interim responses")
        self._held = b""
        if held:
            if self.complete:
                raise ResponseError("bytes after the end of the response")
            self._feed_parser(held)
        return held

    def _feed_parser(self, data: bytes) -> None:
        pieces_before = len(self._pieces)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise ResponseError("the upstream switched protocols") from error
        except httptools.HttpParserError as error:
            self._spent = True
            cause = error.__context__
            raise ResponseError(str(cause) if isinstance(cause, ResponseError) else str(error)) from error
        if self.complete and self.head is not None and self.head.framing is not BodyFraming.NONE:
            self._refuse_blank_excess(data, pieces_before)

    def _refuse_blank_excess(self, data: bytes, pieces_before: int) -> None:
        """llhttp skips CRLFs after a message; passed on untouched they would reach the client."""
        if self._chunked:
            excess = data.endswith(b"\r\n\r\n\r\n")
        else:
            excess = sum(map(len, self._pieces[pieces_before:])) != len(data)
        if excess:
            raise ResponseError("bytes after the end of the response")

    # The callbacks below are called by llhttp.

    def on_message_begin(self) -> None:
        """Start a head: the awaited one, or one nobody asked for."""
        if self.complete or not self._awaited:
            raise ResponseError("bytes after the end of the response")
        self._headers = []
        self._event_stream = False
        self._content_length = None
        self._chunked = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header line; trailers pass in the raw bytes only."""
        if self.head is not None:
            return
        name = name.lower()
        if value and value[-1] in b" \t":
            value = value.rstrip(b" \t")
        self._headers.append((name, value))
        if len(self._headers) > self._limits.header_count:
            raise ResponseError("too many response headers")
        if name == b"content-length":
            self._content_length = int(value)
        elif name == b"content-type":
            media_type = value.partition(b";")[0].rstrip().lower()
            self._event_stream = media_type == b"text/event-stream"
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise ResponseError("the transfer coding is not chunked")
            self._chunked = True

    def on_headers_complete(self) -> None:
        """Judge the head: interim, or the final one and its framing."""
        parser = self._parser
        status = parser.get_status_code()
        if status < 200:
            if status == 101:
                raise ResponseError("the upstream switched protocols")
            if self._chunked or self._content_length:
                raise ResponseError("an interim response has a body")
            return
        if parser.get_http_version() not in ("1.1", "1.0"):
            raise ResponseError("the response version is not HTTP/1")
        if self._head_only or status in _BODILESS_STATUSES:
            framing = BodyFraming.NONE
        elif self._chunked:
            framing = BodyFraming.CHUNKED
        elif self._content_length is not None:
            framing = BodyFraming.LENGTH
        else:
            framing = BodyFraming.CLOSE
        self.head = ResponseHead(
            status,
            self._headers,
            framing,
            self._content_length if framing is BodyFraming.LENGTH else None,
            framing is not BodyFraming.CLOSE and parser.should_keep_alive(),
            self._event_stream,
        )
        if self._head_only:
            # llhttp cannot be told that a HEAD answer has no body, so this parser is not used again.
            self.complete = True
            self._spent = True

    def on_message_complete(self) -> None:
        """The response has ended (an interim one ends with its head)."""
        if self.head is not None:
            self.complete = True
            self._awaited = False
