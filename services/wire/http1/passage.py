"""The passage of one upstream response to one client: which bytes are written for each read.

Upstream bytes go on untouched, chunk headers included, while the client's framing is in step with
the upstream's. A read that ends inside a chunk, or from which an event was left out, goes on
in a chunk of its own, so that the client always stands between chunks and an error event can
still be appended when the upstream dies. Pure; apart from the sockets so that it is tested as
bytes at every split point.
"""

from enum import Enum
from typing import Final

from services.wire.http1.heads import status_line
from services.wire.http1.observer import BodyObserver
from services.wire.http1.responses import BodyFraming, ResponseHead
from services.wire.http1.rewriting import Rewriter, RewritingObserver

LAST_CHUNK: Final = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Frame data as one chunk (RFC 9112 7.1); empty data gives nothing, as an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class Outgoing(Enum):
    """How the body is framed towards the client."""

    NONE = "none"
    AS_RECEIVED = "as_received"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until_close"


# Enum members are reached through a descriptor, which costs more than the comparison they serve.
_NONE: Final = Outgoing.NONE
_AS_RECEIVED: Final = Outgoing.AS_RECEIVED
_CHUNKED: Final = Outgoing.CHUNKED
_UNTIL_CLOSE: Final = Outgoing.UNTIL_CLOSE
_FRAMED_BY_CHUNKS: Final = BodyFraming.CHUNKED
_FRAMED_BY_LENGTH: Final = BodyFraming.LENGTH
_FRAMED_BY_NOTHING: Final = BodyFraming.NONE
_LENGTH_HEADER: Final = frozenset((b"content-length",))
_CODING_HEADER: Final = frozenset((b"transfer-encoding",))
_PLAIN_CODINGS: Final = (None, b"identity")
_FRAMING_HEADERS: Final = _LENGTH_HEADER | _CODING_HEADER


class Passage:
    """Turn an upstream's reads into client bytes.

    client_minor_version and client_keep_alive come from the request. head_request: the client sent HEAD.
    rewriter: alters the body, unless its content is coded; the upstream's Content-Length then does not hold.
    unfinished: the body has ended as framed and its stream has not; the client's body is left open for an error.
    """

    __slots__ = (
        "_client_minor_version",
        "_in_step",
        "_observer",
        "_upstream_chunked",
        "head",
        "keep_alive",
        "outgoing",
        "unfinished",
    )

    def __init__(
        self,
        head: ResponseHead,
        observer: BodyObserver,
        *,
        client_minor_version: int,
        client_keep_alive: bool,
        head_request: bool = False,
        rewriter: Rewriter | None = None,
    ) -> None:
        self.head = head
        rewritten = rewriter is not None and head.header(b"content-encoding") in _PLAIN_CODINGS
        if rewriter is not None and rewritten:
            observer = RewritingObserver(observer, rewriter)
        self._observer = observer
        self._client_minor_version = client_minor_version
        framing = head.framing
        self._upstream_chunked = framing is _FRAMED_BY_CHUNKS
        self._in_step = True
        self.unfinished = False
        if head_request or framing is _FRAMED_BY_NOTHING:
            self.outgoing = _NONE
        elif framing is _FRAMED_BY_LENGTH and not head.is_event_stream and not rewritten:
            self.outgoing = _AS_RECEIVED
        else:
            self.outgoing = self._open_ended()
        self.keep_alive = client_keep_alive and self.outgoing is not _UNTIL_CLOSE

    def render_head(self, extra: bytes = b"", *, without: frozenset[bytes] = frozenset()) -> bytes:
        """Render the head for the client.

        extra: a block of header lines to add. without: lowercase names of upstream headers to leave out.
        """
        head = self.head
        outgoing = self.outgoing
        framing = b""
        if outgoing is _CHUNKED:
            if not self._upstream_chunked:
                without |= _LENGTH_HEADER
                framing = b"transfer-encoding: chunked\r\n"
        elif outgoing is _UNTIL_CLOSE:
            without |= _FRAMING_HEADERS
        elif head.framing is not _FRAMED_BY_LENGTH:
            without |= _CODING_HEADER
        if not self.keep_alive:
            framing += b"connection: close\r\n"
        elif self._client_minor_version == 0:
            framing += b"connection: keep-alive\r\n"
        return b"%b%b%b%b\r\n" % (status_line(head.status), head.relayable_block(without), extra, framing)

    def pass_on(self, raw: bytes, body: bytes, *, at_boundary: bool, complete: bool) -> bytes:
        """Return the client bytes for one read.

        raw: the read as received, after the head. body: its decoded bytes. at_boundary: the upstream
        stands between chunks. complete: the response ended with this read.
        """
        observer = self._observer
        released = observer.feed(body) if body else body
        if complete:
            held = observer.finish()
            if held:
                released += held
            self.unfinished = observer.unfinished
        outgoing = self.outgoing
        if outgoing is not _CHUNKED:
            return b"" if outgoing is _NONE else released
        if self.unfinished:
            return chunk(released)
        clean = self._upstream_chunked and (complete or (at_boundary and raw.endswith(b"\r\n")))
        if clean and self._in_step and released is body:
            return raw
        self._in_step = clean and not observer.holding
        return chunk(released) + LAST_CHUNK if complete else chunk(released)

    def join_started(self, passed: bytes, *, complete: bool) -> bytes:
        """Fit to a client that already has an open-ended head; return `passed` framed for it.

        passed: what `pass_on` has returned so far, unsent. complete: the response has ended.
        """
        if self.outgoing not in (_AS_RECEIVED, _NONE):
            return passed
        self.outgoing = self._open_ended()
        if self.outgoing is _UNTIL_CLOSE:
            self.keep_alive = False
            return passed
        self._in_step = False
        return chunk(passed) + LAST_CHUNK if complete else chunk(passed)

    def append(self, data: bytes) -> bytes:
        """Return the client bytes that add data after what has passed and end the body; only if can_append."""
        return chunk(data) + LAST_CHUNK if self.outgoing is _CHUNKED else data

    def _open_ended(self) -> Outgoing:
        return _CHUNKED if self._client_minor_version >= 1 else _UNTIL_CLOSE

    @property
    def can_append(self) -> bool:
        """Whether body bytes can still be added after an upstream failure."""
        return self.outgoing in (_CHUNKED, _UNTIL_CLOSE)
