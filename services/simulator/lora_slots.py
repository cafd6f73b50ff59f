"""The GPU slots of LoRA adapters in one engine: which are resident, which must wait.

Knows adapter names and how many running sequences use each; knows nothing of steps or time. Apart from the
scheduler because slots are a resource with a law of their own: an adapter in use is never displaced.
"""

from collections import OrderedDict


class LoraSlots:
    """`capacity` slots (0: the engine serves no adapters). The empty name is the base model, which needs none."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._users: dict[str, int] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()

    @property
    def running(self) -> tuple[str, ...]:
        """Adapters that running sequences use, the one in use for longest first."""
        return tuple(self._users)

    @property
    def resident(self) -> tuple[str, ...]:
        """Adapters that hold a slot."""
        return (*self._users, *self._idle)

    def has_room(self, adapter: str) -> bool:
        """Whether a sequence with `adapter` could run now."""
        return not adapter or adapter in self._users or len(self._users) < self.capacity

    def acquire(self, adapter: str) -> bool:
        """Count one more running sequence with `adapter`; True when it had to be loaded for that.

        Call only while `has_room`. The least recently used idle adapter makes way if it must.
        """
        if not adapter:
            return False
        if adapter in self._users:
            self._users[adapter] += 1
            return False
        resident = adapter in self._idle
        if resident:
            del self._idle[adapter]
        elif len(self._users) + len(self._idle) >= self.capacity:
            self._idle.popitem(last=False)
        self._users[adapter] = 1
        return not resident

    def release(self, adapter: str) -> None:
        """Count one sequence less; the adapter stays resident until its slot is needed."""
        if not adapter:
            return
        self._users[adapter] -= 1
        if not self._users[adapter]:
            del self._users[adapter]
            self._idle[adapter] = None
