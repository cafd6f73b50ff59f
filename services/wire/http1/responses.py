"""Client side of HTTP/1.1: an upstream's bytes in, one head and its body out (RFC 9112).

A sans-I/O machine over llhttp in its strict mode, which checks every byte; the head is then read by
searching it, because a relay asks for three headers of ten. It tells where the head ends in the raw
bytes and whether they stand at a chunk boundary, so that framing can pass untouched. It opens no
socket and judges no status. Apart from the pool so that each conversation is tested as bytes.
"""

import re
from enum import Enum
from functools import lru_cache, partial
from typing import Final

import httptools

from services.wire.http1.heads import HOP_BY_HOP, end_to_end, header_block
from services.wire.http1.limits import ResponseLimits


class BodyFraming(Enum):
    """How the end of a response body is marked (RFC 9112 6.3)."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class ResponseError(Exception):
    """The upstream's bytes are not one valid HTTP/1.1 response; the connection is unusable."""


# Enum members are reached through a descriptor, which costs more than the comparison they serve.
_NONE: Final = BodyFraming.NONE
_LENGTH: Final = BodyFraming.LENGTH
_CHUNKED: Final = BodyFraming.CHUNKED
_CLOSE: Final = BodyFraming.CLOSE

_HEAD_END: Final = b"\r\n\r\n"
_CODING: Final = b"\r\ntransfer-encoding:"
_LENGTH_MARK: Final = b"\r\ncontent-length:"
_CONNECTION: Final = b"\r\nconnection:"
_BODILESS_STATUSES: Final = frozenset((204, 205, 304))
# Transfer-Encoding is left out: it is the framing, and is dealt with by whoever frames.
_CONNECTION_HEADERS: Final = HOP_BY_HOP - {b"transfer-encoding"}
_HEADER_SETS_MAX: Final = 64
"""Callers leave out a handful of fixed sets; each is compiled once."""


@lru_cache(maxsize=_HEADER_SETS_MAX)
def _marks(without: frozenset[bytes]) -> re.Pattern[bytes]:
    """Return what finds any header that must be left out: one search, where ten took 8 us of a request."""
    names = b"|".join(map(re.escape, sorted(_CONNECTION_HEADERS | without)))
    return re.compile(rb"\r\n(?:" + names + rb"):")


class ResponseHead:
    """The final head of a response.

    status: 200 to 999. framing, content_length (bytes, None unless framing is LENGTH).
    keep_alive: whether the connection may serve another request afterwards. is_event_stream: whether
    the body is server-sent events, whatever the media type's parameters or letter case.
    """

    __slots__ = ("_lower", "_raw", "content_length", "framing", "is_event_stream", "keep_alive", "status")

    def __init__(
        self,
        raw: bytes,
        lower: bytes,
        status: int,
        framing: BodyFraming,
        content_length: int | None,
        *,
        keep_alive: bool,
    ) -> None:
        self._raw = raw
        self._lower = lower
        self.status = status
        self.framing = framing
        self.content_length = content_length
        self.keep_alive = keep_alive
        self.is_event_stream = b"text/event-stream" in lower and _is_event_stream(lower)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """(lowercase name, value) pairs in order of arrival."""
        pairs = []
        for line in self._raw[:-4].split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            pairs.append((name.lower(), value.strip(b" \t")))
        return pairs

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a lowercase header name."""
        return _field(self._raw, self._lower, b"\r\n" + name + b":")

    def names_starting(self, prefix: bytes) -> frozenset[bytes]:
        """Return the lowercase names of headers that start with a lowercase prefix; usually none."""
        if b"\r\n" + prefix not in self._lower:
            return frozenset()
        return frozenset(name for name, _ in self.headers if name.startswith(prefix))

    def relayable_block(self, without: frozenset[bytes]) -> bytes:
        """Render the end-to-end header lines but those in `without`; the framing headers stay.

        The bytes are the upstream's own unless something must be left out.
        """
        if _marks(without).search(self._lower) is None:
            return self._raw[self._raw.index(b"\r\n") + 2 : -2]
        framing = [
            pair for pair in self.headers if pair[0] == b"transfer-encoding" and pair[0] not in without
        ]
        return header_block(end_to_end(self.headers, without=without) + framing)


class ResponseParser:
    """Parse the responses of one upstream connection, one `expect` per request.

    After each `feed` the caller looks at `head`, takes the new body bytes with `take_body`, and
    reads `complete` and `at_boundary`. Bytes beyond the response are an error: a peer that
    sends more than it was asked for is out of step, and its next answer would be somebody else's.
    """

    head: ResponseHead | None
    complete: bool
    _held: bytes
    _last: bytes

    def __init__(self, limits: ResponseLimits) -> None:
        self._limits = limits
        self._pieces: list[bytes] = []
        self._open_chunk: list[bool] = []
        # llhttp calls these three for every chunk; bound to C functions they cost no Python frame.
        self.on_body = self._pieces.append
        self.on_chunk_header = partial(self._open_chunk.append, True)
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
            if self.complete:
                raise ResponseError("bytes after the end of the response")
            self._feed_parser(data)
            return data
        held = self._held + data if self._held else data
        while True:
            end = held.find(_HEAD_END) + 4
            if end > self._limits.head_bytes or (end == 3 and len(held) > self._limits.head_bytes):
                raise ResponseError("the response head is too large")
            if end == 3:
                self._held = held
                return b""
            if held[9:10] != b"1":
                break
            self._skip_interim(held[:end])
            held = held[end:]
        self._held = b""
        return self._feed_final(held, end)

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
        if self.head is not None and self.head.framing is _CLOSE:
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
        self._last = b""
        self._interim = 0
        self._pieces.clear()
        self._open_chunk.clear()

    def _skip_interim(self, head: bytes) -> None:
        """Check and drop a 1xx head (RFC 9110 15.2)."""
        self._interim += 1
        if self._interim > self._limits.interim_heads:
            raise ResponseError("too many interim responses")
        if head[9:12] == b"101":
            raise ResponseError("the upstream switched protocols")
        self._feed_parser(head)
        self.complete = False
        self._awaited = True

    def _feed_final(self, held: bytes, end: int) -> bytes:
        """Check and read the final head together with what followed it in the same read."""
        head = held[:end]
        rest = held[end:]
        if self._head_only:
            # llhttp cannot be told that a HEAD answer has no body, so it sees the head and is not used again.
            self._feed_parser(head)
            self.complete = True
            self._spent = True
            if rest:
                raise ResponseError("bytes after the end of the response")
        else:
            self._feed_parser(held)
        self.head = self._read_head(head)
        if not self.complete:
            self._last = held[-6:]
        elif held.endswith(b"\r\n"):
            self._refuse_blank_excess(rest)
        return rest

    def _feed_parser(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._spent = True
            cause = error.__context__
            raise ResponseError(str(cause) if isinstance(cause, ResponseError) else str(error)) from error
        if self.head is None:
            return
        if not self.complete:
            self._last = data[-6:] if len(data) >= 6 else (self._last + data)[-6:]
        elif data.endswith(b"\r\n"):
            self._refuse_blank_excess(data)

    def _read_head(self, head: bytes) -> ResponseHead:
        """Decide how the body is framed; llhttp has already refused contradictions and bad lengths."""
        lower = head.lower()
        status = self._parser.get_status_code()
        if not lower.startswith((b"http/1.1 ", b"http/1.0 ")) or status < 200:
            raise ResponseError("the status line is not HTTP/1")
        if lower.count(b"\r\n") > self._limits.header_count + 2:
            raise ResponseError("too many response headers")
        # A search that finds nothing is spared the call: most heads have one of the three.
        coding = _field(lower, lower, _CODING) if _CODING in lower else None
        if coding is not None and (coding != b"chunked" or lower.count(_CODING) > 1):
            raise ResponseError("the transfer coding is not chunked")
        length = _field(lower, lower, _LENGTH_MARK)
        if self._head_only or status in _BODILESS_STATUSES:
            framing = _NONE
        elif coding is not None:
            framing = _CHUNKED
        elif length is not None:
            framing = _LENGTH
        else:
            framing = _CLOSE
        return ResponseHead(
            head,
            lower,
            status,
            framing,
            int(length) if framing is _LENGTH and length is not None else None,
            keep_alive=framing is not _CLOSE
            and (_persists(lower) if _CONNECTION in lower else lower[7:8] == b"1"),
        )

    def _refuse_blank_excess(self, tail: bytes) -> None:
        """llhttp skips CRLFs after a message; passed on untouched they would reach the client."""
        head = self.head
        if head is None or head.framing is _NONE:
            excess = bool(tail)
        elif head.framing is _CHUNKED:
            excess = (self._last + tail[-6:]).endswith(b"\r\n\r\n\r\n")
        else:
            excess = sum(map(len, self._pieces)) < len(tail)
        if excess:
            raise ResponseError("bytes after the end of the response")

    # The callbacks below are called by llhttp.

    def on_message_begin(self) -> None:
        """Start a head: the awaited one, or one nobody asked for."""
        if not self._awaited:
            raise ResponseError("bytes after the end of the response")
        self._awaited = False

    def on_message_complete(self) -> None:
        """The response has ended (an interim one ends with its head)."""
        self.complete = True


def _persists(lower: bytes) -> bool:
    """Whether the connection outlives a response that has a Connection header (RFC 9112 9.3)."""
    connection = _field(lower, lower, _CONNECTION) or b""
    options = [option.strip() for option in connection.split(b",")]
    return b"close" not in options and (lower[7:8] == b"1" or b"keep-alive" in options)


def _is_event_stream(lower: bytes) -> bool:
    media_type = _field(lower, lower, b"\r\ncontent-type:")
    return media_type is not None and media_type.partition(b";")[0].rstrip() == b"text/event-stream"


def _field(head: bytes, lower: bytes, mark: bytes) -> bytes | None:
    """Return the first value behind a mark (CRLF, lowercase name, colon); lower is the head in lower case."""
    at = lower.find(mark)
    if at < 0:
        return None
    start = at + len(mark)
    return head[start : head.index(b"\r\n", start)].strip(b" \t")
