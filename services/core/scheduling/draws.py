"""Draws: a request id hashed to points, and integer tables that a point selects from.

No randomness: the same id gives the same points in every process and on every machine,
so a decision can be replayed. Integers throughout, so that drawing without replacement is
exact. Apart from the plan, which decides what stands in a table.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import Struct

WORD_BITS = 64
WORDS = 8
RESOLUTION = 1 << 32
"""Weights of one table are scaled to about this sum: finer than any share that traffic can show."""

_UNPACK = Struct("<8Q").unpack


def words(request_id: str) -> tuple[int, ...]:
    """Return eight independent 64-bit points of an id.

    BLAKE2b, because its words are independent of each other and even for ids that differ in one bit
    (UUIDv7 ids of one millisecond share most of theirs); CRC-32 is linear and gives one short word.
    One call costs under a microsecond and yields all points of a decision.
    """
    return _UNPACK(blake2b(request_id.encode()).digest())


def fraction(word: int) -> float:
    """Return a point as a number in [0, 1)."""
    return (word >> 11) / (1 << (WORD_BITS - 11))


class DrawTable:
    """Candidates with shares. Entries without a positive weight are left out; ids are distinct."""

    __slots__ = ("_ends", "_weights", "ids", "index", "total")

    def __init__(self, entries: Sequence[tuple[str, float]]) -> None:
        weighted = [(name, weight) for name, weight in entries if weight > 0]
        whole = sum(weight for _, weight in weighted)
        self.ids = tuple(name for name, _ in weighted)
        self.index = {name: place for place, name in enumerate(self.ids)}
        self._weights = [max(1, round(weight / whole * RESOLUTION)) for _, weight in weighted]
        self._ends: list[int] = []
        end = 0
        for weight in self._weights:
            end += weight
            self._ends.append(end)
        self.total = end

    def share(self, name: str) -> float:
        """Return the share (0..1) of a candidate; 0 for one that is not in the table."""
        place = self.index.get(name)
        return 0.0 if place is None else self._weights[place] / self.total

    def draw(self, word: int) -> str:
        """Return the candidate at point `word`; the table must not be empty."""
        return self.ids[bisect_right(self._ends, (word * self.total) >> WORD_BITS)]

    def draw_without(self, word: int, without: Iterable[str]) -> str | None:
        """Return the candidate at `word` among those not in `without`, by their shares; None if none is left."""
        index = self.index
        gone = sorted([index[name] for name in without if name in index])
        weights = self._weights
        left = self.total
        for place in gone:
            left -= weights[place]
        if left <= 0:
            return None
        point = (word * left) >> WORD_BITS
        for place in gone:
            if point < self._ends[place] - weights[place]:
                break
            point += weights[place]
        return self.ids[bisect_right(self._ends, point)]
