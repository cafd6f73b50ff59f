"""Tickets: one request's stay in flow control, and the effects that move it.

A ticket is made by whoever admits a request and changed only by the `FlowController`. Its stages go one way:
NEW -> QUEUED -> DISPATCHED -> REVOKED -> ENDED, any of them skipped. The shell performs the effects; what a
request is and where it goes are not here.
"""

import enum
from dataclasses import dataclass, field

from services.core.admission.refusals import Cause
from services.core.outcomes import DropReason
from services.core.units import Duration, Instant

_NEVER = Instant(0)


class Stage(enum.Enum):
    """Where a ticket is. REVOKED: dispatched, and told to end early; it still counts until it has ended."""

    NEW = "new"
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    REVOKED = "revoked"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that wants to be served by `pool`.

    `flow` is whose share it uses: a verified tenant, never a header that anybody may set (a caller who sends a
    fresh name with each request would have a share for each). `tokens` is the estimated cost, `size_bytes` what
    waiting costs in memory. `received_at` is when the door read it: time spent before flow control counts
    towards the TTL. `ttl` and `slo_ttft` are the caller's own, if it has any. The rest is the controller's.
    """

    request_id: str
    flow: str
    pool: str
    priority: int
    received_at: Instant
    tokens: int = 1
    size_bytes: int = 0
    ttl: Duration | None = None
    slo_ttft: Duration | None = None
    stage: Stage = field(default=Stage.NEW, init=False)
    sequence: int = field(default=0, init=False)
    enqueued_at: Instant = field(default=_NEVER, init=False)
    deadline: Instant = field(default=_NEVER, init=False)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The request may be sent now."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Drop:
    """The request is not sent. `retry_after` is None where waiting is not known to help."""

    ticket: Ticket
    cause: Cause
    reason: DropReason
    message: str
    retry_after: Duration | None = None


@dataclass(frozen=True, slots=True)
class Evict:
    """A request that was sent is to be ended, so that work of a higher priority finds room."""

    ticket: Ticket
    message: str
    retry_after: Duration | None = None


Effect = Dispatch | Drop | Evict
