"""Time to first token of the last minute, from a server's ever-growing histogram.

A server publishes counts since its start. The difference of two readings is what happened between them; a
count that fell means the server restarted. Engine names and scraping are not here. Apart from the table
because it is arithmetic with its own laws: never negative, and a restart loses nothing already counted.
"""

from collections import deque
from collections.abc import Iterable

from services.core.pods.reading import BucketCounts
from services.core.units import Instant, seconds

WINDOW = seconds(60)
"""Long enough for a p95 of slow traffic, short enough to notice a change within a minute."""
KEEP_EVERY = seconds(1)
"""One retained reading a second bounds a pod's memory to some sixty tuples, whatever the scrape interval."""
MS_PER_S = 1000.0


class TtftWindow:
    """Turns cumulative readings of one pod into the counts of the last `WINDOW`."""

    __slots__ = ("_base", "_bounds", "_kept", "_last", "_total")

    def __init__(self) -> None:
        self._restart(())

    def _restart(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._base = (0.0,) * len(bounds)  # What earlier lives of the server had counted.
        self._last = self._base
        self._total = self._base
        self._kept: deque[tuple[Instant, tuple[float, ...]]] = deque()

    def add(self, reading: BucketCounts, now: Instant) -> None:
        """Take in a reading made at `now`. The first one is only the line from which to count."""
        if reading.bounds != self._bounds:
            self._restart(reading.bounds)
        elif any(new < old for new, old in zip(reading.counts, self._last, strict=True)):
            self._base = self._total
        self._last = reading.counts
        self._total = tuple(base + new for base, new in zip(self._base, reading.counts, strict=True))
        if not self._kept or now - self._kept[-1][0] >= KEEP_EVERY:
            self._kept.append((now, self._total))
        while len(self._kept) > 1 and now - self._kept[1][0] >= WINDOW:
            self._kept.popleft()

    def recent(self) -> BucketCounts | None:
        """Return the counts of the window; None before the first reading."""
        if not self._kept:
            return None
        start = self._kept[0][1]
        return BucketCounts(
            self._bounds, tuple(end - begin for end, begin in zip(self._total, start, strict=True))
        )


def merge(windows: Iterable[BucketCounts | None]) -> BucketCounts | None:
    """Return the sum of windows that share the first one's bounds; other shapes cannot be added and are left out."""
    known = [window for window in windows if window is not None]
    if not known:
        return None
    alike = [window.counts for window in known if window.bounds == known[0].bounds]
    return BucketCounts(known[0].bounds, tuple(map(sum, zip(*alike, strict=True))))


def quantile_ms(window: BucketCounts | None, share: float) -> float | None:
    """Return the `share` quantile in milliseconds, linear inside its bucket; None when nothing was counted.

    As Prometheus's `histogram_quantile`: beyond the last finite bound the answer is that bound.
    """
    if window is None or not window.counts or window.counts[-1] <= 0:
        return None
    rank = share * window.counts[-1]
    below = 0.0
    lower = 0.0
    for bound, count in zip(window.bounds, window.counts, strict=True):
        if count >= rank and count > below:
            if bound == float("inf"):
                return lower * MS_PER_S
            return (lower + (bound - lower) * (rank - below) / (count - below)) * MS_PER_S
        below, lower = max(below, count), bound
    return lower * MS_PER_S
