"""Heads that repeat: a client's next request on a connection differs from its last in body and length.

Clients of a model API send the same head with every request, its Content-Length apart. A head
that llhttp has judged once need not be judged again: the same bytes at the same place give the same
head. Apart from the parser, because what may be taken as the same is a question of its own.
"""

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from services.wire.http1.requests import Request

_HEAD_BYTES_MAX: Final = 4096
"""What an idle connection may pin this way; room for a token of 3 KiB beside ordinary headers."""
_DIGITS_MAX: Final = 9
_LENGTH_LINE: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,%d})\r\n" % _DIGITS_MAX, re.IGNORECASE)
_LENGTH: Final = b"content-length"
_HEAD_END: Final = b"\r\n\r\n"
_TRIES: Final = 8

Fields = list[tuple[bytes, bytes]]


class RecurringHead:
    """A head of one connection, judged before. `reading`: what a handler made of it, Content-Length apart.

    `headers` and `body_size` (bytes) are those of the last match.
    """

    __slots__ = (
        "_after",
        "_before",
        "_digits",
        "_place",
        "body_size",
        "headers",
        "method",
        "reading",
        "target",
    )

    def __init__(
        self, method: bytes, target: bytes, headers: Fields, head: bytes, at: tuple[int, int]
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.reading: object = None
        self._before = head[: at[0]]
        self._digits = head[at[0] : at[1]]
        self._after = head[at[1] :]
        self._place = headers.index((_LENGTH, self._digits))
        self.body_size = int(self._digits)

    def match(self, data: bytes, body_bytes_max: int) -> bytes | None:
        """Return what follows if `data` begins with this head and holds no more than one body, else None.

        A Content-Length above `body_bytes_max` is no match. `headers` is not changed, but replaced: whoever
        took the list before keeps his own.
        """
        before, after = self._before, self._after
        if not data.startswith(before):
            return None
        start = len(before)
        end = data.find(b"\r", start, start + _DIGITS_MAX + 1)
        digits = data[start:end]
        if not data.startswith(after, end) or not digits.isdigit():
            return None
        body = data[end + len(after) :]
        size = int(digits)
        if not len(body) <= size <= body_bytes_max:
            return None
        if digits != self._digits:
            self._digits = digits
            self.body_size = size
            self.headers = self.headers.copy()
            self.headers[self._place] = (_LENGTH, digits)
        return body


class HeadMemory:
    """Watches a connection's reads for a head worth keeping as `head`.

    Few tries: a client whose heads all differ shall not pay for each.
    """

    __slots__ = ("_opening", "_read_size", "_tries", "head")

    def __init__(self) -> None:
        self.head: RecurringHead | None = None
        self._tries = _TRIES
        self._opening = b""
        self._read_size = 0

    def note(self, data: bytes, *, begun: bool) -> None:
        """Take note of a read that goes to llhttp; begun: within a message."""
        if not self._tries:
            return
        if not begun:
            self._opening = data
            self._read_size = 0
        self._read_size += len(data)

    def learn(self, request: "Request", head_bytes_max: int) -> None:
        """Keep the head of `request`, which the noted reads held, if nothing is special about it."""
        opening, self._opening = self._opening, b""
        if request.minor_version != 1 or not request.keep_alive or request.expects_continue:
            return
        body_size = len(request.body)
        size = self._read_size - body_size
        if not opening or not 4 <= size <= min(len(opening), _HEAD_BYTES_MAX, head_bytes_max - _DIGITS_MAX):
            return
        self._tries -= 1
        line = _LENGTH_LINE.search(opening, 0, size)
        # Nothing but this head came before the body, so llhttp and this file agree on where it ends.
        if line is None or int(line[1]) != body_size or opening.find(_HEAD_END) != size - len(_HEAD_END):
            return
        self.head = RecurringHead(
            request.method, request.target, request.headers, opening[:size], line.span(1)
        )
