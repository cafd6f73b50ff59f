"""The approximate prefix index: which pods were sent which blocks, least recently used ones forgotten.

It believes that a pod keeps what it was sent, up to the size of its KV cache; nothing is asked of the pod. Keys
are hashes of a chain (`blocks`). Per key one integer with a bit per pod: the pods that hold a whole prefix are
what is left of an AND along the chain. All memory is bounded: per pod and over all pods.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

from services.core.prefix.blocks import SLICE_BLOCKS, Sliced
from services.core.prefix.slots import Slots

DEFAULT_POD_BLOCKS = 31_250
"""Blocks kept of a pod whose cache size is unknown (the field's default: 2 million tokens of 64 a block)."""
MAX_BLOCKS = 1_000_000
"""Blocks kept over all pods, one per (pod, block): bounds the index near 250 MB."""
ENTRY_BYTES = 250
"""Memory of one (pod, block): a node of the pod's order, its key, and the key's share of the holders' table."""


class ApproximateIndex:
    """Blocks by pod. Methods without a word about slices take constant time or that of one slice."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._slots = Slots()
        self._live = 0
        self._holders: dict[int, int] = {}
        self._orders: dict[str, OrderedDict[int, None]] = {}
        self._capacity: dict[str, int] = {}
        self._retired: deque[tuple[int, OrderedDict[int, None]]] = deque()
        self.entries = 0
        """(pod, block) pairs held, those of forgotten pods included until they are swept."""

    @property
    def bytes_estimate(self) -> int:
        """Memory used, estimated from the number of entries."""
        return self.entries * ENTRY_BYTES

    @property
    def keys(self) -> int:
        """Distinct blocks."""
        return len(self._holders)

    def blocks_of(self, pod: str) -> int:
        """Return how many blocks the pod is believed to hold."""
        return len(self._orders.get(pod, ()))

    def resize(self, pod: str, blocks: int | None) -> None:
        """Set a pod's capacity (None: unknown); what is too much leaves with the next records."""
        self._capacity[pod] = DEFAULT_POD_BLOCKS if blocks is None else max(1, blocks)

    def match(self, hashes: Iterable[int]) -> dict[str, int]:
        """Return for each pod that holds the first block how many leading blocks it holds without a gap."""
        held = self._holders.get
        alive = self._live
        matched: dict[str, int] = {}
        depth = 0
        for key in hashes:
            still = alive & held(key, 0)
            if still != alive:
                if depth:
                    for pod in self._slots.names(alive ^ still):
                        matched[pod] = depth
                alive = still
                if not alive:
                    return matched
            depth += 1
        if depth:
            for pod in self._slots.names(alive):
                matched[pod] = depth
        return matched

    def record(self, pod: str, hashes: Sequence[int]) -> Sliced[None]:
        """The pod was sent a prompt of these blocks, in slices.

        The tail is recorded first, so that it is forgotten first: a block is reached only through those before it.
        """
        for stop in range(len(hashes), 0, -SLICE_BLOCKS):
            self._record_slice(pod, hashes[max(0, stop - SLICE_BLOCKS) : stop])
            yield

    def forget(self, pod: str) -> None:
        """The pod is gone or holds nothing any more: nothing of it matches from now on; `sweep` frees the memory."""
        bit = self._slots.retire(pod)
        self._capacity.pop(pod, None)
        if bit:
            self._live &= ~bit
            self._retired.append((bit, self._orders.pop(pod)))

    def sweep(self) -> bool:
        """Free at most one slice of what forgotten pods held; return whether more is left."""
        if self._retired:
            bit, order = self._retired[0]
            for _ in range(min(len(order), SLICE_BLOCKS)):
                self._drop_oldest(bit, order)
            if not order:
                self._slots.release(bit)
                self._retired.popleft()
        return bool(self._retired)

    def _record_slice(self, pod: str, hashes: Sequence[int]) -> None:
        bit = self._slots.take(pod)
        order = self._orders.get(pod)
        if order is None:
            order = self._orders[pod] = OrderedDict()
            self._live |= bit
        capacity = self._capacity.get(pod, DEFAULT_POD_BLOCKS)
        holders = self._holders
        refresh = order.move_to_end
        victim: tuple[int, OrderedDict[int, None]] = (0, OrderedDict())
        for key in reversed(hashes):
            if key in order:
                refresh(key)
                continue
            # Two for one where a cache has shrunk: it converges without a long pause.
            for _ in range(min(2, len(order) - capacity + 1)):
                self._drop_oldest(bit, order)
            if self.entries >= self._max_blocks:
                if not victim[1]:
                    victim = self._victim(bit, order)
                self._drop_oldest(*victim)
            order[key] = None
            holders[key] = holders.get(key, 0) | bit
            self.entries += 1

    def _victim(self, bit: int, order: OrderedDict[int, None]) -> tuple[int, OrderedDict[int, None]]:
        """Choose whose oldest blocks make room: a forgotten pod, else this one if it has its share, else the largest."""
        for forgotten in self._retired:
            if forgotten[1]:
                return forgotten
        if len(order) * len(self._orders) >= self._max_blocks:
            return bit, order
        pod = max(self._orders, key=self.blocks_of)
        return self._slots.bit(pod), self._orders[pod]

    def _drop_oldest(self, bit: int, order: OrderedDict[int, None]) -> None:
        key, _ = order.popitem(last=False)
        left = self._holders[key] & ~bit
        if left:
            self._holders[key] = left
        else:
            del self._holders[key]
        self.entries -= 1
