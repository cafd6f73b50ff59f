from pathlib import Path

import pytest

from services.adapters.system.ids import SystemIds
from services.core.policy import HealthPolicy
from services.core.units import WallMs, seconds
from services.simulator.profile import PROFILES
from services.worlds.topology import (
    EU_TENANT,
    LARGE_MODEL,
    PROFILE,
    SMALL_MODEL,
    TENANT,
    Bus,
    WorldPlan,
    demo_plan,
    doors,
)
from services.worlds.topology_keys import StateKeys
from services.worlds.topology_ports import HostPorts, PortTakenError

BASE_PORT = 28_080


@pytest.fixture
def keys(tmp_path: Path) -> StateKeys:
    return StateKeys(tmp_path, SystemIds())


@pytest.fixture
def plan(keys: StateKeys) -> WorldPlan:
    return demo_plan(keys, HostPorts(), WallMs(1), base_port=BASE_PORT)


def test_three_regions_in_three_jurisdictions_hold_five_clusters(plan: WorldPlan) -> None:
    places = [(region.router.region, region.router.jurisdiction) for region in plan.regions]
    assert places == [("eu-west", "eu"), ("us-east", "us"), ("ap-south", "in")]
    assert [len(plan.clusters_in(region)) for region, _ in places] == [2, 2, 1]
    assert [region.router.http.port for region in plan.regions] == [28_080, 28_180, 28_280]


def test_the_policy_names_each_cluster_where_its_picker_stands(plan: WorldPlan) -> None:
    for spec, cluster in zip(plan.policy.clusters, plan.clusters, strict=True):
        picker = cluster.picker
        assert spec.id == picker.cluster
        assert spec.locality == picker.place
        assert spec.gateway_url == f"http://127.0.0.1:{picker.http.port}"
        assert spec.probe_url == f"{spec.gateway_url}/readyz"
        assert spec.picker_address == f"127.0.0.1:{picker.grpc.port}"


def test_every_endpoint_of_a_picker_is_a_pod_of_its_cluster_that_serves_the_pool(plan: WorldPlan) -> None:
    for cluster in plan.clusters:
        pods = {pod.pod: pod for pod in cluster.pods}
        for pool in cluster.picker.pools:
            for endpoint in pool.endpoints:
                pod = pods.pop(endpoint.id)
                assert endpoint.address == f"127.0.0.1:{pod.port}"
                assert (pod.model, *pod.aliases) == pool.names
                assert endpoint.capacity_requests == PROFILES[PROFILE].max_num_seqs
        assert not pods


def test_the_large_model_is_served_outside_the_eu_only(plan: WorldPlan) -> None:
    serving = {c.picker.jurisdiction for c in plan.clusters for p in c.picker.pools if LARGE_MODEL in p.names}
    assert serving == {"us", "in"}


def test_one_tenant_may_go_anywhere_and_one_stays_in_the_eu(plan: WorldPlan) -> None:
    grants = {tenant.id: tenant.grants for tenant in plan.policy.tenants}
    allowed = {
        tenant: {spec.id for spec in plan.policy.clusters if grant.residency.allows(spec.locality)}
        for tenant, grant in grants.items()
    }
    assert len(allowed[TENANT]) == 5  # type: ignore[index]  # the ids are texts
    assert allowed[EU_TENANT] == {"eu-west-1", "eu-west-2"}  # type: ignore[index]
    declared = frozenset(model.name for model in plan.policy.models)
    assert declared == {SMALL_MODEL, LARGE_MODEL}
    assert all(grant.models == declared for grant in grants.values())


def test_no_port_is_used_twice(plan: WorldPlan) -> None:
    routers = [region.router for region in plan.regions]
    pickers = [cluster.picker for cluster in plan.clusters]
    ports = [port for r in routers for port in (r.http.port, r.grpc.port, r.metrics.port)]
    ports += [port for p in pickers for port in (p.http.port, p.grpc.port, p.metrics.port)]
    ports += [pod.port for cluster in plan.clusters for pod in cluster.pods]
    assert len(ports) == len(set(ports))


def test_a_door_in_use_is_refused(keys: StateKeys) -> None:
    ports = HostPorts()
    ports.exactly(doors(BASE_PORT)[1])
    with pytest.raises(PortTakenError) as refused:
        demo_plan(keys, ports, WallMs(1), base_port=BASE_PORT)
    assert refused.value.port == BASE_PORT + 100


def test_real_parts_get_two_projectors_for_each_region(keys: StateKeys, plan: WorldPlan) -> None:
    real = demo_plan(
        keys, HostPorts(), WallMs(1), base_port=BASE_PORT, bus=Bus("127.0.0.1:9092", "redis://h")
    )
    assert {region.projectors for region in real.regions} == {2}
    assert {region.projectors for region in plan.regions} == {1}


def test_timers_of_health_can_be_chosen_and_the_keys_are_in_the_policy(keys: StateKeys) -> None:
    health = HealthPolicy(ramp_window=seconds(20))
    plan = demo_plan(keys, HostPorts(), WallMs(1), base_port=BASE_PORT, health=health)
    assert plan.policy.health is health
    assert plan.policy.token_keys == (keys.signing_key().public(),)
