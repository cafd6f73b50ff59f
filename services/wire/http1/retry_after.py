"""How long an answer asks to be left alone: `Retry-After` in both forms, and `retry-after-ms`.

RFC 9110 section 10.2.3 (seconds or an HTTP-date); the millisecond header is OpenAI's and wins, as its
clients let it. Wall time comes in as an argument. What cannot be read is no wish at all.
"""

from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Final

from services.core.units import NS_PER_MS, NS_PER_S, Duration, WallMs

RETRY_AFTER_MAX: Final = Duration(3600 * NS_PER_S)
"""A longer wish is cut: one bad header must not take a cluster out of use for a day."""


def retry_after_of(headers: Iterable[tuple[bytes, bytes]], now_ms: WallMs) -> Duration | None:
    """Return the wish of an answer as a span from now, None when it has none; never negative.

    Of two `Retry-After` lines the longer wish counts.
    """
    coarse: Duration | None = None
    for name, value in headers:
        if name == b"retry-after-ms":
            fine = _number(value, NS_PER_MS)
            if fine is not None:
                return fine
        elif name == b"retry-after":
            wish = _number(value, NS_PER_S)
            if wish is None:
                wish = _until_date(value, now_ms)
            if wish is not None and (coarse is None or wish > coarse):
                coarse = wish
    return coarse


def _number(value: bytes, unit_ns: int) -> Duration | None:
    text = value.strip()
    whole, _, rest = text.partition(b".")
    if not whole.isdigit() or (rest and not rest.isdigit()) or len(text) > 20:
        return None
    return Duration(min(RETRY_AFTER_MAX, round(float(text) * unit_ns)))


def _until_date(value: bytes, now_ms: WallMs) -> Duration | None:
    try:
        due_ms = round(parsedate_to_datetime(value.decode("ascii")).timestamp() * 1000)
    except (ValueError, TypeError, OverflowError):
        return None
    return Duration(min(RETRY_AFTER_MAX, max(0, due_ms - now_ms) * NS_PER_MS))
