"""A picker in a cluster: its pods from an InferencePool, its election by a Lease, its report of a pool that warms up."""

from collections.abc import AsyncIterator

import httpx
import pytest

from deploy.stack.kubernetes import KubernetesServer
from services.adapters.memory.bus import MemoryBus
from services.adapters.ports import Topic
from services.adapters.system.clock import SystemClock
from services.core.fleet import PoolReport
from services.endpoint_picker.assembly import Shared, build
from services.endpoint_picker.process import EndpointPicker
from services.simulator.assembly import RunningPod
from services.wire.health_codec import decode_report
from tests.endpoint_picker.cluster import (
    CLUSTER,
    KEY,
    MODEL,
    WAIT_S,
    chat,
    picker_settings,
    simulated_pod,
    token,
)
from tests.support.kubernetes import Namespace, install, make_namespace, ready_status
from tests.support.wait import eventually


class InKubernetes:
    """The picker, its namespace and the one model server behind every pod that a test declares."""

    def __init__(
        self, picker: EndpointPicker, namespace: Namespace, bus: MemoryBus, server: RunningPod
    ) -> None:
        self.picker = picker
        self.namespace = namespace
        self._bus = bus
        self.server = server

    def report(self) -> PoolReport | None:
        value = self._bus.partition_of(Topic.HEALTH, CLUSTER).newest(CLUSTER)
        return None if value is None else decode_report(value).pools[0]

    async def ask(self) -> int:
        async with httpx.AsyncClient(timeout=WAIT_S) as client:
            url = f"http://127.0.0.1:{self.picker.http_port}/v1/chat/completions"
            answer = await client.post(url, json=chat(), headers={"x-gir-hand-off": token()})
        return answer.status_code


@pytest.fixture
async def world(kubernetes_server: KubernetesServer, fresh_name: str) -> AsyncIterator[InKubernetes]:
    install(kubernetes_server)
    server = await simulated_pod(0)
    port = int(server.address.rpartition(":")[2])
    bus = MemoryBus(SystemClock())
    shared = Shared(
        sender=bus.publisher(), reader=bus.reader((Topic.HEALTH,)), hand_off_keys={KEY.kid: KEY.secret}
    )
    pool = {
        "name": "chat",
        "models": [MODEL],
        "discovery": {"kind": "kubernetes", "pool": "llama"},
        "start_takes_ms": 120_000,
    }
    access = {"kubeconfig": str(kubernetes_server.kubeconfig()), "namespace": fresh_name}
    picker = build(picker_settings([], pools=[pool], kubernetes=access, lease="kubernetes"), shared)
    with kubernetes_server.client() as client:
        namespace = make_namespace(kubernetes_server, fresh_name, client)
        namespace.pool("llama", ports=(port,))
        await picker.start()
        yield InKubernetes(picker, namespace, bus, server)
        await picker.stop()
    await server.stop()


async def test_a_pool_warms_up_serves_and_is_scaled_to_zero(world: InKubernetes) -> None:
    def holds(ready: int, warming: int) -> bool:
        report = world.report()
        return report is not None and (report.ready_endpoints, report.warming_endpoints) == (ready, warming)

    assert await world.ask() == 503
    # The server itself answers already; it is the orchestrator's word that keeps it out.
    world.namespace.pod("a", "127.0.0.1", ready=False)
    await eventually(lambda: holds(ready=0, warming=1))
    await eventually(lambda: (report := world.report()) is not None and report.warming_eta_ms is not None)
    report = world.report()
    assert report is not None
    assert 0 < (report.warming_eta_ms or 0) <= 120_000
    assert await world.ask() == 503
    world.namespace.pod_status("a", ready_status("127.0.0.1"))
    await eventually(lambda: holds(ready=1, warming=0))
    assert await world.ask() == 200
    world.namespace.delete("v1", "Pod", "a", grace_s=60)
    await eventually(lambda: holds(ready=0, warming=0))
    assert await world.ask() == 503
    world.namespace.pod("b", "127.0.0.1")
    await eventually(lambda: holds(ready=1, warming=0))
    assert await world.ask() == 200


async def test_the_publisher_is_the_holder_of_the_lease_and_gives_it_up_at_its_end(
    world: InKubernetes,
) -> None:
    await eventually(lambda: world.report() is not None)
    lease_api = "coordination.k8s.io/v1"
    spec = world.namespace.get(lease_api, "Lease", "gir-endpoint-picker")["spec"]
    assert spec["holderIdentity"]
    await world.picker.stop()
    assert not world.namespace.get(lease_api, "Lease", "gir-endpoint-picker")["spec"].get("holderIdentity")
