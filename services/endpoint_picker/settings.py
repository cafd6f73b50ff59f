"""Settings of one endpoint picker: a YAML document, frozen, unknown keys refused, every field explained.

Which pods there are, where the picker listens, who speaks for the cluster. Parsing and its errors are
`wire/config/settings_source`; what the fleet is and who may use it is policy and not here.
"""

import enum
from collections import Counter
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from services.core.inference import ModelName
from services.core.locality import ClusterId, Jurisdiction, Locality, Region, check_jurisdiction
from services.core.models.routing import PoolModels, ServedModel
from services.core.pods.report import PoolSpec
from services.core.units import ms
from services.endpoint_picker.addresses import normal_path
from services.endpoint_picker.discovery_settings import KubernetesAccess
from services.endpoint_picker.pool_settings import Name, PoolSettings
from services.endpoint_picker.traffic_settings import Prefix, Scheduling
from services.wire.config.field_types import bootstrap_servers
from services.wire.config.listeners import Listener, MetricsDoor, Port, check_loopback
from services.wire.config.settings_source import Settings

MAX_REPORTED = 128
"""Pools times models of one cluster: with the longest names a report of these fits into 64 KiB."""

Milliseconds = Annotated[int, Field(ge=1, le=3_600_000)]


class Accept(enum.Enum):
    """Who may call the gateway: routers with a hand-off token, or anybody who reaches it."""

    ROUTER = "router"
    DIRECT = "direct"


class LeaseKind(enum.Enum):
    """How the cluster's one publisher is elected.

    static: this process is it. file: whoever locks `lease_file`, among the processes of one host. kubernetes: whoever
    holds the Lease `kubernetes.lease_name`.
    """

    STATIC = "static"
    FILE = "file"
    KUBERNETES = "kubernetes"


class HttpDoor(Listener):
    """The gateway's OpenAI door. `body_max_bytes` lies above the routers' own 10 MiB, who refuse first."""

    port: Port = 8000
    accept: Accept = Accept.ROUTER
    body_max_bytes: Annotated[int, Field(ge=1024, le=256 << 20)] = 16 << 20
    first_byte_ms: Milliseconds = 300_000
    """The longest of the routers' own limits (batch); they cancel earlier ones themselves."""
    idle_ms: Milliseconds = 60_000
    total_ms: Milliseconds = 3_600_000


class GrpcDoor(Listener):
    """LocalPicker, ext_proc and gRPC health."""

    port: Port = 9002


class HealthDoor(Listener):
    """gRPC health alone, for probes that look for it on a port of its own (the field's is 9003)."""

    port: Port = 9003


class ExtProc(Settings):
    """How the endpoint picker protocol is spoken; see `wire/ext_proc/events`.

    `endpoints_max` above 1 also names fallbacks, which Envoy's ORIGINAL_DST cannot read. Whether there is a response
    phase (token counts, the client's model name put back, at twice the cost) is the gateway's to configure.
    `conformance` honours the test headers of the conformance suites; never in production.
    """

    endpoints_max: Annotated[int, Field(ge=1, le=8)] = 1
    body_max_bytes: Annotated[int, Field(ge=1024, le=256 << 20)] = 16 << 20
    body_wait_ms: Milliseconds = 30_000
    scores: bool = False
    conformance: bool = False


class Tracing(Settings):
    """Spans by OTLP to `url`, e.g. `http://127.0.0.1:4318/v1/traces`; `ratio` of requests without a trace of their own."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")]
    ratio: Annotated[float, Field(ge=0, le=1)] = 0.1


class ScrapeSettings(Settings):
    """How pods are watched. `timeout_ms` and `max_bytes` bound one page; a pod beyond them turns STALE.

    `metrics_path` is where all pods have their metrics; empty: each engine where its maker put them.
    """

    interval_ms: Annotated[int, Field(ge=50, le=60_000)] = 200
    timeout_ms: Annotated[int, Field(ge=50, le=60_000)] = 1_000
    max_bytes: Annotated[int, Field(ge=4096, le=64 << 20)] = 4 << 20
    metrics_path: Annotated[str, AfterValidator(lambda path: path and normal_path(path))] = ""


class Kafka(Settings):
    """The bus. Empty: this picker serves and publishes nothing, so routers must rely on probes."""

    bootstrap: Annotated[str, AfterValidator(lambda value: value and bootstrap_servers(value))] = ""
    replication: Annotated[int, Field(ge=1, le=7)] = 1


class PickerSettings(Settings):
    """One endpoint picker of one cluster."""

    cluster: Name
    region: Name
    jurisdiction: Annotated[str, AfterValidator(check_jurisdiction)]
    pools: Annotated[tuple[PoolSettings, ...], Field(min_length=1)]
    scrape: ScrapeSettings = ScrapeSettings()
    http: HttpDoor = HttpDoor()
    grpc: GrpcDoor = GrpcDoor()
    health: HealthDoor | None = None
    """gRPC health on a port of its own too; the gRPC door always answers it."""
    ext_proc: ExtProc = ExtProc()
    gateway: Path | None = None
    """File of an `InferenceGateway`, which then says the pools' models, `default_pool` and `objectives`."""
    default_pool: str | None = None
    """The pool that takes requests whose model no pool serves; without it they are 404."""
    objectives: dict[str, Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]] = Field(default_factory=dict)
    """Priority by objective; below 0 a request may be shed first. Kubernetes adds its InferenceObjectives."""
    scheduling: Scheduling = Scheduling()
    prefix: Prefix = Prefix()
    tracing: Tracing | None = None
    metrics: MetricsDoor = MetricsDoor()
    kafka: Kafka = Kafka()
    hand_off_keys: Path | None = None
    """File of the hand-off keys derived for this cluster (`gir token hand-off derive`); needed by `accept: router`."""
    lease: LeaseKind = LeaseKind.STATIC
    lease_file: Path | None = None
    kubernetes: KubernetesAccess = KubernetesAccess()
    """Used by `discovery: {kind: kubernetes}` and `lease: kubernetes`."""
    insecure_bind: bool = False
    """Allow listeners outside loopback although they speak plain text. Said loudly at start."""
    drain_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 30_000
    """How long running requests may finish after SIGTERM."""

    @model_validator(mode="after")
    def _one_says_what_is_served(self) -> Self:
        for place, pool in enumerate(self.pools):
            if self.gateway is None and not pool.models:
                raise ValueError(f"pools.{place}.models: required unless gateway is given")
            if self.gateway is not None and pool.models:
                raise ValueError(
                    f"pools.{place}.models: the gateway's document says them; only one of the two"
                )
        if self.gateway is not None:
            for name in ("default_pool", "objectives"):
                if getattr(self, name):
                    raise ValueError(f"{name}: the gateway's document says it; only one of the two")
        return self

    @model_validator(mode="after")
    def _agree(self) -> Self:
        pods = [endpoint.id for pool in self.pools for endpoint in pool.endpoints]
        for what, found in (("pool", [pool.name for pool in self.pools]), ("endpoint id", pods)):
            twice = sorted({name for name in found if found.count(name) > 1})
            if twice:
                raise ValueError(f"{what} {twice[0]!r} is declared twice")
        if sum(len(pool.models) for pool in self.pools) > MAX_REPORTED:
            raise ValueError(f"pools times models must not exceed {MAX_REPORTED}")
        served = Counter(name for pool in self.pools for name in pool.names)
        if served and (most := served.most_common(1)[0])[1] > 1:
            raise ValueError(f"{most[0]!r} is served more than once; one name must lead to one pool")
        if self.default_pool is not None and self.default_pool not in [pool.name for pool in self.pools]:
            raise ValueError(f"default_pool {self.default_pool!r} is none of the pools")
        if self.lease is LeaseKind.FILE and self.lease_file is None:
            raise ValueError("lease: file needs lease_file")
        if not self.insecure_bind:
            health = () if self.health is None else (self.health,)
            check_loopback((self.http, self.grpc, self.metrics, *health))
        return self

    @property
    def place(self) -> Locality:
        """Where this cluster stands."""
        return Locality(Region(self.region), Jurisdiction(self.jurisdiction))

    @property
    def cluster_id(self) -> ClusterId:
        """The cluster's name as a core value."""
        return ClusterId(self.cluster)

    @property
    def pool_models(self) -> tuple[PoolModels, ...]:
        """What the pools are declared to serve."""
        return tuple(
            PoolModels(
                pool.name,
                tuple(
                    ServedModel(
                        ModelName(model.name),
                        tuple(ModelName(name) for name in model.aliases),
                        tuple(ModelName(name) for name in model.adapters),
                    )
                    for model in pool.models
                ),
            )
            for pool in self.pools
        )

    @property
    def pool_specs(self) -> tuple[PoolSpec, ...]:
        """The pools as core values."""
        return tuple(
            PoolSpec(
                pool.name,
                tuple(ModelName(model.name) for model in pool.models),
                pool.tier,
                None if pool.start_takes_ms is None else ms(pool.start_takes_ms),
            )
            for pool in self.pools
        )
