"""Units of the whole house: instants, durations, tokens, money.

Values only; nothing here reads a clock. An `Instant` is a monotonic reading in
nanoseconds, comparable only on the host that took it; wall time appears only in
reports, tokens and ids, as `WallMs`. Apart from everything else so that every
room spells a quantity the same way.
"""

from typing import NewType

Instant = NewType("Instant", int)
"""Monotonic nanoseconds (CLOCK_MONOTONIC, shared by all processes of one host)."""

Duration = NewType("Duration", int)
"""A span in nanoseconds; may be negative only as the result of `since`."""

WallMs = NewType("WallMs", int)
"""Unix time in milliseconds. Never compared across hosts to judge freshness."""

Tokens = NewType("Tokens", int)
MicroUsd = NewType("MicroUsd", int)
"""Money in millionths of a US dollar; integers, so that sums are exact."""

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def ms(value: float) -> Duration:
    """Return `value` milliseconds as a duration."""
    return Duration(round(value * NS_PER_MS))


def seconds(value: float) -> Duration:
    """Return `value` seconds as a duration."""
    return Duration(round(value * NS_PER_S))


def in_ms(span: int) -> float:
    """Return a span of nanoseconds in milliseconds."""
    return span / NS_PER_MS


def after(start: Instant, span: int) -> Instant:
    """Return the instant `span` nanoseconds after `start`."""
    # `Instant(...)` would be a call that does nothing; this one is made several times per request.
    return start + span  # type: ignore[return-value]


def since(start: Instant, now: Instant) -> Duration:
    """Return the span from `start` to `now`; negative when `start` lies ahead."""
    return Duration(now - start)
