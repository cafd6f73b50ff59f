"""Usage limits: up to which saturation of a pool each priority may use it.

A ceiling is compared with the pool's saturation at every dispatch; a band at or above its ceiling waits.
Ceilings never rise from a higher to a lower priority, so a blocked band never has an open one below it. Apart
from the detectors, which say how saturated a pool is and know no priority.
"""

import enum
from dataclasses import dataclass

UNLIMITED_PERIOD = 1
"""Every turn is the band's own: at such a saturation the soft ceiling does not bind."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One priority among all that are known: `rank` counts from the highest (0) of `count`."""

    priority: int
    rank: int
    count: int
    highest: int
    lowest: int


@dataclass(frozen=True, slots=True)
class StaticLimit:
    """The same ceiling for everyone (the field's static-usage-limit-policy)."""

    threshold: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a ceiling that admits nothing."""
        if self.threshold <= 0:
            raise ValueError("static-usage-limit-policy: threshold must be above 0")

    def ceiling(self, _rung: Rung, _saturation: float) -> float:
        """Return the threshold."""
        return self.threshold

    def period(self, _saturation: float) -> int | None:
        """Return None: what is over the ceiling waits."""
        return None


class Domain(enum.Enum):
    """What a holdback is linear over: the place among the priorities, or their values."""

    RANK = "rank"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class PriorityHoldback:
    """Room kept for higher priorities: ceilings fall linearly from `max_ceiling` to `min_ceiling`."""

    min_ceiling: float
    max_ceiling: float = 1.0
    domain: Domain = Domain.RANK

    def __post_init__(self) -> None:
        """Refuse ceilings out of order."""
        if not 0 < self.min_ceiling <= self.max_ceiling:
            raise ValueError("priority-holdback-policy: needs 0 < minCeiling <= maxCeiling")

    def ceiling(self, rung: Rung, _saturation: float) -> float:
        """Return max - share x (max - min), where share runs from 0 (highest) to 1 (lowest)."""
        if rung.count == 1:
            return self.max_ceiling
        if self.domain is Domain.RANK:
            share = rung.rank / (rung.count - 1)
        else:
            share = (rung.highest - rung.priority) / (rung.highest - rung.lowest)
        return self.max_ceiling - share * (self.max_ceiling - self.min_ceiling)

    def period(self, _saturation: float) -> int | None:
        """Return None: what is over the ceiling waits."""
        return None


@dataclass(frozen=True, slots=True)
class SoftReflectiveCeiling:
    """Ceilings that fall as saturation rises, and let a band over its own through now and then.

    ceiling = 1 - rank x saturation / (count - 1); over it, one turn in round(s / (1 - s)) is taken.
    """

    def ceiling(self, rung: Rung, saturation: float) -> float:
        """Return the ceiling, 1 for the highest priority."""
        return 1.0 if rung.count == 1 else 1.0 - rung.rank * saturation / (rung.count - 1)

    def period(self, saturation: float) -> int | None:
        """Return of how many turns one is taken over the ceiling; None from saturation 1 on: none."""
        return None if saturation >= 1 else max(UNLIMITED_PERIOD, round(saturation / (1 - saturation)))


UsageLimit = StaticLimit | PriorityHoldback | SoftReflectiveCeiling
