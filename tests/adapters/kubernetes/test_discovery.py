"""Discovery over a real API server: pools, pods, ranks, termination, and a server that is away."""

from collections.abc import Callable
from typing import Any

import pytest

from deploy.stack.kubernetes import KubernetesServer
from services.adapters.kubernetes.api import KubernetesApi
from services.adapters.kubernetes.discovery import KubernetesDiscovery
from services.adapters.kubernetes.watch import WatchRules
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.core.pods.discovered import DiscoveredEndpoint, StartPhase
from services.core.units import ms, seconds
from tests.adapters.kubernetes.conftest import Latest
from tests.support.kubernetes import Namespace, install, make_namespace, ready_status
from tests.support.wait import eventually

QUICK = WatchRules(retry_first=ms(20), retry_most=ms(100))
Follow = Callable[[Any], Latest]


def discovery(api: KubernetesApi, namespace: Namespace, rules: WatchRules = QUICK) -> KubernetesDiscovery:
    return KubernetesDiscovery(api, namespace.name, "pool", SystemClock(), SystemIds(), rules)


def named(latest: Latest) -> dict[str, DiscoveredEndpoint]:
    return {endpoint.name: endpoint for endpoint in latest.last or ()}


async def test_pods_of_the_pool_come_change_and_go(
    api: KubernetesApi, namespace: Namespace, follow: Follow
) -> None:
    namespace.pod("other", "10.1.0.9", labels={"app": "another"})
    latest = follow(discovery(api, namespace))
    await eventually(lambda: latest.last == ())
    namespace.pool()
    namespace.pod("a", "10.1.0.1")
    namespace.pod("b", "10.1.0.2", labels={"app": "server", "topology.kubernetes.io/zone": "z1"})
    await eventually(lambda: [each.ready for each in latest.last] == [True, True])
    found = named(latest)
    assert (found["a"].address, found["a"].ports, found["b"].zone) == ("10.1.0.1", (8000,), "z1")
    namespace.pod_status("a", ready_status("10.1.0.1", ready=False))
    await eventually(lambda: named(latest)["a"].ready is False)
    assert named(latest)["a"].phase is StartPhase.LOADING
    namespace.delete("v1", "Pod", "a")
    await eventually(lambda: named(latest).keys() == {"b"})


async def test_f155_a_pod_in_its_grace_period_is_terminating_though_ready(
    api: KubernetesApi, namespace: Namespace, follow: Follow
) -> None:
    namespace.pool()
    namespace.pod("a", "10.1.0.1")
    latest = follow(discovery(api, namespace))
    await eventually(lambda: named(latest))
    namespace.delete("v1", "Pod", "a", grace_s=60)
    await eventually(lambda: named(latest)["a"].terminating)
    assert named(latest)["a"].ready


async def test_ports_and_selector_of_the_pool_are_followed_and_a_deleted_pool_is_empty(
    api: KubernetesApi, namespace: Namespace, follow: Follow
) -> None:
    namespace.pool()
    namespace.pod("a", "10.1.0.1")
    namespace.pod("b", "10.1.0.2", labels={"app": "next"})
    latest = follow(discovery(api, namespace))
    await eventually(lambda: named(latest).keys() == {"a"})
    namespace.pool(ports=(8000, 8001))
    await eventually(lambda: named(latest)["a"].ports == (8000, 8001))
    namespace.pool(app="next")
    await eventually(lambda: named(latest).keys() == {"b"})
    assert () not in latest.sets[1:], "the old pods serve until the new ones are known"
    namespace.delete("inference.networking.k8s.io/v1", "InferencePool", "pool")
    await eventually(lambda: latest.last == ())


async def test_a_start_is_told_phase_by_phase(
    api: KubernetesApi, namespace: Namespace, follow: Follow
) -> None:
    namespace.pool()
    namespace.pod("a")
    latest = follow(discovery(api, namespace))
    await eventually(lambda: named(latest))
    assert (named(latest)["a"].phase, named(latest)["a"].address) == (StartPhase.SCHEDULED, "")
    status = ready_status("", ready=False)
    del status["podIP"], status["podIPs"]
    container = status["containerStatuses"][0] | {"state": {"waiting": {"reason": "ContainerCreating"}}}
    namespace.pod_status("a", status | {"phase": "Pending", "containerStatuses": [container]})
    await eventually(lambda: named(latest)["a"].phase is StartPhase.PULLING)
    namespace.pod_status("a", ready_status("10.1.0.1", ready=False, started_ago=30))
    await eventually(lambda: named(latest)["a"].phase is StartPhase.LOADING)
    assert seconds(29) <= named(latest)["a"].phase_age <= seconds(60)
    namespace.pod_status("a", ready_status("10.1.0.1"))
    await eventually(lambda: named(latest)["a"].phase is StartPhase.READY)


async def test_a_pool_that_breaks_its_schema_is_said_and_not_believed(
    api: KubernetesApi, namespace: Namespace, follow: Follow
) -> None:
    namespace.pool()
    namespace.pod("a", "10.1.0.1")
    source = discovery(api, namespace)
    latest = follow(source)
    await eventually(lambda: named(latest))
    namespace.pool(ports=(70_000,))
    await eventually(lambda: "70000" in source.trouble)
    assert named(latest)["a"].ports == (8000,)
    namespace.pool(ports=(8001,))
    await eventually(lambda: named(latest)["a"].ports == (8001,))
    assert source.trouble == ""


async def test_a_connection_that_died_in_silence_is_replaced(
    own_kubernetes: KubernetesServer, follow: Follow
) -> None:
    """The server is frozen, so nothing closes; when it goes on, the lost time is made up for."""
    install(own_kubernetes)
    api = KubernetesApi(own_kubernetes.kubeconfig())
    rules = WatchRules(span=seconds(1), silence=ms(500), retry_first=ms(20), retry_most=ms(100))
    with own_kubernetes.client() as client:
        namespace = make_namespace(own_kubernetes, "frozen", client)
        namespace.pool()
        namespace.pod("a", "10.1.0.1")
        source = discovery(api, namespace, rules)
        latest = follow(source)
        await eventually(lambda: named(latest))
        own_kubernetes.pause()
        await eventually(lambda: source.trouble, timeout_s=30)
        own_kubernetes.resume()
        namespace.pod("b", "10.1.0.2")
        await eventually(lambda: named(latest).keys() == {"a", "b"}, timeout_s=30)
    await api.close()


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "CrashLoopBackOff"])
async def test_a_start_that_failed_has_no_phase(
    api: KubernetesApi, namespace: Namespace, follow: Follow, reason: str
) -> None:
    namespace.pool()
    namespace.pod("a", "10.1.0.1", ready=False)
    status = ready_status("10.1.0.1", ready=False)
    status["containerStatuses"][0]["state"] = {"waiting": {"reason": reason}}
    namespace.pod_status("a", status)
    latest = follow(discovery(api, namespace))
    await eventually(lambda: named(latest))
    assert (named(latest)["a"].phase, named(latest)["a"].ready) == (None, False)
