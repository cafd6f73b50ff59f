"""Figures of `gir bench picker` and the arithmetic behind them: quantiles, slopes, and what a limit means.

Pure functions and values; nothing is measured here. Apart because every part of the benchmark states its
figures in one way, and because statistics are worth testing without a clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    `reference`: its limit, or what it is compared with in the same run (None: it stands alone). `limited`: the
    reference is a limit, which the value keeps by not exceeding it, or with `at_least` by not falling below it.
    """

    name: str
    value: float
    unit: str
    reference: float | None = None
    limited: bool = False
    at_least: bool = False

    @property
    def held(self) -> bool | None:
        """Whether the limit is kept; None without one. A value that is no number keeps no limit."""
        if not self.limited or self.reference is None:
            return None
        return self.value >= self.reference if self.at_least else self.value <= self.reference

    def document(self) -> dict[str, Any]:
        """Return the JSON object of every benchmark's figures, and `held` beside."""
        reference = self.reference
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "unit": self.unit,
            "reference": None if reference is None else round(reference, 4),
            "ratio": round(self.value / reference, 3) if reference else None,
            "held": self.held,
        }


def at_most(name: str, value: float, unit: str, limit: float) -> Figure:
    """Return a figure that must not exceed its limit."""
    return Figure(name, value, unit, limit, limited=True)


def at_least(name: str, value: float, unit: str, limit: float) -> Figure:
    """Return a figure that must not fall below its limit."""
    return Figure(name, value, unit, limit, limited=True, at_least=True)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile: the smallest value that `share` of all values do not exceed.

    Raises ValueError when there are none, or for a share outside (0, 1].
    """
    if not values or not 0 < share <= 1:
        raise ValueError("a quantile needs values and a share above 0 and up to 1")
    return sorted(values)[ceil(share * len(values)) - 1]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line through (x, y); 0 for fewer than two distinct x."""
    if not points:
        return 0.0
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def max_over_mean(counts: Sequence[float]) -> float:
    """Return the largest count over the mean of all, 1 when nothing was counted. Raises ValueError for no counts."""
    if not counts:
        raise ValueError("max over mean needs counts")
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0
