"""Heads that repeat: a client's next request on a connection differs from its last in body and length.

Clients of a model API send the same head with every request, its Content-Length apart. A head
that llhttp has judged once need not be judged again: the same bytes at the same place give the same
head. Apart from the parser, because what may be taken as the same is a question of its own.
"""

import re
from typing import Final

_HEAD_BYTES_MAX: Final = 4096
"""What an idle connection may pin this way; room for a token of 3 KiB beside ordinary headers."""
_DIGITS_MAX: Final = 9
_LENGTH_LINE: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,%d})\r\n" % _DIGITS_MAX, re.IGNORECASE)
_LENGTH: Final = b"content-length"

Fields = list[tuple[bytes, bytes]]


class RecurringHead:
    """A head of one connection, judged before. `reading`: what a handler made of it, Content-Length apart."""

    __slots__ = ("_after", "_before", "_digits", "_place", "headers", "method", "reading", "target")

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

    def body_of(self, data: bytes, body_bytes_max: int) -> bytes | None:
        """Return the body if `data` is this head with a whole body of at most so many bytes, else None.

        `headers` then has the length of this body. The list is not changed, but replaced: whoever took it
        before keeps his own.
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
        if int(digits) != len(body) or len(body) > body_bytes_max:
            return None
        if digits != self._digits:
            self._digits = digits
            self.headers = self.headers.copy()
            self.headers[self._place] = (_LENGTH, digits)
        return body


def recurring(
    method: bytes, target: bytes, headers: Fields, data: bytes, body_size: int, head_bytes_max: int
) -> RecurringHead | None:
    """Return the head of a request for which llhttp has read exactly `data`; None if it has no plain length.

    The request is one of HTTP/1.1 that keeps its connection, expects nothing and has a body of `body_size` bytes.
    """
    size = len(data) - body_size
    if size > min(_HEAD_BYTES_MAX, head_bytes_max - _DIGITS_MAX):
        return None
    line = _LENGTH_LINE.search(data, 0, size)
    # All that follows the head is the body, so llhttp and this line agree on where the head ends.
    if line is None or int(line[1]) != body_size:
        return None
    return RecurringHead(method, target, headers, data[:size], line.span(1))
