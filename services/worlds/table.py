"""The fleet as a person at a terminal sees it: rows, a rich table, one plain line.

Rows say what a router believes; who makes them (a world, `gir fleet`) reads it there. Apart from them so
that a client of one router loads none of the services.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.box import SIMPLE_HEAD
from rich.table import Table

from services.core.fleet import HealthState

_STYLES = {
    HealthState.HEALTHY: "green",
    HealthState.DEGRADED: "yellow",
    HealthState.STALE: "yellow",
    HealthState.PROBATION: "cyan",
    HealthState.UNHEALTHY: "red",
    HealthState.UNKNOWN: "dim",
}


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One cluster as a router knows it; None where it does not. `notes` are flags beside the state."""

    cluster: str
    region: str
    jurisdiction: str
    state: HealthState
    notes: tuple[str, ...]
    ready: int
    total: int
    running: int | None
    waiting: int | None
    silence_ms: int | None
    ramp: float


@dataclass(frozen=True, slots=True)
class DoorRow:
    """One region's door: requests it has taken and those in flight."""

    region: str
    port: int
    requests: int
    in_flight: int


class PoolLoad(Protocol):
    """What a row needs of a pool report, as core value or as message."""

    @property
    def pool(self) -> str: ...  # noqa: D102 -- the class docstring says it

    @property
    def ready_endpoints(self) -> int: ...  # noqa: D102

    @property
    def total_endpoints(self) -> int: ...  # noqa: D102


def endpoints(pools: Iterable[PoolLoad]) -> tuple[int, int]:
    """Return (ready, total) endpoints; a pool that reports several names of one model counts once."""
    by_name = {pool.pool: pool for pool in pools}
    return (
        sum(pool.ready_endpoints for pool in by_name.values()),
        sum(pool.total_endpoints for pool in by_name.values()),
    )


def known_sum(values: Iterable[int | None]) -> int | None:
    """Return the sum, None as soon as one is unknown or there is none."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if found and len(known) == len(found) else None


def flags(*, draining: bool, ejected: bool, mismatch: bool) -> tuple[str, ...]:
    """Return the words for what holds beside the state."""
    named = (("draining", draining), ("ejected", ejected), ("place disputed", mismatch))
    return tuple(word for word, holds in named if holds)


def rich_table(clusters: Sequence[ClusterRow], caption: str) -> Table:
    """Return the table."""
    # Lean, so that it fits a terminal of 80 columns: a cut name is no name.
    table = Table(
        caption=caption, caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    for column in ("cluster", "region", "jurisdiction", "state"):
        table.add_column(column, no_wrap=True)
    for column in ("ready", "running", "waiting", "silent ms", "ramp"):
        table.add_column(column, justify="right")
    for row in clusters:
        style = _STYLES[row.state]
        state = " ".join((f"[{style}]{row.state.value}[/{style}]", *row.notes))
        table.add_row(
            row.cluster,
            row.region,
            row.jurisdiction,
            state,
            f"{row.ready}/{row.total}",
            _count(row.running),
            _count(row.waiting),
            _count(row.silence_ms),
            f"{row.ramp:.0%}",
        )
    return table


def doors_caption(doors: Sequence[DoorRow]) -> str:
    """Return what the doors have taken, as the table's caption."""
    return "requests: " + ", ".join(
        f"{door.region} {door.requests} ({door.in_flight} in flight)" for door in doors
    )


def plain_line(clusters: Sequence[ClusterRow], doors: Sequence[DoorRow]) -> str:
    """Return the same in one line, for logs and pipes."""
    states = " ".join(f"{row.cluster}={row.state.value}({row.ready}/{row.total})" for row in clusters)
    requests = " ".join(f"{door.region}:{door.port}={door.requests}" for door in doors)
    return f"clusters {states} requests {requests}"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)
