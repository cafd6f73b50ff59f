"""The fleet of the process stories as values: who runs where, on which ports, under which policy.

Documents for `gir apply` and settings files of every verb come from here; nothing is started. Two regions
have a router each; the third lends its cluster only, so that the model the first region lacks survives the
second one's death.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

SMALL: Final = "llama-3.1-8b"
LARGE: Final = "llama-3.1-70b"
TENANT: Final = "acme"
FLEET: Final = "story"
EU: Final = "eu-west"
US: Final = "us-east"
AP: Final = "ap-south"
JURISDICTIONS: Final = {EU: "eu", US: "us", AP: "in"}
ROUTED: Final = (EU, US)
PROJECTORS: Final = 2
PODS: Final = 2
POD_CAPACITY: Final = 256
FIRST_TOKEN_MS: Final = 200
"""Every answer takes this long to begin, so that a strike always meets requests without a first byte."""
RAMP_MS: Final = 20_000
IDLE_MS: Final = 4_000
"""A stream frozen with its region ends in-band after this; the default of a minute would only be waited for."""
EJECTION_MS: Final = 5_000
RETURNS: Final = 20
"""A fleet that is struck again and again by one test run must be let back each time, and soon."""

Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class PickerPlan:
    """One picker process and its ports."""

    name: str
    http: int
    grpc: int
    metrics: int


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """One cluster: its pods' ports and its pickers, of which policy names the first as the gateway."""

    name: str
    region: str
    models: tuple[str, ...]
    pods: Mapping[str, int]
    pickers: tuple[PickerPlan, ...]

    @property
    def gateway(self) -> PickerPlan:
        """The picker that traffic and probes go to."""
        return self.pickers[0]


@dataclass(frozen=True, slots=True)
class RouterPlan:
    """One router process and its ports."""

    region: str
    http: int
    grpc: int
    metrics: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All ports, decided once: a process that comes back comes back where it was."""

    clusters: tuple[ClusterPlan, ...]
    routers: Mapping[str, RouterPlan]
    projector_metrics: Mapping[str, int] = field(default_factory=dict)

    def cluster(self, name: str) -> ClusterPlan:
        """Return the cluster called `name`."""
        return next(cluster for cluster in self.clusters if cluster.name == name)

    def clusters_of(self, region: str) -> frozenset[str]:
        """Return the names of a region's clusters."""
        return frozenset(cluster.name for cluster in self.clusters if cluster.region == region)


def make_plan(port: Callable[[], int]) -> Plan:
    """Return the fleet, with a port from `port` for everything that listens."""

    def cluster(name: str, models: tuple[str, ...], pickers: int = 1) -> ClusterPlan:
        return ClusterPlan(
            name,
            name.rpartition("-")[0],
            models,
            {f"{name}-pod-{number}": port() for number in range(PODS)},
            tuple(PickerPlan(f"{name}-picker-{n}", port(), port(), port()) for n in range(pickers)),
        )

    return Plan(
        (
            cluster("eu-west-1", (SMALL,), pickers=2),
            cluster("us-east-1", (SMALL, LARGE)),
            cluster("us-east-2", (LARGE,)),
            cluster("ap-south-1", (SMALL, LARGE)),
        ),
        {region: RouterPlan(region, port(), port(), port()) for region in ROUTED},
        {f"{region}-projector-{n}": port() for region in ROUTED for n in range(PROJECTORS)},
    )


def policy_documents(plan: Plan, public_key: Mapping[str, str]) -> list[Document]:
    """Return what `gir apply` publishes; `public_key` is what `gir token keys init` printed."""
    clusters = [
        {
            "id": cluster.name,
            "region": cluster.region,
            "jurisdiction": JURISDICTIONS[cluster.region],
            "gatewayUrl": f"http://127.0.0.1:{cluster.gateway.http}",
            "pickerAddress": f"127.0.0.1:{cluster.gateway.grpc}",
            "probeUrl": f"http://127.0.0.1:{cluster.gateway.http}/readyz",
        }
        for cluster in plan.clusters
    ]
    return [
        _document("Fleet", FLEET, {"clusters": clusters, "models": [{"name": SMALL}, {"name": LARGE}]}),
        _document("Tenant", TENANT, {"models": [SMALL, LARGE]}),
        _document("TokenKeys", FLEET, {"keys": [dict(public_key)]}),
        _document(
            "RoutingPolicy",
            FLEET,
            {
                "health": {"returnsMax": RETURNS, "rampWindowMs": RAMP_MS, "ejectionBaseMs": EJECTION_MS},
                "failover": {"timeouts": {"idleMs": IDLE_MS}},
            },
        ),
    ]


def _document(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": "gir.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def pod_settings(cluster: ClusterPlan, pod: str) -> Document:
    """Return the settings of one simulated pod; tokens come in bursts, which spares the processor."""
    return {
        "pod": pod,
        "port": cluster.pods[pod],
        "model": cluster.models[0],
        "aliases": list(cluster.models[1:]),
        "wake_interval_ms": 50,
        "faults": {"extra_ttft_ms": FIRST_TOKEN_MS},
    }


def picker_settings(cluster: ClusterPlan, picker: PickerPlan, kafka: str, keys: str, lease: str) -> Document:
    """Return the settings of one picker: the gateway and its spare elect one publisher by a file lease."""
    endpoints = [
        {"id": pod, "address": f"127.0.0.1:{port}", "capacity_requests": POD_CAPACITY}
        for pod, port in cluster.pods.items()
    ]
    return {
        "cluster": cluster.name,
        "region": cluster.region,
        "jurisdiction": JURISDICTIONS[cluster.region],
        "pools": [{"name": "llm", "models": list(cluster.models), "endpoints": endpoints}],
        "scrape": {"interval_ms": 500},
        "http": {"port": picker.http},
        "grpc": {"port": picker.grpc},
        "metrics": {"port": picker.metrics},
        "kafka": {"bootstrap": kafka},
        "hand_off_keys": keys,
        "lease": "file",
        "lease_file": lease,
        "drain_ms": 1000,
    }


def router_settings(plan: RouterPlan, redis: str, folder: str) -> Document:
    """Return the settings of one router, whose files are in `folder`."""
    return {
        "fleet": FLEET,
        "region": plan.region,
        "jurisdiction": JURISDICTIONS[plan.region],
        "http": {"port": plan.http},
        "grpc": {"port": plan.grpc},
        "metrics": {"port": plan.metrics},
        "redis": {"url": redis},
        "state_dir": folder,
        "hand_off_secret": f"{folder}/hand-off.secret",
        "decision_file": f"{folder}/decisions.jsonl",
        "drain_ms": 1000,
    }


def projector_settings(region: str, metrics: int, kafka: str, redis: str) -> Document:
    """Return the settings of one projector."""
    return {
        "fleet": FLEET,
        "region": region,
        "kafka": {"bootstrap": kafka},
        "redis": {"url": redis},
        "metrics": {"port": metrics},
    }
