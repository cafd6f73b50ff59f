"""Tokens per second and prefix hit ratio of the last minute, from a server's ever-growing totals.

The difference of two readings is what happened between them. A total that fell means a restart of the server
or of one of its ranks: what was counted in between is not known, so the window starts anew from there and no
burst that never happened is reported. Engine names, scraping and reports are elsewhere; apart from `ttft`
because histograms carry on over a restart, while rates must not.
"""

from collections import deque
from dataclasses import dataclass

from services.core.pods.reading import TokenTotals
from services.core.units import NS_PER_S, Instant, seconds

WINDOW = seconds(60)
"""Long enough to smooth a batch, short enough to show a change within a minute."""
KEEP_EVERY = seconds(1)
"""One retained reading a second bounds a pod's memory to some sixty tuples, whatever the scrape interval."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens per second over the window, and the share (0..1) of what was looked up that the prefix cache held.

    None is unknown: not published, or no two readings to compare; the ratio also while nothing was looked up.
    """

    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None
    prefix_hit_ratio: float | None = None


class RateWindow:
    """Turns one pod's totals into rates over at most `WINDOW`."""

    __slots__ = ("_kept", "_last")

    def __init__(self) -> None:
        self._kept: deque[tuple[Instant, TokenTotals]] = deque()
        self._last: tuple[Instant, TokenTotals] | None = None

    def add(self, totals: TokenTotals, now: Instant) -> None:
        """Take in a reading made at `now`. The first one is only the line from which to count."""
        if self._last is not None and _fell(self._last[1], totals):
            self._kept.clear()
        self._last = (now, totals)
        if not self._kept or now - self._kept[-1][0] >= KEEP_EVERY:
            self._kept.append(self._last)
        while len(self._kept) > 1 and now - self._kept[1][0] >= WINDOW:
            self._kept.popleft()

    def recent(self) -> Rates:
        """Return the rates between the oldest retained reading and the last one."""
        if self._last is None:
            return Rates()
        since, start = self._kept[0]
        now, end = self._last
        if now <= since:
            return Rates()
        passed_s = (now - since) / NS_PER_S
        queries = _grown(start.prefix_queries, end.prefix_queries)
        hits = _grown(start.prefix_hits, end.prefix_hits)
        prompt = _grown(start.prompt, end.prompt)
        generation = _grown(start.generation, end.generation)
        return Rates(
            None if prompt is None else prompt / passed_s,
            None if generation is None else generation / passed_s,
            min(hits / queries, 1.0) if queries and hits is not None else None,
        )


def _grown(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


def _fell(before: TokenTotals, after: TokenTotals) -> bool:
    """Whether any total fell, appeared or went: either way the two readings cannot be compared."""
    pairs = (
        (before.prompt, after.prompt),
        (before.generation, after.generation),
        (before.prefix_queries, after.prefix_queries),
        (before.prefix_hits, after.prefix_hits),
    )
    return any(
        (old is None) != (new is None) or (old is not None and new is not None and new < old)
        for old, new in pairs
    )
