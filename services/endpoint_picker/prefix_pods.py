"""The prefix indexes kept in step with the pods: who there is, how large their caches are, whose events to hear.

Called from time to time with the pod table. What is known of whom is `prefix`'s, what events mean `kv_listener`'s.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from services.adapters.prefix_ports import KvEventSource
from services.adapters.system.tasks import TaskScope
from services.core.pods.table import Pod, PodTable
from services.core.prefix.events import EventSource
from services.endpoint_picker.kv_listener import KvListener
from services.endpoint_picker.prefix import PrefixIndexes, in_slices

_NEVER = (-1, -1)


@dataclass(slots=True, eq=False)
class KvEventPlan:
    """Whose events to hear: `models` names each pool's base model, `connect` subscribes to a pod's rank."""

    listener: KvListener
    models: Mapping[str, str]
    ranks: int
    connect: Callable[[Pod, int], KvEventSource]


@dataclass(slots=True, eq=False)
class PrefixPods:
    """Follows `table`. `events` is None where nobody publishes KV events."""

    indexes: PrefixIndexes
    tasks: TaskScope
    events: KvEventPlan | None = None
    _rows: dict[str, Pod] = field(default_factory=dict)
    _heard: dict[str, list[asyncio.Task[None]]] = field(default_factory=dict)
    _leaving: set[str] = field(default_factory=set)
    _seen: tuple[int, int] = _NEVER

    def follow(self, table: PodTable) -> None:
        """Take in who came, who left and what they say."""
        if self._seen == (table.version, table.readings):
            return
        self._seen = (table.version, table.readings)
        down = table.rules.failures_to_fail
        for name, row in [*self._rows.items()]:
            # Nobody listens any more: whatever comes back has an empty cache, and may number its events past the old.
            if not table.holds(row) or row.refused_in_row >= down:
                del self._rows[name]
                self._forget(name)
        for pod in table:
            if pod.refused_in_row >= down:
                continue
            if pod.id in self._leaving:
                # Another server of that name: taken in once its predecessor is forgotten.
                self._seen = _NEVER
                continue
            self._rows[pod.id] = pod
            if pod.id not in self._heard:
                self._hear(pod, table)
            self.indexes.observe(pod.id, pod.pool, pod.reading)

    def _hear(self, pod: Pod, table: PodTable) -> None:
        plan = self.events
        if plan is None or not pod.address:
            return
        first = _place(pod, table)
        tasks = []
        for rank in range(first, first + plan.ranks):
            source = EventSource(pod.id, plan.models[pod.pool], rank)
            tasks.append(
                self.tasks.spawn(self._listen(plan, source, pod, rank), f"KV events of {pod.id}/{rank}")
            )
        self._heard[pod.id] = tasks

    async def _listen(self, plan: KvEventPlan, source: EventSource, pod: Pod, rank: int) -> None:
        events = plan.connect(pod, rank)
        try:
            await plan.listener.listen(source, events)
        finally:
            await events.close()

    def _forget(self, pod_id: str) -> None:
        heard = self._heard.pop(pod_id, [])
        for task in heard:
            task.cancel()
        self._leaving.add(pod_id)
        self.tasks.spawn(self._leave(pod_id, heard), f"forget {pod_id}")

    async def _leave(self, pod_id: str, heard: list[asyncio.Task[None]]) -> None:
        """Forget a pod after its listeners ended: each forgets what it heard when it does."""
        if heard:
            await asyncio.wait(heard)
        await in_slices(self.indexes.remove(pod_id))
        self._leaving.discard(pod_id)


def _place(pod: Pod, table: PodTable) -> int:
    """Return which rank of its pod an endpoint is: 0 for one that is a whole pod."""
    if not pod.name or pod.name == pod.id:
        return 0
    return [row.id for row in table.in_pool(pod.pool) if row.name == pod.name].index(pod.id)
