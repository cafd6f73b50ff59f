"""The paged KV cache of one engine: blocks, reference counts, prefix reuse, least-recently-used eviction.

Counts blocks; knows nothing of requests, steps or time. Apart from the scheduler because capacity and
reuse have laws of their own: blocks in use never exceed capacity, and only blocks nobody uses are evicted.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from services.simulator.events import AllBlocksCleared, BlocksRemoved, KvChange


class KvCache:
    """Blocks of one GPU: private ones (one owner), and full blocks shared by content hash.

    A shared block whose last user left stays readable until its place is needed (vLLM's automatic prefix
    caching); it counts as free in `usage`, as it does there. With `prefix_caching` off nothing is shared.
    What is evicted or cleared is written to `journal` if there is one; what is stored, its owner writes.
    """

    def __init__(
        self, capacity_blocks: int, *, prefix_caching: bool = True, journal: list[KvChange] | None = None
    ) -> None:
        self.capacity_blocks = capacity_blocks
        self.journal = journal
        self._prefix_caching = prefix_caching
        self._private = 0
        self._users: dict[bytes, int] = {}
        self._idle: OrderedDict[bytes, None] = OrderedDict()

    @property
    def used_blocks(self) -> int:
        """Blocks somebody holds."""
        return self._private + len(self._users)

    @property
    def available_blocks(self) -> int:
        """Blocks that can be taken now: empty ones and idle cached ones."""
        return self.capacity_blocks - self._private - len(self._users)

    @property
    def idle_blocks(self) -> int:
        """Cached blocks nobody holds."""
        return len(self._idle)

    @property
    def usage(self) -> float:
        """Share of blocks in use, 0 to 1."""
        return self.used_blocks / self.capacity_blocks

    def match(self, hashes: Sequence[bytes], limit: int) -> int:
        """Return how many leading blocks of `hashes`, at most `limit`, are in the cache. Changes nothing."""
        matched = 0
        for block_hash in hashes[:limit]:
            if block_hash not in self._users and block_hash not in self._idle:
                break
            matched += 1
        return matched

    def admit(self, shared: Sequence[bytes], new_blocks: int) -> bool:
        """Hold the cached blocks `shared` and take `new_blocks` private ones, or change nothing.

        `shared` must be cached (the result of `match`).
        """
        revived = sum(1 for block_hash in shared if block_hash in self._idle)
        if revived + new_blocks > self.available_blocks:
            return False
        for block_hash in shared:
            if block_hash in self._users:
                self._users[block_hash] += 1
            else:
                del self._idle[block_hash]
                self._users[block_hash] = 1
        return self.take(new_blocks)

    def take(self, blocks: int) -> bool:
        """Take private blocks, evicting idle cached ones as needed, or change nothing."""
        if blocks > self.available_blocks:
            return False
        self._private += blocks
        overflow = self.used_blocks + len(self._idle) - self.capacity_blocks
        if overflow > 0:
            evicted = tuple(self._idle.popitem(last=False)[0] for _ in range(overflow))
            if self.journal is not None:
                self.journal.append(BlocksRemoved(evicted))
        return True

    def clear(self) -> bool:
        """Forget every cached block; False, and nothing forgotten, while somebody holds blocks."""
        if self.used_blocks:
            return False
        self._idle.clear()
        if self.journal is not None:
            self.journal.append(AllBlocksCleared())
        return True

    def share(self, block_hash: bytes) -> bool:
        """Turn one private block, now full of tokens, into a cached one that its owner holds.

        False when it stays private: caching is off, or the same content is cached already.
        """
        if not self._prefix_caching or block_hash in self._users or block_hash in self._idle:
            return False
        self._private -= 1
        self._users[block_hash] = 1
        return True

    def release(self, shared: Iterable[bytes], private: int) -> None:
        """Let go of blocks: private ones become empty, shared ones idle when this was their last user.

        `shared` is in prompt order; the tail becomes the first to be evicted, since a block is only
        reachable through those before it.
        """
        self._private -= private
        for block_hash in reversed(tuple(shared)):
            users = self._users[block_hash] - 1
            if users:
                self._users[block_hash] = users
            else:
                del self._users[block_hash]
                self._idle[block_hash] = None
