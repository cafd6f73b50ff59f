"""How fast a queue drains, and what to tell a caller who is sent away: the only source of Retry-After.

A rate is dispatches per second over a sliding window. A caller who is refused is told when the queue, and those
who were told to come back before it, will have drained. Without counting the promises a hundred callers refused
in one second would all be told the same second, and ninety-nine of them refused again.
"""

from services.core.units import NS_PER_S, Duration, Instant, ms, seconds

SLICE = ms(500)
SLICES = 20
"""Ten seconds: long enough for a pool that ends a request a second, short enough to see a pod come or go."""
RETRY_AFTER_MIN = seconds(1)
"""The header has whole seconds, and a client that comes back sooner finds what it left."""
RETRY_AFTER_MAX = seconds(60)
"""A measurement ten seconds long says nothing about times beyond a minute."""
_PROMISE_SLICE = NS_PER_S
_PROMISE_SLICES = RETRY_AFTER_MAX // _PROMISE_SLICE + 1


class DrainRate:
    """Counts dispatches. `add` costs two comparisons and an addition while the slice does not change."""

    __slots__ = ("_counts", "_slice", "_started", "_total")

    def __init__(self, now: Instant) -> None:
        self._counts = [0] * SLICES
        self._slice = now // SLICE
        self._started = now
        self._total = 0

    def add(self, now: Instant) -> None:
        """One request was dispatched."""
        if now // SLICE != self._slice:
            self._turn(now)
        self._counts[self._slice % SLICES] += 1
        self._total += 1

    def per_second(self, now: Instant) -> float:
        """Return the rate; 0 when the window holds no dispatch.

        Before a window is full, what has passed of it counts; never under one second, so that the first dispatch
        of all does not look like thousands a second.
        """
        self._turn(now)
        if not self._total:
            return 0.0
        since_slice = now - (self._slice - SLICES + 1) * SLICE
        return self._total * NS_PER_S / max(NS_PER_S, min(since_slice, now - self._started))

    def _turn(self, now: Instant) -> None:
        """Forget the slices that have left the window; a `now` before the latest changes nothing."""
        current = now // SLICE
        for gone in range(max(self._slice, current - SLICES) + 1, current + 1):
            self._total -= self._counts[gone % SLICES]
            self._counts[gone % SLICES] = 0
        self._slice = max(self._slice, current)


class Promises:
    """How many callers were told to come back and are still away, by the second they are due."""

    __slots__ = ("_counts", "_second", "outstanding")

    def __init__(self, now: Instant) -> None:
        self._counts = [0] * _PROMISE_SLICES
        self._second = now // _PROMISE_SLICE
        self.outstanding = 0

    def turn(self, now: Instant) -> None:
        """Those who are due now are no longer away."""
        current = now // _PROMISE_SLICE
        for due in range(max(self._second, current - _PROMISE_SLICES) + 1, current + 1):
            self.outstanding -= self._counts[due % _PROMISE_SLICES]
            self._counts[due % _PROMISE_SLICES] = 0
        self._second = max(self._second, current)

    def add(self, now: Instant, retry_after: Duration) -> None:
        """Somebody was told to come back after `retry_after`, at most `RETRY_AFTER_MAX`."""
        self.turn(now)
        self._counts[(now + retry_after) // _PROMISE_SLICE % _PROMISE_SLICES] += 1
        self.outstanding += 1


def retry_after(ahead: int, per_second: float, promises: Promises, now: Instant) -> Duration:
    """Return when one who finds `ahead` requests before it may come back, and count the promise.

    Nothing drained within the window: the longest that may be said, because nothing shorter is known to be true.
    """
    promises.turn(now)
    if per_second > 0:
        wait = seconds((ahead + promises.outstanding + 1) / per_second)
        wait = min(max(wait, RETRY_AFTER_MIN), RETRY_AFTER_MAX)
    else:
        wait = RETRY_AFTER_MAX
    promises.add(now, wait)
    return wait
