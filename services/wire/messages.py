"""Reading messages with suspicion: parsing within a bound, and the checks codecs share.

Every function either returns a value that is safe to keep or raises `UndecodableError`. What a
field means is the codec's business; only rules that several messages share live here.
"""

import math
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from services.core.locality import check_jurisdiction, check_name
from services.wire.errors import UndecodableError

MAX_TEXT_CHARS = 256
"""Names of models, pods, adapters and reasons; they become metric labels and header values."""

MAX_EXACT_INT = (1 << 53) - 1
"""Largest integer that a double holds exactly: Redis compares epochs and sequences in Lua, whose numbers are doubles."""

MessageT = TypeVar("MessageT", bound=Message)


def parse(kind: type[MessageT], data: bytes, what: str, max_bytes: int) -> MessageT:
    """Return `data` as a message of `kind`; raise `UndecodableError` when it is none or larger than `max_bytes`."""
    if len(data) > max_bytes:
        raise UndecodableError(what, f"{len(data)} bytes exceed the bound of {max_bytes}")
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise UndecodableError(what, f"{len(data)} bytes are no {kind.DESCRIPTOR.full_name}") from error


def name(value: str, what: str, field: str) -> str:
    """Return `value` if it is a legal name of a cluster, region or pool."""
    return _checked(check_name, value, field, what=what)


def jurisdiction(value: str, what: str) -> str:
    """Return `value` if it is a legal jurisdiction code."""
    try:
        return check_jurisdiction(value)
    except ValueError as error:
        raise UndecodableError(what, str(error)) from error


def text(value: str, what: str, field: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Return `value` if it is printable, not empty and at most `max_chars` long."""
    if not value:
        raise UndecodableError(what, f"{field} is missing")
    return optional_text(value, what, field, max_chars)


def optional_text(value: str, what: str, field: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Return `value` if it is printable and at most `max_chars` long; it may be empty."""
    if len(value) > max_chars:
        raise UndecodableError(what, f"{field} has {len(value)} characters, at most {max_chars} are allowed")
    if not value.isprintable():
        raise UndecodableError(what, f"{field} {value!r} has characters that do not print")
    return value


def ordinal(value: int, what: str, field: str) -> int:
    """Return `value` if every store on its way keeps it exactly."""
    if value > MAX_EXACT_INT:
        raise UndecodableError(what, f"{field} {value} exceeds {MAX_EXACT_INT}")
    return value


def wall_ms(value: int, what: str, field: str) -> int:
    """Return a Unix time in milliseconds if it is not negative."""
    if value < 0:
        raise UndecodableError(what, f"{field} {value} is negative")
    return value


def measured(value: float) -> float | None:
    """Return a measured number, or None (unknown) when it is NaN, infinite or negative."""
    return value if math.isfinite(value) and value >= 0 else None


def _checked(check: Callable[[str, str], str], value: str, field: str, *, what: str) -> str:
    try:
        return check(value, field)
    except ValueError as error:
        raise UndecodableError(what, str(error)) from error
