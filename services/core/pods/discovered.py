"""What a source of endpoints says of one of them, and what a newly declared set changed.

Values only. Files, DNS and the orchestrator fill them (`adapters`); the table (`table`) judges them together
with what scrapes say. Apart from the table because every source speaks this and none knows the table.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.core.units import Duration

MAX_PORTS = 8
"""Target ports of one InferencePool (its API's own bound): one data-parallel rank listens on each."""


class StartPhase(enum.Enum):
    """How far a pod's start has come, in this order. READY is the orchestrator's word for its end."""

    SCHEDULED = "scheduled"
    PULLING = "pulling"
    LOADING = "loading weights"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class DiscoveredEndpoint:
    """One pod as its source declares it.

    `address` is a host name or IP address without brackets, empty while none is assigned. `engine` is empty
    where the pool's holds. `ready` and `phase` are None where the source cannot know. `phase_age` is how long
    the phase had lasted when this was read. `terminating` pods take no new request, whatever `ready` says.
    """

    name: str
    address: str
    ports: tuple[int, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""
    zone: str = ""
    draining: bool = False
    terminating: bool = False
    ready: bool | None = None
    phase: StartPhase | None = None
    phase_age: Duration = field(default=Duration(0), compare=False)
    capacity_requests: int | None = None
    capacity_tokens_per_s: float | None = None

    def ranks(self) -> tuple[tuple[str, str], ...]:
        """Return (candidate id, `host:port`) of each data-parallel rank; one port keeps the pod's own name."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        if len(self.ports) == 1:
            return ((self.name, f"{host}:{self.ports[0]}" if host else ""),)
        return tuple(
            (f"{self.name}-rank-{rank}", f"{host}:{port}" if host else "")
            for rank, port in enumerate(self.ports)
        )

    def declared(self) -> dict[str, object]:
        """Return what the pod's row in the table takes over, by the names of its fields."""
        return {
            "labels": self.labels,
            "engine": self.engine,
            "zone": self.zone,
            "draining": self.draining,
            "terminating": self.terminating,
            "declared_ready": self.ready,
            "declared_requests": self.capacity_requests,
            "declared_tokens_per_s": self.capacity_tokens_per_s,
        }


@dataclass(frozen=True, slots=True)
class PodAdded:
    """A pod is declared that was not; `address` is empty while it has none."""

    pod: str
    address: str


@dataclass(frozen=True, slots=True)
class PodRemoved:
    """A pod is declared no more. Its requests go on; nobody picks it again."""

    pod: str


@dataclass(frozen=True, slots=True)
class PodChanged:
    """A pod's declaration changed in these fields. A changed address is another server under the same name."""

    pod: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodContested:
    """`pool` declares a pod that `holder` already has: one pod serves one pool, and the first keeps it."""

    pod: str
    pool: str
    holder: str


MembershipEffect = PodAdded | PodRemoved | PodChanged | PodContested
