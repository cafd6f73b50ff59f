"""Settings of one endpoint picker: a YAML document, frozen, unknown keys refused, every field explained.

Which pods there are, where the picker listens, who speaks for the cluster. Parsing and its errors are
`wire/config/settings_source`; what the fleet is and who may use it is policy and not here.
"""

import enum
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from services.core.inference import ModelName
from services.core.locality import ClusterId, Jurisdiction, Locality, Region, check_jurisdiction, check_name
from services.core.models.routing import PoolModels, ServedModel
from services.core.pods.report import PoolSpec
from services.core.units import ms
from services.endpoint_picker.addresses import join, normal_path, split
from services.endpoint_picker.discovery_settings import Discovery, KubernetesAccess, StaticDiscovery
from services.wire.config.field_types import bootstrap_servers
from services.wire.config.listeners import Listener, MetricsDoor, Port, check_loopback
from services.wire.config.settings_source import Settings

MAX_REPORTED = 128
"""Pools times models of one cluster: with the longest names a report of these fits into 64 KiB."""

Name = Annotated[str, AfterValidator(lambda value: check_name(value, "name"))]
PodId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
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
    """LocalPicker and gRPC health."""

    port: Port = 9002


class EndpointSettings(Settings):
    """One pod: `address` is `host:port`, or a host with `port` beside it; an IPv6 host may come without brackets.

    `capacity_requests`, `capacity_tokens_per_s`: what the pod can carry; engines do not publish it, and a pool
    with an undeclared pod reports its capacity as unknown.
    """

    id: PodId
    address: str
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    draining: bool = False
    capacity_requests: Annotated[int, Field(ge=1)] | None = None
    capacity_tokens_per_s: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _normalise(self) -> Self:
        address = split_or_join(self.address, self.port)
        object.__setattr__(self, "address", address)
        return self


def split_or_join(address: str, port: int | None) -> str:
    """Return the one spelling of an address."""
    if port is not None:
        return join(address, port)
    split(address)
    return address


class PoolSettings(Settings):
    """Pods that serve the same models."""

    name: Name
    models: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=256)], ...], Field(min_length=1)]
    tier: Annotated[str, Field(max_length=64)] = ""
    engine: str = "vllm"
    """What its pods run; `auto` tells it by their metrics, and a pod's own label goes before either."""
    discovery: Discovery = StaticDiscovery()
    endpoints: tuple[EndpointSettings, ...] = ()
    """The pods of a static pool; other sources bring their own."""
    start_takes_ms: Annotated[int, Field(ge=1, le=86_400_000)] | None = None
    """How long a pod takes from its appearance until it serves; used until starts have been measured."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.endpoints and self.discovery.kind != "static":
            raise ValueError(f"endpoints: only with discovery of kind static, not {self.discovery.kind}")
        return self


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
    def _agree(self) -> Self:
        pods = [endpoint.id for pool in self.pools for endpoint in pool.endpoints]
        for what, found in (("pool", [pool.name for pool in self.pools]), ("endpoint id", pods)):
            twice = sorted({name for name in found if found.count(name) > 1})
            if twice:
                raise ValueError(f"{what} {twice[0]!r} is declared twice")
        if sum(len(pool.models) for pool in self.pools) > MAX_REPORTED:
            raise ValueError(f"pools times models must not exceed {MAX_REPORTED}")
        served = [model for pool in self.pools for model in pool.models]
        if len(set(served)) != len(served):
            raise ValueError("a model is served by more than one pool; one name must lead to one pool")
        if self.lease is LeaseKind.FILE and self.lease_file is None:
            raise ValueError("lease: file needs lease_file")
        if not self.insecure_bind:
            check_loopback((self.http, self.grpc, self.metrics))
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
            PoolModels(pool.name, tuple(ServedModel(ModelName(model)) for model in pool.models))
            for pool in self.pools
        )

    @property
    def pool_specs(self) -> tuple[PoolSpec, ...]:
        """The pools as core values."""
        return tuple(
            PoolSpec(
                pool.name,
                tuple(ModelName(model) for model in pool.models),
                pool.tier,
                None if pool.start_takes_ms is None else ms(pool.start_takes_ms),
            )
            for pool in self.pools
        )
