"""Draws: a request id hashed to points, and integer tables that a point selects from.

No randomness: the same id gives the same points in every process and on every machine,
so a decision can be replayed. Integers throughout, so that drawing without replacement is
exact. Apart from the plan, which decides what stands in a table.
"""

from bisect import bisect_right, insort
from collections.abc import Collection, Sequence
from hashlib import blake2b
from itertools import accumulate
from struct import Struct

WORD_BITS = 64
WORDS = 8
RESOLUTION = 1 << 32
"""Weights of one table are scaled to about this sum: finer than any share that traffic can show."""

_UNPACK = Struct(f"<{WORDS}Q").unpack


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

    __slots__ = ("_ends", "_starts", "_weights", "ids", "index", "total")

    def __init__(self, entries: Sequence[tuple[str, float]]) -> None:
        weighted = [(name, weight) for name, weight in entries if weight > 0]
        whole = sum(weight for _, weight in weighted)
        self.ids = tuple(name for name, _ in weighted)
        self.index = {name: place for place, name in enumerate(self.ids)}
        self._weights = [max(1, round(weight / whole * RESOLUTION)) for _, weight in weighted]
        self._ends = list(accumulate(self._weights))
        self._starts = [0, *self._ends[:-1]]
        self.total = sum(self._weights)

    def share(self, name: str) -> float:
        """Return the share (0..1) of a candidate; 0 for one that is not in the table."""
        place = self.index.get(name)
        return 0.0 if place is None else self._weights[place] / self.total

    def draw(self, word: int) -> str:
        """Return the candidate at point `word`; the table must not be empty."""
        return self.ids[bisect_right(self._ends, (word * self.total) >> WORD_BITS)]

    def draw_more(self, points: Sequence[int], taken: list[str], without: Collection[str] = ()) -> None:
        """Append to `taken` one candidate per point, by their shares among those left.

        Neither a candidate already in `taken` nor one in `without` is drawn; it stops when none is left.
        """
        find, weights, starts, ends = self.index.get, self._weights, self._starts, self._ends
        left = self.total
        gone: list[int] = []
        for name in {*taken, *without} if without else taken:
            place = find(name)
            if place is not None:
                gone.append(place)
                left -= weights[place]
        gone.sort()
        for word in points:
            if left <= 0:
                return
            # A point among those left is moved past every gone entry that begins at or before it.
            point = (word * left) >> WORD_BITS
            for place in gone:
                if point < starts[place]:
                    break
                point += weights[place]
            place = bisect_right(ends, point)
            taken.append(self.ids[place])
            left -= weights[place]
            insort(gone, place)
