"""How late a report is, without comparing clocks of two hosts.

The difference (arrival - observed) mixes clock offset and transport; its smallest value in
the last ten minutes of one publisher epoch stands for offset plus the quickest transport,
and what exceeds it is lag. Apart from freshness, which only asks whether lag is too large.
"""

from dataclasses import dataclass

from services.core.units import NS_PER_MS, NS_PER_S, Duration, Instant, WallMs

BUCKET_NS = 60 * NS_PER_S
BUCKETS = 10
"""The window of ten minutes slides in steps of one minute, so that a record stays a few numbers."""


@dataclass(frozen=True, slots=True)
class LagWindow:
    """Smallest differences of one epoch: `(minute, difference_ns)`, oldest first, at most one per minute."""

    epoch: int = -1
    smallest: tuple[tuple[int, int], ...] = ()


NO_LAG_KNOWN = LagWindow()


def measure(
    window: LagWindow, epoch: int, arrived_at: Instant, observed_at_ms: WallMs
) -> tuple[LagWindow, Duration]:
    """Return the window with this report in it, and the report's lag. A new epoch starts a new window."""
    difference = arrived_at - observed_at_ms * NS_PER_MS
    minute = arrived_at // BUCKET_NS
    kept = window.smallest if epoch == window.epoch else ()
    if kept and kept[0][0] <= minute - BUCKETS:
        kept = tuple(entry for entry in kept if entry[0] > minute - BUCKETS)
    if not kept or kept[-1][0] != minute:
        kept = (*kept, (minute, difference))
    elif difference < kept[-1][1]:
        kept = (*kept[:-1], (minute, difference))
    smallest = min(entry[1] for entry in kept)
    return LagWindow(epoch, kept), Duration(difference - smallest)


def estimate(window: LagWindow, epoch: int, arrived_at: Instant, observed_at_ms: WallMs) -> Duration | None:
    """Return the lag of a report that is not live, from what live ones showed; None when they showed nothing."""
    if epoch != window.epoch:
        return None
    smallest = min(entry[1] for entry in window.smallest)
    return Duration(max(0, arrived_at - observed_at_ms * NS_PER_MS - smallest))
