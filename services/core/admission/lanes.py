"""What waits where: bands (a priority over all pools), pools, and lanes (a priority within a pool).

Rows that the `FlowController` keeps, with the little arithmetic that belongs to each. A band bounds what waits at
a priority; a lane is what is ordered and drained; a pool is what is saturated. Decisions are not here.
"""

from collections import Counter
from dataclasses import dataclass, field

from services.core.admission.drain_rate import DrainRate, Promises
from services.core.admission.fairness import FairQueue
from services.core.admission.refusals import Cause
from services.core.admission.revocation import Revocations
from services.core.admission.settings import BandSettings
from services.core.admission.tickets import Ticket
from services.core.admission.usage_limits import Rung
from services.core.units import Duration, Instant


@dataclass(slots=True, eq=False)
class Usage:
    """How much waits: requests and the bytes of their bodies."""

    requests: int = 0
    size_bytes: int = 0

    def add(self, ticket: Ticket) -> None:
        """A ticket began to wait."""
        self.requests += 1
        self.size_bytes += ticket.size_bytes

    def take(self, ticket: Ticket) -> None:
        """A ticket stopped waiting."""
        self.requests -= 1
        self.size_bytes -= ticket.size_bytes


@dataclass(slots=True, eq=False)
class BandRow:
    """One priority over all pools. `waiting` is in the order of arrival."""

    settings: BandSettings
    ttl: Duration
    rung: Rung
    usage: Usage = field(default_factory=Usage)
    waiting: dict[int, Ticket] = field(default_factory=dict)

    def full(self, ticket: Ticket) -> bool:
        """Whether the band's own bounds leave no room for one more."""
        return (
            self.usage.requests >= self.settings.max_requests
            or self.usage.size_bytes + ticket.size_bytes > self.settings.max_bytes
        )


@dataclass(slots=True, eq=False)
class Lane:
    """One priority within one pool. `turns` counts decisions above a soft ceiling."""

    band: BandRow
    queue: FairQueue
    rate: DrainRate
    promises: Promises
    used_at: Instant
    turns: int = 0
    dispatched: int = 0
    dropped: Counter[Cause] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class PoolRow:
    """One pool. `order` are its lanes from the highest priority down; `empty_since` is None while it has endpoints."""

    lanes: dict[int, Lane] = field(default_factory=dict)
    order: list[tuple[int, Lane]] = field(default_factory=list)
    waiting: dict[int, Ticket] = field(default_factory=dict)
    empty_since: Instant | None = None
    revocations: Revocations = field(default_factory=Revocations)

    def waits_at_or_above(self, priority: int) -> int:
        """How many wait that a newcomer of this priority must not pass."""
        return sum(len(lane.queue) for at, lane in self.order if at >= priority)

    def per_second(self, now: Instant) -> float:
        """Return the dispatches per second of all lanes."""
        return sum(lane.rate.per_second(now) for _, lane in self.order)

    def insert(self, priority: int, lane: Lane) -> None:
        """Add a lane."""
        self.lanes[priority] = lane
        self.order = sorted(self.lanes.items(), reverse=True, key=lambda item: item[0])

    def remove(self, priority: int) -> None:
        """Remove a lane in which nobody waits."""
        del self.lanes[priority]
        self.order = [item for item in self.order if item[0] != priority]
