"""Histograms as plain numbers: bounds, a count per bucket, a sum.

Observing is a bisection and two additions, no lock and no label look-up, so that it can stand on the request
path. Rendering is `prometheus`. Bounds are part of a metric's meaning and are named here.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

LATENCY_SECONDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0),
    *(15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0, 420.0, 600.0, 900.0, 1200.0),
    *(1800.0, 2700.0, 3600.0),
)
"""From one round trip to the longest request: the bounds that other pickers use, so that panels line up."""
TOKEN_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0, 2.0)
TOKENS: Final = tuple(float(1 << power) for power in range(21))
BYTES: Final = tuple(float(64 << power) for power in range(0, 23, 2))
RATIO: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Histogram:
    """Counts per bucket. `bounds` are inclusive upper bounds, ascending; one more bucket takes the rest."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[int]:
        """Return how many values were counted up to each bound, the infinite one last."""
        return list(accumulate(self.counts))
