from pathlib import Path

import pytest

from services.adapters.memory.clock import VirtualClock
from services.adapters.system.ids import SystemIds
from services.endpoint_picker.settings import Accept
from services.wire.config.load import InvalidDocumentsError, load
from services.worlds.demo import CannotStartError
from services.worlds.topology import Bus, WorldPlan
from services.worlds.topology_keys import StateKeys
from services.worlds.topology_ports import HostPorts
from services.worlds.up import site_of, site_plan, welcome
from tests.wire.config.example import EVERYTHING, FLEET, KEY, TENANT, TOKEN_KEYS

SITE = """\
apiVersion: gir.dev/v1alpha1
kind: Site
metadata: {name: laptop}
spec:
  metricsPort: 29090
  regions:
    - {region: eu-west, jurisdiction: eu, httpPort: 28080, grpcPort: 0}
  pickers:
    - cluster: eu-west-a
      httpPort: 0
      grpcPort: 0
      pools:
        - {name: llama, model: meta-llama/Llama-3.1-8B, simulatedPods: 2, simulatedProfile: a10-8b}
        - {name: mistral, model: mistral, pods: [{id: mistral-0, address: "127.0.0.1:8100"}]}
"""


@pytest.fixture
def keys(tmp_path: Path) -> StateKeys:
    return StateKeys(tmp_path, SystemIds())


def planned(text: str, keys: StateKeys) -> WorldPlan:
    return site_plan(load(text), keys, HostPorts(), VirtualClock())


def test_a_site_becomes_routers_pickers_and_pods(keys: StateKeys) -> None:
    plan = planned(f"{FLEET}---\n{TENANT}---\n{SITE}", keys)
    assert (plan.fleet, plan.bus, plan.metrics_port) == ("demo", Bus(), 29_090)
    (region,) = plan.regions
    assert (region.router.region, region.router.http.port, region.projectors) == ("eu-west", 28_080, 1)
    (cluster,) = plan.clusters
    picker = cluster.picker
    # A port of 0 is the one that the policy names.
    assert (picker.http.port, picker.grpc.port) == (8001, 9002)
    assert (picker.region, picker.jurisdiction, picker.http.accept) == ("eu-west", "eu", Accept.ROUTER)
    simulated, running = picker.pools
    assert simulated.names == ("meta-llama/Llama-3.1-8B", "llama")
    assert [pod.profile for pod in cluster.pods] == ["a10-8b", "a10-8b"]
    assert [f"127.0.0.1:{pod.port}" for pod in cluster.pods] == [e.address for e in simulated.endpoints]
    assert [(e.id, e.address, e.capacity_requests) for e in running.endpoints] == [
        ("mistral-0", "127.0.0.1:8100", None)
    ]


def test_a_site_on_real_parts_has_two_projectors_for_each_region(keys: StateKeys) -> None:
    plan = planned(EVERYTHING, keys)
    assert plan.bus == Bus("127.0.0.1:9092", "redis://127.0.0.1:6379/0")
    assert {region.projectors for region in plan.regions} == {2}


def test_tokens_of_the_sites_own_key_are_let_in_beside_declared_ones(keys: StateKeys) -> None:
    own = keys.signing_key().public()
    plan = planned(f"{FLEET}---\n{SITE}", keys)
    assert plan.policy.token_keys == (own,)
    other = planned(f"{FLEET}---\n{TOKEN_KEYS.replace('gir-1', 'other')}---\n{SITE}", keys)
    assert [key.kid for key in other.policy.token_keys] == ["other", own.kid]
    same = planned(f"{FLEET}---\n{TOKEN_KEYS}---\n{SITE}", keys)
    assert [key.kid for key in same.policy.token_keys] == [own.kid]
    assert KEY


def test_a_profile_that_does_not_exist_is_named(keys: StateKeys) -> None:
    with pytest.raises(CannotStartError, match="simulatedProfile 'b200' must be one of h100-8b, a10-8b"):
        planned(f"{FLEET}---\n{SITE.replace('a10-8b', 'b200')}", keys)


def test_without_a_site_there_is_nothing_to_start() -> None:
    with pytest.raises(CannotStartError, match="no Site") as refused:
        site_of(load(FLEET))
    assert refused.value.code == 2


def test_without_a_fleet_there_is_no_policy(keys: StateKeys) -> None:
    with pytest.raises(InvalidDocumentsError):
        planned(TENANT, keys)


def test_a_site_without_regions_needs_keys_derived_elsewhere(keys: StateKeys) -> None:
    pickers_only = SITE.replace(
        "{region: eu-west, jurisdiction: eu, httpPort: 28080, grpcPort: 0}", ""
    ).replace("  regions:\n    - \n", "")
    keys.cluster_keys("eu-west-a", ["far-away"])
    plan = planned(f"{FLEET}---\n{pickers_only}", keys)
    assert plan.regions == ()
    assert plan.clusters[0].picker.hand_off_keys == keys.derived_elsewhere("eu-west-a")


def test_the_welcome_says_where_it_listens_and_how_to_get_a_token(keys: StateKeys) -> None:
    text = welcome(planned(f"{FLEET}---\n{TENANT}---\n{SITE}", keys), keys)
    assert "router eu-west: http 127.0.0.1:28080 grpc 127.0.0.1:" in text
    assert "cluster eu-west-a: http 127.0.0.1:8001 grpc 127.0.0.1:9002" in text
    assert f"gir token mint --keys {keys.signing_folder}" in text
