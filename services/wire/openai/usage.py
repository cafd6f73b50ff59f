"""What a model server says an answer used: tokens read, generated, and taken from a cache.

The object comes from outside and may hold anything; what is no sensible count is unknown, never an error. Charging
by it is not done here.
"""

from typing import Any, Final, NamedTuple

import orjson

from services.wire.openai.requests import MAX_COUNT


class Usage(NamedTuple):
    """Tokens of one answer; None is unknown."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


NO_USAGE: Final = Usage()


def read_usage(data: bytes | None) -> Usage:
    """Return what a usage object says: of chat and text completions, embeddings and responses."""
    if data is None:
        return NO_USAGE
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return NO_USAGE
    if not isinstance(found, dict):
        return NO_USAGE
    details = found.get("prompt_tokens_details", found.get("input_tokens_details"))
    return Usage(
        _count(found.get("prompt_tokens", found.get("input_tokens"))),
        _count(found.get("completion_tokens", found.get("output_tokens"))),
        _count(details.get("cached_tokens")) if isinstance(details, dict) else None,
    )


def _count(value: Any) -> int | None:
    """Return a count; booleans, fractions, negative and absurd numbers are none."""
    return value if value.__class__ is int and 0 <= value <= MAX_COUNT else None
