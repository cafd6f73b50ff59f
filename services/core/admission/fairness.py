"""Fairness within one band of one pool: whose request is next.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): a flow's tag is the service it has had; the flow with the
lowest tag is next, and its tag grows by the cost of what it sent. Two flows that wait over the same span differ
in service by at most one request of each, and unused shares go to whoever waits (max-min). The cost is tokens;
counting each request as 1 is round-robin, and putting everybody into one flow is the field's strict order.
"""

import heapq

from services.core.admission.flow_queue import Key, OrderedQueue, by_age, by_deadline, by_slo
from services.core.admission.settings import Fairness, Ordering
from services.core.admission.tickets import Ticket

FLOWS_MAX = 1024
"""Flows told apart at once; later ones share one. So a stream of fresh names can neither grow memory nor, each
entering at the lowest tag, keep everybody else waiting for ever."""
SWEEP_EVERY = 64
"""Once all are taken, every so many newcomers look for one that is free again, so that each need not."""
_EVERYBODY = ""
_THE_REST = "\0rest"

_KEYS: dict[Ordering, Key] = {
    Ordering.FCFS: by_age,
    Ordering.EDF: by_deadline,
    Ordering.SLO_DEADLINE: by_slo,
}


class _Flow:
    __slots__ = ("name", "queue", "tag", "waits")

    def __init__(self, name: str, key: Key) -> None:
        self.name = name
        self.queue = OrderedQueue(key)
        self.tag = 0
        self.waits = False  # Whether an entry of it stands in the heap.


class FairQueue:
    """The waiting requests of one (pool, priority). Its length is their number."""

    __slots__ = ("_fairness", "_flows", "_heap", "_key", "_live", "_members", "_newcomers", "_virtual")

    def __init__(self, fairness: Fairness, ordering: Ordering) -> None:
        self._fairness = fairness
        self._key = _KEYS[ordering]
        self._flows: dict[str, _Flow] = {}
        self._members: dict[int, _Flow] = {}
        self._heap: list[tuple[int, int, _Flow]] = []
        self._virtual = 0
        self._live = 0
        self._newcomers = 0

    def __len__(self) -> int:
        return self._live

    @property
    def flows(self) -> int:
        """How many flows are remembered: those that wait, and those still ahead in service."""
        return len(self._flows)

    def push(self, ticket: Ticket) -> None:
        """Add a ticket whose stage is QUEUED."""
        flow = self._flow(ticket)
        flow.queue.push(ticket)
        self._members[ticket.sequence] = flow
        self._live += 1
        if not flow.waits:
            flow.waits = True
            flow.tag = max(flow.tag, self._virtual)
            heapq.heappush(self._heap, (flow.tag, ticket.sequence, flow))

    def first(self) -> Ticket | None:
        """Return whose turn it is, leaving it in place."""
        while self._heap:
            flow = self._heap[0][2]
            ticket = flow.queue.first()
            if ticket is not None:
                return ticket
            heapq.heappop(self._heap)
            flow.waits = False
        return None

    def served(self, ticket: Ticket) -> None:
        """The ticket that `first` returned was sent; its stage says so already."""
        tag, order, flow = self._heap[0]
        self._virtual = tag
        flow.tag = tag + (max(1, ticket.tokens) if self._fairness is Fairness.MAX_MIN else 1)
        heapq.heapreplace(self._heap, (flow.tag, order, flow))
        self.left(ticket)

    def left(self, ticket: Ticket) -> None:
        """A ticket no longer waits; its stage says so already."""
        self._members.pop(ticket.sequence).queue.left()
        self._live -= 1
        if not self._live:
            # Nobody waits, so nobody is behind anybody: the next to wait all begin equal.
            self._flows.clear()
            self._heap.clear()
            self._virtual = 0

    def _flow(self, ticket: Ticket) -> _Flow:
        name = _EVERYBODY if self._fairness is Fairness.GLOBAL_STRICT else ticket.flow
        flow = self._flows.get(name)
        if flow is None:
            if len(self._flows) >= FLOWS_MAX:
                if self._newcomers % SWEEP_EVERY == 0:
                    self._forget()
                self._newcomers += 1
            if len(self._flows) >= FLOWS_MAX:
                name = _THE_REST
            flow = self._flows.setdefault(name, _Flow(name, self._key))
        return flow

    def _forget(self) -> None:
        """Drop flows that do not wait and are not ahead: coming back, they would begin where a new one does."""
        self._heap = [entry for entry in self._heap if entry[2].queue]
        heapq.heapify(self._heap)
        for flow in self._flows.values():
            flow.waits = bool(flow.queue)
        self._flows = {
            name: flow for name, flow in self._flows.items() if flow.queue or flow.tag > self._virtual
        }
