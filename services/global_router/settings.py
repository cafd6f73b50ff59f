"""Settings of the router and the projector: one YAML document each, frozen, every field explained.

Addresses and files of one process only; what the fleet is and who may use it is policy.
Parsing and its errors are `wire/config/settings_source.py`.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from services.core.locality import Jurisdiction, Locality, Region, check_jurisdiction, check_name
from services.core.units import Duration, ms
from services.wire.config.field_types import bootstrap_servers, redis_url
from services.wire.config.listeners import Listener, MetricsDoor, Port, check_loopback
from services.wire.config.settings_source import Settings

Name = Annotated[str, AfterValidator(lambda value: check_name(value, "name"))]
JurisdictionCode = Annotated[str, AfterValidator(check_jurisdiction)]


class HttpDoor(Listener):
    """The OpenAI-compatible door."""

    port: Port = 8080
    body_max_bytes: Annotated[int, Field(ge=1024, le=256 << 20)] = 10 << 20
    """Larger bodies are refused with 413; 256 MiB is the hard limit whatever is configured."""


class GrpcDoor(Listener):
    """The gRPC door (GlobalRouter, health, reflection)."""

    port: Port = 7000


class Redis(Settings):
    """The regional view store. Empty URL: none; the router then starts from its disk policy and probes."""

    url: Annotated[str, AfterValidator(lambda value: value and redis_url(value))] = ""


class Kafka(Settings):
    """The bus. `bootstrap` is a comma-separated list of host:port."""

    bootstrap: Annotated[str, AfterValidator(bootstrap_servers)]
    replication: Annotated[int, Field(ge=1, le=7)] = 1
    """Replicas of each topic; 1 suits a single broker, 3 a production cluster."""


class RouterSettings(Settings):
    """One router process: a region's doors, its view of the fleet, its files."""

    fleet: Name
    region: Name
    jurisdiction: JurisdictionCode
    http: HttpDoor = HttpDoor()
    grpc: GrpcDoor = GrpcDoor()
    metrics: MetricsDoor = MetricsDoor()
    redis: Redis = Redis()
    state_dir: Path
    """Holds `policy.bin`, from which a router starts when the store is away."""
    hand_off_secret: Path
    """File of the region's hand-off secret (`gir token hand-off init`); the newest line signs."""
    decision_file: Path | None = None
    """JSON lines of decision records; None keeps the ring in memory only."""
    insecure_bind: bool = False
    """Allow listeners outside loopback although they speak plain text. Said loudly at start."""
    drain_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 30_000
    """How long running requests may finish after SIGTERM."""

    @model_validator(mode="after")
    def _stay_on_loopback(self) -> Self:
        if not self.insecure_bind:
            check_loopback((self.http, self.grpc, self.metrics))
        return self

    @property
    def here(self) -> Locality:
        """Where this router stands."""
        return Locality(Region(self.region), Jurisdiction(self.jurisdiction))

    @property
    def drain(self) -> Duration:
        """The drain time as a duration."""
        return ms(self.drain_ms)


class ProjectorSettings(Settings):
    """One projector: moves the bus into the regional store. Run at least two per region."""

    fleet: Name
    region: Name
    kafka: Kafka
    redis: Redis
    metrics: MetricsDoor = MetricsDoor()
    insecure_bind: bool = False

    @model_validator(mode="after")
    def _stay_on_loopback(self) -> Self:
        if not self.insecure_bind:
            check_loopback((self.metrics,))
        if not self.redis.url:
            raise ValueError("redis.url: a projector needs a store to project into")
        return self
