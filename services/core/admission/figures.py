"""What flow control shows of itself at one moment: plain values under the field's names.

Read when somebody asks for metrics, never on the way of a request. Which metric each becomes is the shell's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.core.admission.lanes import BandRow, Lane, PoolRow, Usage
from services.core.admission.settings import FlowControlSettings


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """What waits of one flow at one priority of one pool."""

    flow: str
    priority: int
    pool: str
    queue_size: int
    queue_bytes: int


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """One priority of one pool: what became of its requests, cumulative, keyed by the field's outcome words."""

    pool: str
    priority: int
    outcomes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class BandFigures:
    """One band: shares (0..1) of its bounds on requests and bytes that are used."""

    priority: int
    capacity_utilization_requests: float
    capacity_utilization_bytes: float


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """Revocations of one pool: cumulative counts, those not confirmed yet, and how many are wanted now."""

    pool: str
    revocations_issued: int
    revocations_confirmed: int
    revocations_unconfirmed: int
    pending_reclaim: int
    reclaim_target: int


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """Everything that flow control shows, at one moment. Global shares are 0 where no bound is set."""

    queues: tuple[QueueFigures, ...]
    lanes: tuple[LaneFigures, ...]
    bands: tuple[BandFigures, ...]
    pools: tuple[PoolFigures, ...]
    global_capacity_utilization_requests: float
    global_capacity_utilization_bytes: float


def figures(
    settings: FlowControlSettings, pools: Mapping[str, PoolRow], bands: Mapping[int, BandRow], usage: Usage
) -> FlowFigures:
    """Return what metrics show of these rows."""
    lanes = [
        LaneFigures(name, priority, tuple(_outcomes(lane)))
        for name, pool in pools.items()
        for priority, lane in pool.order
    ]
    return FlowFigures(
        tuple(row for name, pool in pools.items() for row in _queues(name, pool)),
        tuple(lanes),
        tuple(_band(priority, band) for priority, band in sorted(bands.items())),
        tuple(_pool(settings, name, pool) for name, pool in pools.items()),
        _share(usage.requests, settings.max_requests),
        _share(usage.size_bytes, settings.max_bytes),
    )


def _queues(name: str, pool: PoolRow) -> Iterable[QueueFigures]:
    sizes: dict[tuple[int, str], Usage] = {}
    for ticket in pool.waiting.values():
        sizes.setdefault((ticket.priority, ticket.flow), Usage()).add(ticket)
    for (priority, flow), used in sorted(sizes.items()):
        yield QueueFigures(flow, priority, name, used.requests, used.size_bytes)


def _band(priority: int, band: BandRow) -> BandFigures:
    return BandFigures(
        priority,
        _share(band.usage.requests, band.settings.max_requests),
        _share(band.usage.size_bytes, band.settings.max_bytes),
    )


def _pool(settings: FlowControlSettings, name: str, pool: PoolRow) -> PoolFigures:
    book = pool.revocations
    wanted = pool.waits_at_or_above(0) if settings.enable_eviction else 0
    return PoolFigures(name, book.issued, book.confirmed, book.unconfirmed, book.pending, wanted)


def _share(used: int, bound: int | None) -> float:
    return used / bound if bound is not None else 0.0


def _outcomes(lane: Lane) -> Iterable[tuple[str, int]]:
    yield "Dispatched", lane.dispatched
    for cause, count in sorted(lane.dropped.items(), key=lambda item: item[0].value):
        yield cause.value, count
