"""Another model's name in a request body, and the client's own name in the answer: edits of bytes.

Bodies are never rendered anew: only the bytes of one string change, so unknown fields, number
formats and key order survive. The answer's side takes chunks as they come and is the same for JSON
and for events. No socket and no choice of model here.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

_KEY: Final = b'"model"'
_ESCAPED_LETTER: Final = b"\\u006"
"""Every letter of `model` is escaped as `\\u006.`; a body without it spells the key plainly or not at all."""
_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN: Final = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_COLON: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_STRING_AT: Final = re.compile(_STRING, re.DOTALL)

_PAIR: Final = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*(' + _STRING + rb")", re.DOTALL)
_BEGUN: Final = re.compile(rb'"model"[ \t\r\n]*(?::[ \t\r\n]*(?:"[^"\\]*(?:\\.[^"\\]*)*\\?)?)?\Z', re.DOTALL)
_KEY_BEGUN: Final = tuple(_KEY[:length] for length in range(len(_KEY) - 1, 0, -1))
HELD_BYTES_MAX: Final = 4096
"""More than the longest spelling of a model's name (256 characters of at most 12 bytes): what is longer is no name."""


def with_model(body: bytes, model: str) -> bytes:
    """Return `body` with the string of its one top-level `model` replaced, every other byte as it was.

    `body` is JSON that `read_body` accepted, so where one member `"model": TEXT` stands in it, that is the one.
    Raises `ValueError` where a scan of any other body finds no string or several.
    """
    start, end = _model_value(body)
    return b"".join((body[:start], json.dumps(model).encode(), body[end:]))


def _model_value(body: bytes) -> tuple[int, int]:
    """Return the bounds of the value, quotes included."""
    if _ESCAPED_LETTER not in body:
        found = [pair.span(1) for pair in _pairs(body)]
        if len(found) == 1:
            return found[0]
    return _scan(body)


def _pairs(data: bytes, at: int = 0) -> Iterator[re.Match[bytes]]:
    """Yield what looks like a member `"model": TEXT`, at any depth, spelt plainly.

    By `find`, which is many times faster than a pattern in the long stretches between them.
    """
    at = data.find(_KEY, at)
    while at >= 0:
        found = _PAIR.match(data, at) if data[at - 1 : at] != b"\\" else None
        if found is not None:
            yield found
        at = data.find(_KEY, at + len(_KEY) if found is None else found.end())


def _scan(body: bytes) -> tuple[int, int]:
    depth = 0
    found: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(body):
        text = token[0]
        if text in b"{[":
            depth += 1
        elif text in b"}]":
            depth -= 1
        elif depth == 1 and _is_model(text):
            colon = _COLON.match(body, token.end())
            if colon is not None:
                value = _STRING_AT.match(body, colon.end())
                if value is None:
                    raise ValueError("the model is no string")
                found.append(value.span())
    if len(found) != 1:
        raise ValueError(f"the body names {len(found)} models at its top level")
    return found[0]


def _is_model(text: bytes) -> bool:
    return text == _KEY or (b"\\u006" in text and bool(json.loads(text) == "model"))


class ModelBack:
    """Puts the client's name where an answer says `"model": TARGET`, chunk by chunk.

    Members called `model` count at every depth: events of `/v1/responses` carry theirs inside `response`. Text
    is never touched, because a quote inside a JSON string is escaped. At most `HELD_BYTES_MAX` bytes wait for
    the next chunk, and only where a chunk ends within such a member.
    """

    __slots__ = ("_after_backslash", "_client", "_held", "_plain", "_target")

    def __init__(self, target: str, client: str) -> None:
        self._target = target
        self._plain = b'"' + target.encode() + b'"'
        self._client = json.dumps(client).encode()
        self._held = b""
        self._after_backslash = False

    @property
    def holding(self) -> bool:
        """Whether bytes wait for the next chunk."""
        return bool(self._held)

    def feed(self, chunk: bytes) -> bytes:
        """Return what may go on: the bytes so far, renamed, but for a member that is not complete yet."""
        data = self._held + chunk if self._held else chunk
        if b'"' not in data:
            return self._emit(data, data)
        renamed, since = self._renamed(data)
        at = self._begun(data, since)
        self._held = data[at:]
        renamed.append(data[since:at])
        return self._emit(data[:at], b"".join(renamed))

    def finish(self) -> bytes:
        """Return what still waits; the answer ended within a member, or within what looked like one."""
        held, self._held = self._held, b""
        return held

    def _emit(self, seen: bytes, out: bytes) -> bytes:
        if seen:
            self._after_backslash = seen.endswith(b"\\")
        return out

    def _renamed(self, data: bytes) -> tuple[list[bytes], int]:
        """Return the pieces up to the last complete member, renamed, and where it ends."""
        pieces: list[bytes] = []
        since = 0
        for found in _pairs(data, int(self._after_backslash)):
            start, end = found.span(1)
            value = found[1]
            if value == self._plain or (b"\\" in value and _text(value) == self._target):
                pieces += (data[since:start], self._client)
            else:
                pieces.append(data[since:end])
            since = end
        return pieces, since

    def _begun(self, data: bytes, since: int) -> int:
        """Return where an incomplete member begins, or the length of `data`."""
        at = data.rfind(_KEY, since)
        if at >= 0 and _BEGUN.match(data, at) is not None and not self._escaped(data, at):
            return at if len(data) - at <= HELD_BYTES_MAX else len(data)
        for begun in _KEY_BEGUN:
            if data.endswith(begun, since):
                at = len(data) - len(begun)
                return len(data) if self._escaped(data, at) else at
        return len(data)

    def _escaped(self, data: bytes, at: int) -> bool:
        return data[at - 1 : at] == b"\\" if at else self._after_backslash


def _text(value: bytes) -> object:
    try:
        return json.loads(value)
    except ValueError:
        return None
