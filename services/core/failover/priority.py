"""Priority load and panic: how traffic spreads over priority levels as their health falls.

Pure arithmetic over health percentages; what a level is, and in which units its health
was measured, is the caller's business (tier 2 measures in capacity, never in hosts).
Source: Envoy documentation, "Priority levels" and "Panic threshold"; its tables are the
golden vectors of the test.
"""

from collections.abc import Sequence

FULL = 100
"""Loads and healths are whole percentages, as Envoy's are; loads of one table sum to this."""


def level_health(available: float, total: float, overprovisioning: float) -> int:
    """Return a level's health: min(100, overprovisioning x 100 x available / total), rounded.

    A level without anything in it has health 0.
    """
    if total <= 0:
        return 0
    return min(FULL, round(overprovisioning * FULL * available / total))


def priority_loads(healths: Sequence[int]) -> list[int]:
    """Return the percentage of traffic of each level, highest priority first; it sums to 100.

    All zeros when no level has any health. What rounding leaves over goes to the first level that
    carries load, as in Envoy.
    """
    total = min(FULL, sum(healths))
    loads: list[int] = []
    left = FULL if total else 0
    for health in healths:
        load = min(left, round(health * FULL / total)) if total else 0
        loads.append(load)
        left -= load
    if left:
        first = next(level for level, load in enumerate(loads) if load)
        loads[first] += left
    return loads


def levels_in_panic(healths: Sequence[int], shares: Sequence[float], threshold: float) -> list[bool]:
    """Return for each level whether its members' health is to be ignored.

    `shares` are available / total (0..1) per level, `threshold` the share below which a level panics
    (0: never). A level panics only while all levels together are not healthy enough for all traffic.
    """
    if sum(healths) >= FULL:
        return [False] * len(healths)
    return [share < threshold for share in shares]
