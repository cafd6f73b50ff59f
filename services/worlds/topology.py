"""What a world consists of, as values; and the demo's: three regions, five clusters, two models, two tenants.

A plan holds the settings of every process and the policy, all addresses decided. Building and
running it is `demo_world`; ports and key files come in as arguments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from services.core.inference import Grants, ModelName, TenantId
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.policy import (
    ClusterSpec,
    HealthPolicy,
    ModelPolicy,
    PolicySnapshot,
    TenantPolicy,
    TokenKey,
)
from services.core.residency import ResidencyRule
from services.core.units import WallMs
from services.endpoint_picker.settings import PickerSettings
from services.global_router.settings import RouterSettings
from services.simulator.profile import PROFILES
from services.simulator.settings import PodSettings
from services.worlds.topology_keys import StateKeys
from services.worlds.topology_ports import LOOPBACK, HostPorts

FLEET: Final = "demo"
SMALL_MODEL: Final = "llama-3.1-8b"
SMALL_ALIAS: Final = "small"
LARGE_MODEL: Final = "llama-3.1-70b"
LARGE_ALIAS: Final = "large"
TENANT: Final = "acme"
EU_TENANT: Final = "eu-only"

FIRST_DOOR: Final = 8080
DOOR_STEP: Final = 100
ROUTER_GRPC: Final = 7000
GATEWAY_HTTP: Final = 8000
PICKER_GRPC: Final = 9002
METRICS: Final = 9090
PODS_FROM: Final = 8100
WAKE_INTERVAL_MS: Final = 25
"""Streamed tokens leave in bursts this far apart: a dozen pods share one core with all that serves them."""
PROFILE: Final = "h100-8b"


@dataclass(frozen=True, slots=True)
class Bus:
    """Real parts to run on: Kafka's bootstrap servers with the replicas of topics, and Redis. Empty: in memory."""

    kafka: str = ""
    redis_url: str = ""
    replication: int = 1


IN_MEMORY: Final = Bus()


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """One cluster: its picker, and the simulated pods that live and die with it."""

    picker: PickerSettings
    pods: tuple[PodSettings, ...]


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """One region's router and how many projectors fill its view."""

    router: RouterSettings
    projectors: int


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """Everything one process starts. The policy's revision is given when it is published.

    From `metrics_port` on, each projector takes the next free one.
    """

    fleet: str
    regions: tuple[RegionPlan, ...]
    clusters: tuple[ClusterPlan, ...]
    policy: PolicySnapshot
    bus: Bus = IN_MEMORY
    metrics_port: int = METRICS

    def clusters_in(self, region: str) -> tuple[ClusterPlan, ...]:
        """Return the clusters of one region."""
        return tuple(cluster for cluster in self.clusters if cluster.picker.region == region)


@dataclass(frozen=True, slots=True)
class _Pool:
    name: str
    model: str
    alias: str
    pods: int


@dataclass(frozen=True, slots=True)
class _Place:
    region: str
    jurisdiction: str
    clusters: tuple[tuple[_Pool, ...], ...]


def _small(pods: int) -> _Pool:
    return _Pool("small", SMALL_MODEL, SMALL_ALIAS, pods)


def _large(pods: int) -> _Pool:
    return _Pool("large", LARGE_MODEL, LARGE_ALIAS, pods)


# The large model is not served in the EU: requests for it cross from the EU door to both other regions,
# which is what a region's death is watched by, and what the EU-only tenant is refused.
_PLACES: Final = (
    _Place("eu-west", "eu", ((_small(3),), (_small(3),))),
    _Place("us-east", "us", ((_small(2), _large(1)), (_small(2), _large(1)))),
    _Place("ap-south", "in", ((_small(2), _large(2)),)),
)
REGIONS: Final = tuple(place.region for place in _PLACES)


def doors(base_port: int) -> tuple[int, ...]:
    """Return the HTTP port of each region's door, in the order of `REGIONS`."""
    return tuple(base_port + DOOR_STEP * index for index in range(len(_PLACES)))


def demo_plan(
    keys: StateKeys,
    ports: HostPorts,
    published_at_ms: WallMs,
    *,
    base_port: int = FIRST_DOOR,
    bus: Bus = IN_MEMORY,
    health: HealthPolicy | None = None,
) -> WorldPlan:
    """Return the demo. Raises `PortTakenError` for a door that is in use, `KeyFileError` for unusable keys.

    Doors stand at `base_port`, +100, +200 exactly; everything else takes the next free port of its kind.
    """
    door_ports = [ports.exactly(port) for port in doors(base_port)]
    regions = tuple(
        RegionPlan(_router(place, door, keys, ports), 2 if bus.kafka else 1)
        for place, door in zip(_PLACES, door_ports, strict=True)
    )
    clusters = tuple(
        _cluster(place, f"{place.region}-{number}", pools, keys, ports)
        for place in _PLACES
        for number, pools in enumerate(place.clusters, start=1)
    )
    policy = PolicySnapshot(
        revision=1,
        published_at_ms=published_at_ms,
        clusters=tuple(cluster_spec(cluster.picker) for cluster in clusters),
        models=(
            ModelPolicy(ModelName(SMALL_MODEL), (ModelName(SMALL_ALIAS),)),
            ModelPolicy(ModelName(LARGE_MODEL), (ModelName(LARGE_ALIAS),)),
        ),
        tenants=_tenants(),
        token_keys=(TokenKey(keys.signing_key().kid, keys.signing_key().public().public_key),),
        health=health or HealthPolicy(),
    )
    return WorldPlan(FLEET, regions, clusters, policy, bus)


def cluster_spec(picker: PickerSettings) -> ClusterSpec:
    """Return how policy names the cluster of a picker whose ports are decided."""
    gateway = f"http://{picker.http.host}:{picker.http.port}"
    return ClusterSpec(
        ClusterId(picker.cluster),
        Locality(Region(picker.region), Jurisdiction(picker.jurisdiction)),
        gateway,
        f"{picker.grpc.host}:{picker.grpc.port}",
        f"{gateway}/readyz",
    )


def simulated_pod(pod: str, port: int, models: Sequence[str], profile: str = PROFILE) -> PodSettings:
    """Return a pod that shares its process with others; the first model names its metrics."""
    return PodSettings(
        pod=pod,
        host=LOOPBACK,
        port=port,
        model=models[0],
        aliases=tuple(models[1:]),
        profile=profile,
        wake_interval_ms=WAKE_INTERVAL_MS,
    )


def endpoint_of(pod: PodSettings) -> dict[str, object]:
    """Return a simulated pod as an endpoint of its picker; its capacity is what its profile batches."""
    return {
        "id": pod.pod,
        "address": f"{pod.host}:{pod.port}",
        "capacity_requests": PROFILES[pod.profile].max_num_seqs,
    }


def _tenants() -> tuple[TenantPolicy, ...]:
    models = frozenset({ModelName(SMALL_MODEL), ModelName(LARGE_MODEL)})
    inside_eu = ResidencyRule(allow_jurisdictions=frozenset({Jurisdiction("eu")}))
    return (
        TenantPolicy(TenantId(TENANT), Grants(models)),
        TenantPolicy(TenantId(EU_TENANT), Grants(models, inside_eu)),
    )


def _router(place: _Place, door: int, keys: StateKeys, ports: HostPorts) -> RouterSettings:
    return RouterSettings.model_validate(
        {
            "fleet": FLEET,
            "region": place.region,
            "jurisdiction": place.jurisdiction,
            "http": {"port": door},
            "grpc": {"port": ports.next_free(ROUTER_GRPC)},
            "metrics": {"port": ports.next_free(METRICS)},
            "decision_file": keys.root / f"decisions-{place.region}.jsonl",
            "state_dir": keys.region_folder(place.region),
            "hand_off_secret": keys.region_secret(place.region),
            # Ctrl-C at a terminal should not wait half a minute for a stream nobody reads.
            "drain_ms": 2_000,
        }
    )


def _cluster(
    place: _Place, name: str, pools: Sequence[_Pool], keys: StateKeys, ports: HostPorts
) -> ClusterPlan:
    pods = {
        pool.name: tuple(
            simulated_pod(
                f"{name}-{pool.name}-{number}", ports.next_free(PODS_FROM), (pool.model, pool.alias)
            )
            for number in range(pool.pods)
        )
        for pool in pools
    }
    picker = PickerSettings.model_validate(
        {
            "cluster": name,
            "region": place.region,
            "jurisdiction": place.jurisdiction,
            "pools": [
                {
                    "name": pool.name,
                    "models": (pool.model, pool.alias),
                    "endpoints": [endpoint_of(pod) for pod in pods[pool.name]],
                }
                for pool in pools
            ],
            "http": {"port": ports.next_free(GATEWAY_HTTP)},
            "grpc": {"port": ports.next_free(PICKER_GRPC)},
            "metrics": {"port": ports.next_free(METRICS)},
            "hand_off_keys": keys.cluster_keys(name, REGIONS),
            "drain_ms": 1_000,
        }
    )
    return ClusterPlan(picker, tuple(pod for group in pods.values() for pod in group))
