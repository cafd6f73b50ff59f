"""Policy: what operators declare, as frozen values that are valid from birth.

One `PolicySnapshot` per revision holds the whole of it; every decision records the
revision it was made under. Files and messages become these values in `wire`; nothing
here parses text. Defaults are the numbers of the published semantics, each with a unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from services.core.inference import Grants, ModelName, TenantId, TrafficClass
from services.core.locality import ClusterId, Locality, check_jurisdiction, check_name
from services.core.units import Duration, WallMs, ms, seconds

MAX_ATTEMPTS_LIMIT = 10
"""More attempts than this per request is a configuration mistake, not resilience."""


def _require(held: bool, what: str, rule: str) -> None:
    if not held:
        raise ValueError(f"{what}: {rule}")


def _is_plain_origin(url: str) -> bool:
    """Whether every router can connect to `url`: one that cannot is refused here, before a hop is made of it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    rest = parts.path.removeprefix("/") or parts.query or parts.fragment or "@" in parts.netloc
    return parts.scheme == "http" and bool(parts.hostname) and port != 0 and not rest


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A fleet member. Addresses are policy, never taken from reports.

    `gateway_url` is the origin of the cluster's gateway (Parent Mode), `picker_address` the
    `host:port` of its LocalPicker (empty: none), `probe_url` the readiness URL of the second
    witness (empty: none, then silence alone decides after 3 s).
    """

    id: ClusterId
    locality: Locality
    gateway_url: str
    picker_address: str = ""
    probe_url: str = ""

    def __post_init__(self) -> None:
        """Refuse names that could not travel as keys, labels and headers."""
        check_name(self.id, "cluster id")
        check_name(self.locality.region, "region")
        check_jurisdiction(self.locality.jurisdiction)
        _require(
            _is_plain_origin(self.gateway_url),
            f"cluster {self.id} gateway_url {self.gateway_url!r}",
            "must be an origin http://host[:port]; this version speaks no TLS, and https:// sent in clear "
            "would be a lie",
        )


@dataclass(frozen=True, slots=True)
class ModelPolicy:
    """A public model name with the aliases that also reach it."""

    name: ModelName
    aliases: tuple[ModelName, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """A tenant and what it may use at most; a token can only narrow it."""

    id: TenantId
    grants: Grants


@dataclass(frozen=True, slots=True)
class TokenKey:
    """Public half of a region's token-signing key (Ed25519, 32 raw bytes)."""

    kid: str
    public_key: bytes


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Timers and thresholds of the health table (durations in nanoseconds).

    `silence_stale`: a report every 0.5 s may be lost twice before a cluster is suspected.
    `probe_timeout_floor`: the timeout is max(this, 2 x RTT p99).
    """

    silence_stale: Duration = seconds(1.25)
    silence_unprobed_unhealthy: Duration = seconds(3)
    probe_interval: Duration = seconds(5)
    probe_interval_suspect: Duration = ms(500)
    probe_timeout_floor: Duration = ms(500)
    late_tick: Duration = ms(250)
    load_decay: Duration = seconds(10)
    late_report_lag: Duration = seconds(1)
    connect_failures_to_eject: int = 3
    gateway_errors_to_eject: int = 5
    ejection_base: Duration = seconds(30)
    ejection_max: Duration = seconds(300)
    ejection_max_share: float = 0.10
    degraded_ready_share: float = 0.71
    degraded_saturation: float = 1.0
    probation_share: float = 0.01
    probation_concurrent: int = 3
    probation_successes: int = 5
    probation_probe_credit_after: Duration = seconds(5)
    ramp_window: Duration = seconds(60)
    ramp_floor: float = 0.10
    returns_max: int = 2
    returns_window: Duration = seconds(600)

    def __post_init__(self) -> None:
        """Refuse values that would make the table contradict itself."""
        for name in _POSITIVE_HEALTH_SETTINGS:
            _require(getattr(self, name) > 0, name, "must be positive")
        _require(
            self.silence_unprobed_unhealthy >= self.silence_stale,
            "silence_unprobed_unhealthy",
            "must not be shorter than silence_stale",
        )
        _require(0 < self.ramp_floor <= 1, "ramp_floor", "must lie in (0, 1]")
        _require(0 < self.ejection_max_share <= 1, "ejection_max_share", "must lie in (0, 1]")
        _require(0 <= self.degraded_ready_share <= 1, "degraded_ready_share", "must lie in [0, 1]")
        _require(0 <= self.probation_share <= 1, "probation_share", "must lie in [0, 1]")
        _require(
            self.ejection_max >= self.ejection_base, "ejection_max", "must not be shorter than ejection_base"
        )


_POSITIVE_HEALTH_SETTINGS = (
    "silence_stale",
    "probe_interval",
    "probe_interval_suspect",
    "probe_timeout_floor",
    "late_tick",
    "load_decay",
    "late_report_lag",
    "connect_failures_to_eject",
    "gateway_errors_to_eject",
    "ejection_base",
    "degraded_saturation",
    "probation_concurrent",
    "probation_successes",
    "probation_probe_credit_after",
    "ramp_window",
    "returns_max",
    "returns_window",
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of one attempt and of the whole request, in nanoseconds."""

    connect: Duration = seconds(1)
    first_byte_interactive: Duration = seconds(30)
    first_byte_batch: Duration = seconds(300)
    idle: Duration = seconds(60)
    total: Duration = seconds(3600)
    commit_after: Duration = seconds(10)

    def __post_init__(self) -> None:
        """Refuse limits that no request could keep."""
        for name in (
            "connect",
            "first_byte_interactive",
            "first_byte_batch",
            "idle",
            "total",
            "commit_after",
        ):
            _require(getattr(self, name) > 0, name, "must be positive")

    def first_byte(self, traffic_class: TrafficClass) -> Duration:
        """Return the first-byte timeout of a traffic class."""
        return self.first_byte_batch if traffic_class is TrafficClass.BATCH else self.first_byte_interactive


@dataclass(frozen=True, slots=True)
class FailoverPolicy:
    """Retries: at most `max_attempts` per request, plus one re-dispatch outside the budget."""

    max_attempts: int = 3
    retry_bucket: float = 3.0
    retry_earned_per_request: float = 0.2
    replay_body_max_bytes: int = 1 << 20
    replay_total_max_bytes: int = 256 << 20
    timeouts: Timeouts = field(default_factory=Timeouts)

    def __post_init__(self) -> None:
        """Refuse retry settings that amplify instead of protect."""
        _require(
            1 <= self.max_attempts <= MAX_ATTEMPTS_LIMIT,
            f"max_attempts {self.max_attempts}",
            f"must lie in 1..{MAX_ATTEMPTS_LIMIT}",
        )
        _require(self.retry_bucket >= 0, "retry_bucket", "must not be negative")
        _require(0 <= self.retry_earned_per_request <= 1, "retry_earned_per_request", "must lie in [0, 1]")


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """How weights follow from the snapshot. `overprovisioning` is Envoy's factor (1.4).

    `fail_when_none_healthy`: the panic policy; False routes anyway (default), True answers 503.
    `sheddable_saturation`: from this saturation on a candidate refuses sheddable requests (the
    endpoint-picker field's own rule: priority < 0 and saturation >= 1).
    """

    overprovisioning: float = 1.4
    panic_threshold: float = 0.0
    fail_when_none_healthy: bool = False
    residency_max_policy_age: Duration = seconds(900)
    sheddable_saturation: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a factor that would shed traffic from healthy levels."""
        _require(self.overprovisioning >= 1, "overprovisioning", "must be at least 1")
        _require(0 <= self.panic_threshold <= 1, "panic_threshold", "must lie in [0, 1]")
        _require(self.sheddable_saturation > 0, "sheddable_saturation", "must be positive")


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """Everything declared, under one revision number. Names are unique; aliases reach one model."""

    revision: int
    published_at_ms: WallMs
    clusters: tuple[ClusterSpec, ...] = ()
    models: tuple[ModelPolicy, ...] = ()
    tenants: tuple[TenantPolicy, ...] = ()
    token_keys: tuple[TokenKey, ...] = ()
    health: HealthPolicy = field(default_factory=HealthPolicy)
    failover: FailoverPolicy = field(default_factory=FailoverPolicy)
    routing: RoutingPolicy = field(default_factory=RoutingPolicy)

    def __post_init__(self) -> None:
        """Refuse a snapshot in which one name means two things."""
        _require(self.revision >= 1, f"revision {self.revision}", "must be at least 1")
        _unique("cluster", [spec.id for spec in self.clusters])
        _unique("tenant", [tenant.id for tenant in self.tenants])
        _unique("token key", [key.kid for key in self.token_keys])
        _unique("model or alias", [name for model in self.models for name in (model.name, *model.aliases)])


def _unique(what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        _require(name not in seen, f"{what} {name!r}", "declared twice")
        seen.add(name)
