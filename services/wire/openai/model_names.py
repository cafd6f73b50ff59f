"""Writing another model name into a request body, and the client's own back into the answer.

Bytes are spliced, never re-rendered: every other byte stays as it was. Apart from `requests` because only a
picker that rewrites names needs it.
"""

import json
import re
from typing import Final

_KEY: Final = b'"model"'
_PAIR: Final = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_COLON: Final = re.compile(rb"\s*:\s*")


def with_model(body: bytes, model: str) -> bytes:
    """Return `body` with the value of its one top-level `model` replaced.

    The body must be a JSON object with exactly one such key and a string value, as `read_body` checks.
    Raises ValueError otherwise.
    """
    start, end = _value_of_model(body)
    return b"".join((body[:start], json.dumps(model).encode(), body[end:]))


def _value_of_model(body: bytes) -> tuple[int, int]:
    if body.count(_KEY) == 1 and b"\\u006" not in body:
        found = _PAIR.search(body)
        if found is not None:
            return found.span(1)
    depth = 0
    for token in _TOKEN.finditer(body):
        text = token[0]
        if text in b"{[":
            depth += 1
        elif text in b"}]":
            depth -= 1
        elif depth == 1 and _named_model(text):
            colon = _COLON.match(body, token.end())
            value = None if colon is None else _TOKEN.match(body, colon.end())
            if value is not None:
                return value.span()
    raise ValueError("the body has no top-level model")


def _named_model(text: bytes) -> bool:
    return text == _KEY or (b"\\" in text and bool(json.loads(text) == "model"))


class ModelBack:
    """Puts the client's model name back into an answer that names the target; whole events or bodies in, same out."""

    __slots__ = ("_client", "_pattern")

    def __init__(self, target: str, client: str) -> None:
        # Servers write names outside ASCII escaped or as they are.
        spellings = {json.dumps(target).encode(), json.dumps(target, ensure_ascii=False).encode()}
        values = b"|".join(re.escape(each) for each in sorted(spellings))
        self._pattern = re.compile(rb'("model"\s{0,8}:\s{0,8})(?:' + values + rb")")
        self._client = json.dumps(client).encode()

    def apply(self, data: bytes) -> bytes:
        """Return `data` with every `"model": "TARGET"` naming the client's model; the same object when there is none."""
        if _KEY not in data:
            return data
        return self._pattern.sub(lambda found: found[1] + self._client, data)
