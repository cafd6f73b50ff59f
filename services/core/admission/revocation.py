"""Taking back: sheddable requests that were sent and may be ended so that others find room.

One book per pool. At most two are revoked at a time; the next decision waits until both have ended (or are given
up after 10 s) and then 500 ms more, in which readings show what was freed. An answer that has begun is never
cut: whoever starts one says so, and the request leaves this book. When to revoke is the controller's decision.
"""

from services.core.admission.tickets import Ticket
from services.core.units import Duration, Instant, after, ms, seconds

REVOKED_AT_ONCE = 2
GRACE = ms(500)
CONFIRM_TIMEOUT = seconds(10)


class Revocations:
    """Requests of one pool that may be revoked, and those that were and have not ended yet."""

    __slots__ = ("_by_priority", "_pending", "_quiet_until", "confirmed", "issued", "unconfirmed")

    def __init__(self) -> None:
        self._by_priority: dict[int, dict[int, Ticket]] = {}
        self._pending: dict[int, Instant] = {}
        self._quiet_until = Instant(0)
        self.issued = 0
        self.confirmed = 0
        self.unconfirmed = 0

    @property
    def pending(self) -> int:
        """How many were revoked and have neither ended nor been given up."""
        return len(self._pending)

    def sent(self, ticket: Ticket) -> None:
        """A sheddable request was dispatched."""
        self._by_priority.setdefault(ticket.priority, {})[ticket.sequence] = ticket

    def kept(self, ticket: Ticket) -> None:
        """A request may no longer be revoked: its answer has begun, or it has ended."""
        sent = self._by_priority.get(ticket.priority)
        if sent is not None:
            sent.pop(ticket.sequence, None)
            if not sent:
                del self._by_priority[ticket.priority]

    def ended(self, ticket: Ticket, now: Instant) -> Duration | None:
        """A request ended; returns how long after its revocation, None if none is waited for."""
        self.kept(ticket)
        revoked_at = self._pending.pop(ticket.sequence, None)
        if revoked_at is None:
            return None
        self.confirmed += 1
        if not self._pending:
            self._quiet_until = after(now, GRACE)
        return Duration(now - revoked_at)

    def revoke(self, wanted: int, now: Instant) -> list[Ticket]:
        """Return whom to revoke now: the lowest priority first, the newest of it first, at most two."""
        self._give_up(now)
        if self._pending or now < self._quiet_until:
            return []
        chosen: list[Ticket] = []
        while len(chosen) < min(wanted, REVOKED_AT_ONCE) and self._by_priority:
            lowest = self._by_priority[min(self._by_priority)]
            chosen.append(lowest[next(reversed(lowest))])
            self.kept(chosen[-1])
        for ticket in chosen:
            self._pending[ticket.sequence] = now
        self.issued += len(chosen)
        return chosen

    def next_deadline(self, now: Instant) -> Instant | None:
        """Return when `revoke` may have another answer; None when only a request's end can change it."""
        if self._pending:
            return after(min(self._pending.values()), CONFIRM_TIMEOUT)
        return self._quiet_until if self._by_priority and now < self._quiet_until else None

    def _give_up(self, now: Instant) -> None:
        late = [sequence for sequence, at in self._pending.items() if now - at >= CONFIRM_TIMEOUT]
        for sequence in late:
            del self._pending[sequence]
        self.unconfirmed += len(late)
