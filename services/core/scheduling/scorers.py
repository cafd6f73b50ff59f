"""Scorers: how well each of several candidates would do, from 0 to 1.

Formulas are those of the endpoint-picker field (llm-d router, queue-scorer,
running-requests-size-scorer, kv-cache-utilization-scorer). A signal that one candidate
lacks scores as the mean of the others. Loads are as scraped, plus what this process has
itself sent since; a scorer does not know its tier.
"""

from collections.abc import Callable, Mapping, Sequence

from services.core.fleet import LoadReport

Signal = float | None
InFlight = Mapping[str, int]
"""Requests this process sent to a candidate since its load was last scraped and that still run."""


def fewest(values: Sequence[Signal]) -> list[float]:
    """Return (max - v) / (max - min) for each value; 1 for all when all are equal."""
    known = [value for value in values if value is not None]
    if not known:
        return [1.0] * len(values)
    lowest, highest = min(known), max(known)
    if highest == lowest:
        return [1.0] * len(values)
    span = highest - lowest
    mean = (highest - sum(known) / len(known)) / span
    return [mean if value is None else (highest - value) / span for value in values]


def free_share(values: Sequence[Signal]) -> list[float]:
    """Return 1 - v for each use v (0..1, clamped)."""
    known = [value for value in values if value is not None]
    if not known:
        return [1.0] * len(values)
    scores = [None if value is None else 1.0 - min(1.0, max(0.0, value)) for value in values]
    mean = sum(score for score in scores if score is not None) / len(known)
    return [mean if score is None else score for score in scores]


def _with_own(value: Signal, own: int) -> Signal:
    return None if value is None else value + own


def queue(loads: Sequence[LoadReport], own: Sequence[int]) -> list[float]:
    """Score by waiting requests, fewest best."""
    return fewest([_with_own(load.waiting, sent) for load, sent in zip(loads, own, strict=True)])


def running(loads: Sequence[LoadReport], own: Sequence[int]) -> list[float]:
    """Score by running requests, fewest best."""
    return fewest([_with_own(load.running, sent) for load, sent in zip(loads, own, strict=True)])


def kv_use(loads: Sequence[LoadReport], _own: Sequence[int]) -> list[float]:
    """Score by the free share of the KV cache."""
    return free_share([load.kv_use for load in loads])


Scorer = Callable[[Sequence[LoadReport], Sequence[int]], list[float]]

SCORERS: Mapping[str, Scorer] = {"queue": queue, "running": running, "kv_use": kv_use}
"""Scorers by the name a profile and an explanation use."""
