"""`gir up`: a world from a configuration, one `Site` and the policy in the same stream.

Turns documents into a plan; running it is the same as for the demo. A port of 0 takes the one that the
policy names for it, else the next free one. Files are read by the caller.
"""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from services.adapters.auth.key_files import KeyFileError
from services.adapters.ports import Clock
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.adapters.system.logs import log_to_file
from services.core.locality import ClusterId
from services.core.policy import ClusterSpec, PolicySnapshot
from services.endpoint_picker.addresses import split
from services.endpoint_picker.settings import PickerSettings
from services.global_router.hops import origin_of
from services.global_router.settings import RouterSettings
from services.simulator.profile import PROFILES
from services.simulator.settings import PodSettings
from services.wire.config.documents import Documents, Located
from services.wire.config.load import to_policy
from services.wire.config.site import PickerSite, PoolSite, RegionSite, Site, SiteSpec
from services.worlds.demo import (
    WRONG_USE,
    CannotStartError,
    running_world,
    stay,
    told_to_stop,
)
from services.worlds.topology import (
    PICKER_GRPC,
    PODS_FROM,
    ROUTER_GRPC,
    Bus,
    ClusterPlan,
    RegionPlan,
    WorldPlan,
    endpoint_of,
    simulated_pod,
)
from services.worlds.topology_keys import StateKeys
from services.worlds.topology_ports import HostPorts, PortTakenError


async def up(documents: Documents) -> int:
    """Start the site and stay until SIGINT or SIGTERM. Raises `CannotStartError`, `InvalidDocumentsError`."""
    stop = told_to_stop()
    plan, keys = _planned(documents)
    async with running_world(plan, wait_ready=False) as (world, _):
        sys.stdout.write(welcome(plan, keys))
        sys.stdout.flush()
        return await stay(world, stop)


def _planned(documents: Documents) -> tuple[WorldPlan, StateKeys]:
    root = Path(site_of(documents).state_dir)
    keys = StateKeys(root, SystemIds())
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        plan = site_plan(documents, keys, HostPorts(), SystemClock())
        log_to_file(root / "gir.log")
    except PortTakenError as error:
        raise CannotStartError(f"{error}; stop what listens there or change the Site", WRONG_USE) from None
    except OSError as error:
        raise CannotStartError(f"{root}: {error.strerror or error}", WRONG_USE) from None
    except KeyFileError as error:
        raise CannotStartError(str(error), WRONG_USE) from None
    except ValidationError as error:
        sentences = [str(item["msg"]).removeprefix("Value error, ") for item in error.errors()]
        raise CannotStartError("; ".join(sentences), WRONG_USE) from None
    return plan, keys


def site_of(documents: Documents) -> SiteSpec:
    """Return what to start here; raise `CannotStartError` when the stream has no Site."""
    if not documents.sites:
        raise CannotStartError("the configuration has no Site: nothing says what to start here", WRONG_USE)
    return documents.sites[0].value.spec


def site_plan(documents: Documents, keys: StateKeys, ports: HostPorts, clock: Clock) -> WorldPlan:
    """Return the plan of the documents' one Site. Raises `InvalidDocumentsError`, `PortTakenError`, `KeyFileError`."""
    policy = _with_own_key(to_policy(documents, 1, clock.wall_ms()), keys)
    site = _Site(documents.sites[0], policy, documents.fleets[0].value.metadata.name, keys, ports)
    return site.plan()


class _Site:
    """One Site being turned into settings."""

    def __init__(
        self, located: Located[Site], policy: PolicySnapshot, fleet: str, keys: StateKeys, ports: HostPorts
    ) -> None:
        self._spec = located.value.spec
        self._policy = policy
        self._fleet = fleet
        self._keys = keys
        self._ports = ports
        self._specs = {spec.id: spec for spec in policy.clusters}
        self._aliases = {str(model.name): tuple(map(str, model.aliases)) for model in policy.models}

    def plan(self) -> WorldPlan:
        spec = self._spec
        bus = Bus(
            ",".join(spec.kafka.bootstrap) if spec.kafka else "",
            spec.redis.url if spec.redis else "",
            spec.kafka.replication if spec.kafka else 1,
        )
        projectors = 2 if bus.kafka and bus.redis_url else 1
        regions = tuple(RegionPlan(self._router(region), projectors) for region in spec.regions)
        clusters = tuple(self._cluster(picker) for picker in spec.pickers)
        return WorldPlan(self._fleet, regions, clusters, self._policy, bus, spec.metrics_port)

    def _router(self, region: RegionSite) -> RouterSettings:
        return RouterSettings.model_validate(
            {
                "fleet": self._fleet,
                "region": region.region,
                "jurisdiction": region.jurisdiction,
                "http": {"host": region.host, "port": self._port(region.http_port, 8080)},
                "grpc": {"host": region.host, "port": self._port(region.grpc_port, ROUTER_GRPC)},
                "metrics": {"port": self._ports.next_free(self._spec.metrics_port)},
                "state_dir": self._keys.region_folder(region.region),
                "hand_off_secret": self._keys.region_secret(region.region),
                "insecure_bind": self._spec.insecure_bind,
            }
        )

    def _cluster(self, picker: PickerSite) -> ClusterPlan:
        spec = self._specs[ClusterId(picker.cluster)]
        pods = {pool.name: tuple(self._simulated(picker.cluster, pool)) for pool in picker.pools}
        settings = PickerSettings.model_validate(
            {
                "cluster": picker.cluster,
                "region": spec.locality.region,
                "jurisdiction": spec.locality.jurisdiction,
                "pools": [self._pool(pool, pods[pool.name]) for pool in picker.pools],
                "http": {
                    "host": picker.host,
                    "port": self._port(picker.http_port or origin_of(spec.gateway_url).port, 0),
                    "accept": picker.accept,
                },
                "grpc": {"host": picker.host, "port": self._picker_grpc(picker, spec)},
                "metrics": {"port": self._ports.next_free(self._spec.metrics_port)},
                "hand_off_keys": self._hand_off_keys(picker.cluster),
                "insecure_bind": self._spec.insecure_bind,
            }
        )
        return ClusterPlan(settings, tuple(pod for group in pods.values() for pod in group))

    def _pool(self, pool: PoolSite, simulated: tuple[PodSettings, ...]) -> dict[str, object]:
        running = [{"id": pod.id, "address": pod.address} for pod in pool.pods]
        return {
            "name": pool.name,
            "models": (pool.model, *self._aliases.get(pool.model, ())),
            "engine": pool.engine or "vllm",
            "endpoints": [*running, *(endpoint_of(pod) for pod in simulated)],
        }

    def _simulated(self, cluster: str, pool: PoolSite) -> Iterator[PodSettings]:
        if pool.simulated_pods and pool.simulated_profile not in PROFILES:
            raise CannotStartError(
                f"cluster {cluster}, pool {pool.name}: simulatedProfile {pool.simulated_profile!r} must be one of "
                f"{', '.join(PROFILES)}",
                WRONG_USE,
            )
        models = (pool.model, *self._aliases.get(pool.model, ()))
        for number in range(pool.simulated_pods):
            port = self._ports.next_free(PODS_FROM)
            yield simulated_pod(f"{cluster}-{pool.name}-{number}", port, models, pool.simulated_profile)

    def _picker_grpc(self, picker: PickerSite, spec: ClusterSpec) -> int:
        named = split(spec.picker_address)[1] if spec.picker_address else 0
        return self._port(picker.grpc_port or named, PICKER_GRPC)

    def _hand_off_keys(self, cluster: str) -> Path:
        """Derive the keys from the regions that run here; where none does, use what was derived elsewhere."""
        if self._spec.regions:
            return self._keys.cluster_keys(cluster, [region.region for region in self._spec.regions])
        return self._keys.derived_elsewhere(cluster)

    def _port(self, wanted: int, preferred: int) -> int:
        return self._ports.exactly(wanted) if wanted else self._ports.next_free(preferred)


def _with_own_key(policy: PolicySnapshot, keys: StateKeys) -> PolicySnapshot:
    """Let tokens of the site's own key in, so that a fresh site can be used at once."""
    own = keys.signing_key().public()
    if any(key.kid == own.kid for key in policy.token_keys):
        return policy
    return dataclasses.replace(policy, token_keys=(*policy.token_keys, own))


def welcome(plan: WorldPlan, keys: StateKeys) -> str:
    """Return where the site listens and how to get a token."""
    lines = [
        f"router {region.router.region}: http {region.router.http.host}:{region.router.http.port} "
        f"grpc {region.router.grpc.host}:{region.router.grpc.port}"
        for region in plan.regions
    ]
    lines += [
        f"cluster {cluster.picker.cluster}: http {cluster.picker.http.host}:{cluster.picker.http.port} "
        f"grpc {cluster.picker.grpc.host}:{cluster.picker.grpc.port}"
        for cluster in plan.clusters
    ]
    tenants = ", ".join(tenant.id for tenant in plan.policy.tenants) or "none yet"
    lines += [
        f"tenants: {tenants}",
        f"token: gir token mint --keys {keys.signing_folder} --tenant TENANT",
        f"log: {keys.root / 'gir.log'}",
    ]
    return "\n".join(lines) + "\n"
