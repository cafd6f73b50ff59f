"""What is known about the fleet: reports from clusters, pods, and the snapshot routing reads.

Frozen values. A `HealthReport` is complete and self-contained and is ordered by
(epoch, sequence). `None` in a measured field means *unknown*, which is never 0. A
`Candidate` is what a scorer sees, a cluster in tier 2 or an endpoint in tier 1; it does
not know its tier. Apart from `health`, which judges these values.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.core.inference import ModelName
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.units import WallMs


class HealthState(enum.Enum):
    """States of a cluster; the table that moves between them is `health/states.py`."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    STALE = "stale"
    UNHEALTHY = "unhealthy"
    PROBATION = "probation"


class PodState(enum.Enum):
    """Phase of one model-server pod as its picker sees it."""

    READY = "READY"
    DEGRADED = "DEGRADED"
    STALE = "STALE"
    DRAINING = "DRAINING"
    EXCLUDED = "EXCLUDED"
    FAILED = "FAILED"
    WARMING = "WARMING"


@dataclass(frozen=True, slots=True, order=True)
class ReportId:
    """Order of reports of one cluster: publisher epoch, then sequence within it."""

    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class PoolReport:
    """Load of one (pool, model) in a cluster. Capacity counts concurrent requests and tokens/s of all endpoints.

    `saturation` is mean over ready pods of max(waiting/5, kv/0.8) and is not clamped.
    """

    pool: str
    model: ModelName
    ready_endpoints: int
    total_endpoints: int
    waiting: int | None = None
    running: int | None = None
    capacity_requests: int | None = None
    capacity_tokens_per_s: float | None = None
    kv_use_mean: float | None = None
    kv_use_max: float | None = None
    saturation: float | None = None
    ttft_ms_p50: float | None = None
    ttft_ms_p95: float | None = None
    resident_adapters: tuple[str, ...] = ()
    waiting_adapters: tuple[str, ...] = ()
    adapters_truncated: bool = False
    engine: str = ""
    tier: str = ""
    warming_endpoints: int = 0
    warming_eta_ms: int | None = None
    draining: bool = False


@dataclass(frozen=True, slots=True)
class HealthReport:
    """A cluster's complete account of itself, published every 0.5 s by its one publisher."""

    cluster: ClusterId
    id: ReportId
    region: Region
    jurisdiction: Jurisdiction
    observed_at_ms: WallMs
    pools: tuple[PoolReport, ...]
    draining: bool = False


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod as listed beside the report."""

    id: str
    address: str
    state: PodState
    engine: str
    version: str
    since_ms: WallMs
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PodsReport:
    """All pods of one (cluster, pool); ordered by its own (epoch, sequence)."""

    cluster: ClusterId
    pool: str
    id: ReportId
    pods: tuple[PodRecord, ...]
    pods_truncated: bool = False


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a scorer knows of a candidate's load. All but the counts may be unknown (`None`).

    `confidence` (0..1) is the influence the measured fields still deserve: 1 while reports
    arrive, falling with their age; at 0 the measured fields are `None`.
    """

    ready: int = 1
    total: int = 1
    waiting: float | None = None
    running: float | None = None
    capacity_requests: float | None = None
    kv_use: float | None = None
    saturation: float | None = None
    ttft_ms: float | None = None
    active_adapters: frozenset[str] = frozenset()
    waiting_adapters: frozenset[str] = frozenset()
    max_adapters: int | None = None
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place that may serve: a cluster (tier 2) or an endpoint (tier 1).

    `models` None means that it never told which models it serves; it is then asked only when nobody
    is known to serve the model. `ramp` scales weight after a return (0..1). `ejected` is passive
    ejection; `probing_ok` says whether active probes currently answer (it keeps a STALE cluster
    routable). `loads` holds the load per model where it differs from the whole (`load`); see
    `load_for`. `labels` are what an orchestrator or a declaration says of it.
    """

    id: str
    locality: Locality
    models: frozenset[ModelName] | None
    load: LoadReport
    state: HealthState = HealthState.HEALTHY
    draining: bool = False
    ejected: bool = False
    probing_ok: bool = True
    ramp: float = 1.0
    policy_mismatch: bool = False
    loads: Mapping[ModelName, LoadReport] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def load_for(self, model: ModelName) -> LoadReport:
        """Return the load of the pools that serve `model`, the whole candidate's where it is not told apart."""
        return self.loads.get(model, self.load)


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """All candidates at one moment, immutable; swapped whole. Versions say what it was built from."""

    version: int
    policy_revision: int
    here: Locality
    candidates: tuple[Candidate, ...]
