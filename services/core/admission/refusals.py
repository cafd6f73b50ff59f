"""The one table from what happened to a request in flow control to its drop reason.

The rule: 429 says that capacity exists and is contended, 503 that nobody can serve now. So most causes have two
reasons, one with and one without an endpoint in the pool. What a reason looks like on a wire is `wire/status`.
"""

import enum

from services.core.outcomes import DropReason


class Cause(enum.Enum):
    """Why a request ends without being served. Values are the words of the field's outcome label."""

    FULL = "RejectedCapacity"
    EXPIRED = "EvictedTTL"
    NOBODY_CAME = "EvictedNoEndpoints"
    NOBODY_THERE = "RejectedNoEndpoints"
    PUSHED_OUT = "EvictedPressure"
    REVOKED = "EvictedPriority"
    SHED = "RejectedSaturated"
    GONE = "EvictedContextCancelled"
    CLOSING = "RejectedShuttingDown"
    CLOSED = "EvictedShuttingDown"


REASONS: dict[Cause, tuple[DropReason, DropReason]] = {
    Cause.FULL: (DropReason.QUEUE_FULL, DropReason.NO_ENDPOINTS),
    Cause.EXPIRED: (DropReason.QUEUED_TOO_LONG, DropReason.NO_ENDPOINTS),
    # Endpoints came back between the deadline and the moment it was acted on: the request was late all the same.
    Cause.NOBODY_CAME: (DropReason.QUEUED_TOO_LONG, DropReason.NO_ENDPOINTS),
    Cause.NOBODY_THERE: (DropReason.QUEUE_FULL, DropReason.NO_ENDPOINTS),
    Cause.PUSHED_OUT: (DropReason.EVICTED, DropReason.NO_ENDPOINTS),
    Cause.REVOKED: (DropReason.EVICTED, DropReason.EVICTED),
    Cause.SHED: (DropReason.SATURATED, DropReason.NO_ENDPOINTS),
    Cause.GONE: (DropReason.CANCELLED, DropReason.CANCELLED),
    Cause.CLOSING: (DropReason.SHUTTING_DOWN, DropReason.SHUTTING_DOWN),
    Cause.CLOSED: (DropReason.SHUTTING_DOWN, DropReason.SHUTTING_DOWN),
}
"""(reason while the pool has an endpoint, reason while it has none)."""

MESSAGES: dict[DropReason, str] = {
    DropReason.QUEUE_FULL: "The queue for this priority is full.",
    DropReason.QUEUED_TOO_LONG: "The request waited in the queue longer than it may.",
    DropReason.NO_ENDPOINTS: "No endpoint can serve this model now.",
    DropReason.EVICTED: "The request was evicted by flow control in favour of a higher priority.",
    DropReason.SATURATED: "The pool is saturated; sheddable requests are dropped.",
    DropReason.CANCELLED: "The caller ended the request while it waited.",
    DropReason.SHUTTING_DOWN: "This picker is shutting down.",
}

CONTENDED = frozenset(
    {DropReason.QUEUE_FULL, DropReason.QUEUED_TOO_LONG, DropReason.EVICTED, DropReason.SATURATED}
)
"""Reasons for which waiting helps: they carry a Retry-After. The others have no rate to derive one from."""


def reason_of(cause: Cause, *, endpoints: bool) -> DropReason:
    """Return the drop reason of `cause`; `endpoints` says whether the pool has any that may serve."""
    return REASONS[cause][0 if endpoints else 1]
