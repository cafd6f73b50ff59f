"""Server side of HTTP/1.1: bytes in, complete requests or refusals out (RFC 9110, RFC 9112).

A sans-I/O machine over llhttp in its strict mode, plus the rules llhttp leaves open: limits, one
Host, known transfer codings and versions, origin-form targets. It opens no socket, reads no clock
and never answers; the connection that owns it does. Apart from the socket code so that every
conversation can be tested as bytes, at every split point.
"""

from typing import Final

import httptools

from services.wire.http1.limits import RequestLimits
from services.wire.http1.recurring import HeadMemory, RecurringHead
from services.wire.http1.refusals import (
    BAD_MESSAGE,
    BAD_TARGET,
    BODY_TOO_LARGE,
    CODING_UNKNOWN,
    EXPECTATION_UNKNOWN,
    HEAD_TOO_LARGE,
    HOST_NOT_ONE,
    NO_TUNNEL,
    TARGET_TOO_LONG,
    TOO_MANY_PIPELINED,
    VERSION_UNKNOWN,
    Refusal,
    Refused,
    classify,
)

_NO_BODY: Final = b""


class Request:
    """One complete request.

    method and target are raw bytes; target is always origin-form (`/path?query`) or `*`.
    headers are (lowercase name, value) pairs in order of arrival, values stripped of outer
    whitespace. body is the decoded body, whole. minor_version is 0 or 1. keep_alive tells whether
    the client wants the connection to stay. recurring: the head, if its connection sent it before.
    """

    __slots__ = (
        "_fields",
        "body",
        "expects_continue",
        "headers",
        "keep_alive",
        "method",
        "minor_version",
        "recurring",
        "target",
    )

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        body: bytes = _NO_BODY,
        *,
        minor_version: int = 1,
        keep_alive: bool = True,
        expects_continue: bool = False,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.minor_version = minor_version
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue
        self.recurring: RecurringHead | None = None
        self._fields: dict[bytes, bytes] | None = None

    @classmethod
    def again(cls, head: RecurringHead, body: bytes, *, keep_alive: bool = True) -> "Request":
        """Return a request whose head its connection has sent before."""
        request = cls(head.method, head.target, head.headers, body, keep_alive=keep_alive)
        request.recurring = head
        return request

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    def header(self, name: bytes) -> bytes | None:
        """Return the value of a lowercase header name; repeated lines are joined by `, ` (RFC 9110 5.3).

        Joining makes a repeated single-valued header (two Authorization lines) an invalid value
        instead of a choice between the two.
        """
        fields = self._fields
        if fields is None:
            fields = self._fields = dict(self.headers)
            if len(fields) != len(self.headers):
                fields.clear()
                for key, value in self.headers:
                    fields[key] = fields[key] + b", " + value if key in fields else value
        return fields.get(name)


class RequestParser:
    """Turn a client's bytes into requests, in order; the first refusal ends the conversation.

    Pipelined requests come out of one `feed` together and the caller answers them in order.
    After a Refusal the parser is spent: later bytes are ignored.
    """

    _begun: bool
    _head_complete: bool
    _head_fed: int
    _trailer_size: int
    _target: bytes
    _body_size: int
    _hosts: int
    _minor_version: int
    _chunked: bool
    _expects_continue: bool

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._header_count = limits.header_count
        self._parser = httptools.HttpRequestParser(self)
        self._items: list[Request | Refusal] = []
        self._refusal: Refusal | None = None
        self._read_size = 0
        self._first_read = 0
        self._memory = HeadMemory()
        self._again: RecurringHead | None = None
        self._owed = 0
        self._reset()

    def feed(self, data: bytes) -> list[Request | Refusal]:
        """Consume one read; return what became complete, usually nothing or one request.

        The returned list belongs to the caller.
        """
        rest = data
        if self._owed:
            rest = self._collect(data)
        elif self._refusal is None:
            head = self._memory.head
            if head is not None and not self._begun:
                # 3 us, where llhttp and its callbacks take 11.
                body = head.match(data, self._limits.body_bytes)
                if body is not None:
                    if len(body) == head.body_size:
                        return [Request.again(head, body)]
                    self._await_body(head, body)
                    return []
            self._memory.note(data, begun=self._begun)
        while rest and self._refusal is None:
            rest = self._feed(rest)
        items = self._items
        if items:
            self._items = []
            item = items[0]
            if len(items) == 1 and not self._begun and isinstance(item, Request):
                self._memory.learn(item, self._limits.head_bytes)
        return items

    def _await_body(self, head: RecurringHead, body: bytes) -> None:
        """A head came again and its body, Content-Length long, follows in other reads: llhttp sees neither."""
        self._reset()
        self._begun = self._head_complete = True
        self._again = head
        self._owed = head.body_size - len(body)
        self._body.append(body)
        self._body_size = len(body)

    def _collect(self, data: bytes) -> bytes:
        """Take what is owed of a body; put the request out when it is whole, and return what follows it."""
        owed = self._owed
        part = data[:owed]
        self._body.append(part)
        self._body_size += len(part)
        self._owed = owed - len(part)
        if not self._owed and self._again is not None:
            self._items.append(Request.again(self._again, b"".join(self._body)))
            self._again = None
            self._begun = self._head_complete = False
        return data[owed:]

    def _feed(self, data: bytes) -> bytes:
        """Parse up to the end of data; return what is left where llhttp stopped for another protocol."""
        rest = _NO_BODY
        self._read_size = len(data)
        if self._begun and not self._head_complete:
            self._head_fed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            if self._parser.get_method() == b"CONNECT":
                self._end_with(NO_TUNNEL)
            else:
                rest = self._without_upgrade() + data[stopped.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
        except httptools.HttpParserCallbackError as error:
            refused = error.__context__
            self._end_with(refused.refusal if isinstance(refused, Refused) else BAD_MESSAGE)
        except httptools.HttpParserError as error:
            self._end_with(classify(error))
        else:
            if self._begun and not self._head_complete and self._head_fed > self._limits.head_bytes:
                self._end_with(HEAD_TOO_LARGE)
        return rest

    @property
    def mid_request(self) -> bool:
        """Whether a request has begun and is not yet complete."""
        return self._begun

    @property
    def mid_body(self) -> bool:
        """Whether a head is complete and its body is not."""
        return self._begun and self._head_complete

    def head(self) -> Request:
        """Return the head whose body is still to come, as a request without body; only while `mid_body`."""
        if self._again is not None:
            return Request.again(self._again, _NO_BODY, keep_alive=False)
        return Request(
            self._parser.get_method(),
            self._target,
            self._headers,
            minor_version=self._minor_version,
            keep_alive=False,
            expects_continue=self._expects_continue,
        )

    def take_expectation(self) -> bool:
        """Whether `100 Continue` is due now: asked for, body wanted, not yet told. True only once."""
        if self._expects_continue and self._begun and self._head_complete and self._body_size == 0:
            self._expects_continue = False
            return True
        return False

    def close(self) -> None:
        """Break the reference cycle with llhttp's callbacks; the parser is spent."""
        self._refusal = self._refusal or BAD_MESSAGE
        self._owed = 0
        self._parser = None  # type: ignore[assignment]  # spent: feed returns before it is used

    # The callbacks below are called by llhttp, in this order, for every message.

    def on_message_begin(self) -> None:
        """Start a request."""
        if len(self._items) >= self._limits.pipelined_requests:
            raise Refused(TOO_MANY_PIPELINED)
        self._reset()
        self._begun = True
        self._first_read = self._read_size

    def on_url(self, part: bytes) -> None:
        """Collect the target; llhttp hands it over in pieces when reads split it."""
        self._target = self._target + part if self._target else part
        if len(self._target) > self._limits.target_bytes:
            raise Refused(TARGET_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header line, or skip a trailer field."""
        headers = self._headers
        if self._head_complete:
            self._skip_trailer(len(name) + len(value))
            return
        name = name.lower()
        if value and value[-1] in b" \t":
            value = value.rstrip(b" \t")
        headers.append((name, value))
        if len(headers) > self._header_count:
            raise Refused(HEAD_TOO_LARGE)
        if name in _READ_HERE:
            self._note(name, value)

    def on_headers_complete(self) -> None:
        """Check what only a whole head can tell."""
        self._head_complete = True
        if self._first_read + self._head_fed > self._limits.head_bytes:
            self._measure_head()
        version = self._parser.get_http_version()
        if version == "1.1":
            if self._hosts != 1:
                raise Refused(HOST_NOT_ONE)
        elif version == "1.0":
            self._minor_version = 0
            self._expects_continue = False  # RFC 9110 10.1.1: ignored from a 1.0 client.
            if self._chunked:
                raise Refused(BAD_MESSAGE)
            if self._hosts > 1:
                raise Refused(HOST_NOT_ONE)
        else:
            raise Refused(VERSION_UNKNOWN)
        if self._target[:1] != b"/":
            self._target = self._origin_form(self._target)

    def on_body(self, part: bytes) -> None:
        """Collect a piece of the body, within the limit."""
        self._body_size += len(part)
        if self._body_size > self._limits.body_bytes:
            raise Refused(BODY_TOO_LARGE)
        self._body.append(part)

    def on_message_complete(self) -> None:
        """Put the request out."""
        parser = self._parser
        if parser.should_upgrade():
            return  # Followed by HttpParserUpgrade: llhttp reads no body and stops after the head.
        body = self._body
        self._items.append(
            Request(
                parser.get_method(),
                self._target,
                self._headers,
                (body[0] if len(body) == 1 else b"".join(body)) if body else _NO_BODY,
                minor_version=self._minor_version,
                keep_alive=parser.should_keep_alive(),
                expects_continue=self._expects_continue,
            )
        )
        self._begun = self._head_complete = False

    def _reset(self) -> None:
        self._begun = False
        self._head_complete = False
        self._head_fed = 0
        self._trailer_size = 0
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._body_size = 0
        self._hosts = 0
        self._minor_version = 1
        self._chunked = False
        self._expects_continue = False

    def _measure_head(self) -> None:
        """The reads that held the head were long enough; find out how much of them is head."""
        size = len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > self._limits.head_bytes:
            raise Refused(HEAD_TOO_LARGE)

    def _skip_trailer(self, size: int) -> None:
        """Trailers are never merged into the headers (RFC 9110 6.5.1); they count against the head's limit."""
        self._trailer_size += size + 4
        if self._trailer_size > self._limits.head_bytes:
            raise Refused(HEAD_TOO_LARGE)

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
        elif name == b"content-length":
            # llhttp has already refused anything but digits, duplicates and overflow.
            if int(value) > self._limits.body_bytes:
                raise Refused(BODY_TOO_LARGE)
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise Refused(CODING_UNKNOWN)
            self._chunked = True
        elif value.lower() == b"100-continue":
            self._expects_continue = True
        else:
            raise Refused(EXPECTATION_UNKNOWN)

    def _origin_form(self, target: bytes) -> bytes:
        """Absolute-form must be accepted (RFC 9112 3.2.2); its authority is not used for routing."""
        if target == b"*" and self._parser.get_method() == b"OPTIONS":
            return target
        scheme, found, rest = target.partition(b"://")
        if not found or scheme.lower() not in (b"http", b"https"):
            raise Refused(BAD_TARGET)
        cut = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
        path = rest[cut:]
        return path if path[:1] == b"/" else b"/" + path

    def _without_upgrade(self) -> bytes:
        """Render the head just read without its Upgrade line, to be read again as what it is without.

        Declining an upgrade means to go on in HTTP/1.1 (RFC 9110 7.8); Java's client asks every server for
        h2c with its first request.
        """
        parser = self._parser
        first = b"%b %b HTTP/%b" % (
            parser.get_method(),
            self._target,
            parser.get_http_version().encode("ascii"),
        )
        lines = [b"%b: %b" % pair for pair in self._headers if pair[0] != b"upgrade"]
        return b"\r\n".join((first, *lines, b"", b""))

    def _end_with(self, refusal: Refusal) -> None:
        self._refusal = refusal
        self._items.append(refusal)


_READ_HERE: Final = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect"))
