"""An ordered queue of tickets from which any can be taken at any time.

A ticket leaves by its stage: whoever takes it out of the middle changes the stage and says so, and the entry is
dropped when it surfaces. Entries of tickets that are gone are swept before they outnumber the living, so memory
follows the number that wait. Apart from fairness, which chooses among queues.
"""

import heapq
from collections.abc import Callable

from services.core.admission.tickets import Stage, Ticket

SWEEP_FROM = 16
"""Below this many dead entries a sweep costs more than it frees."""

_QUEUED = Stage.QUEUED
Key = Callable[[Ticket], int]


def by_age(_ticket: Ticket) -> int:
    """Order by sequence alone."""
    return 0


def by_deadline(ticket: Ticket) -> int:
    """Order by enqueue time plus TTL."""
    return ticket.deadline


def by_slo(ticket: Ticket) -> int:
    """Order by when the first token is due; a request without such a wish is due at its deadline."""
    return ticket.deadline if ticket.slo_ttft is None else ticket.received_at + ticket.slo_ttft


class OrderedQueue:
    """Tickets by `key`, equal ones by age. Its length is the number that still wait."""

    __slots__ = ("_heap", "_key", "_live")

    def __init__(self, key: Key) -> None:
        self._key = key
        self._heap: list[tuple[int, int, Ticket]] = []
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def push(self, ticket: Ticket) -> None:
        """Add a ticket whose stage is QUEUED."""
        heapq.heappush(self._heap, (self._key(ticket), ticket.sequence, ticket))
        self._live += 1

    def first(self) -> Ticket | None:
        """Return the first that waits, leaving it in place."""
        heap = self._heap
        while heap and heap[0][2].stage is not _QUEUED:
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def left(self) -> None:
        """A ticket of this queue no longer waits; its stage says so already."""
        self._live -= 1
        if len(self._heap) > 2 * self._live + SWEEP_FROM:
            self._heap = [entry for entry in self._heap if entry[2].stage is _QUEUED]
            heapq.heapify(self._heap)
