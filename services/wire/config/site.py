"""The kind `Site`: the processes, ports and addresses of one `gir up`.

It says what this host starts, not what the fleet is: clusters, models and tenants are policy and
stand in other documents of the same stream. Without Kafka or Redis their embedded counterparts
are used.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from services.wire.config.field_types import (
    Given,
    Host,
    HostPort,
    JurisdictionCode,
    Kind,
    Many,
    Model,
    Name,
    Port,
    redis_url,
)
from services.wire.config.kinds import Metadata


def _not_blank(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("must be a path")
    return value


class KafkaSite(Kind):
    """The bus: its bootstrap servers and the replicas of each topic (1 suits a single broker)."""

    bootstrap: Annotated[Many[HostPort], Field(min_length=1, max_length=20)]
    replication: Annotated[int, Field(ge=1, le=7)] = 1


class RedisSite(Kind):
    """The regional view."""

    url: Annotated[str, AfterValidator(redis_url)]


class RegionSite(Kind):
    """A region whose router and projector run here."""

    region: Name
    jurisdiction: JurisdictionCode
    host: Host = "127.0.0.1"
    http_port: Port = 8080
    grpc_port: Port = 7000


class PodSite(Kind):
    """A running model server."""

    id: Name
    address: HostPort


class PoolSite(Kind):
    """Model servers of one model: running ones by address, simulated ones by number and profile."""

    name: Name
    model: Model
    engine: Literal["", "vllm", "sglang"] = ""
    pods: Annotated[Many[PodSite], Field(max_length=4000)] = ()
    simulated_pods: Annotated[int, Field(ge=0, le=64)] = 0
    simulated_profile: Name = "h100-8b"


class PickerSite(Kind):
    """A cluster whose endpoint picker runs here. `accept: direct` also takes requests without a hand-off token."""

    cluster: Name
    host: Host = "127.0.0.1"
    http_port: Port = 8000
    grpc_port: Port = 9002
    accept: Literal["router", "direct"] = "router"
    pools: Annotated[Many[PoolSite], Field(min_length=1, max_length=100)]


class SiteSpec(Kind):
    """What `gir up` starts on this host."""

    state_dir: Annotated[str, AfterValidator(_not_blank)] = ".gir"
    insecure_bind: bool = False
    metrics_port: Port = 9090
    kafka: Annotated[KafkaSite | None, Given] = None
    redis: Annotated[RedisSite | None, Given] = None
    regions: Annotated[Many[RegionSite], Field(max_length=20)] = ()
    pickers: Annotated[Many[PickerSite], Field(max_length=100)] = ()


class Site(Kind):
    """One host's share of the fleet."""

    api_version: Literal["gir.dev/v1alpha1"]
    kind: Literal["Site"]
    metadata: Metadata
    spec: SiteSpec
