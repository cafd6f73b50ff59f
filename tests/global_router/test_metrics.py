"""The metrics page of a router: every name is of the closed list, and the values move."""

from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from services.adapters.memory.bus import MemoryBus
from services.adapters.memory.clock import VirtualClock
from services.adapters.memory.store import MemoryFleetStore, MemoryStoreServer
from services.adapters.metric_names import router as names
from services.adapters.metric_names.catalogue import METRICS
from services.global_router.metrics import projector_values
from services.global_router.project import PROJECTED_TOPICS, Projector
from tests.global_router.rig import running, status


async def page(port: int) -> dict[tuple[str, tuple[str, ...]], float]:
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_requests_attempts_and_clusters_show(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.gateways["eu-a"].script = status(500)
        await rig.post()
        await rig.post(tenant="stranger")
        values = await page(rig.router.metrics_port)
        assert values[names.ROUTER_REQUESTS, ()] == 1
        assert values[names.ROUTER_ATTEMPTS, ()] == 2
        assert values[names.ROUTER_ENDINGS, ("completed",)] == 1
        assert values[names.ROUTER_OUTCOMES, ("gateway_error",)] == 1
        assert values[names.ROUTER_REFUSALS, ("invalid_api_key",)] == 1
        assert values[names.ROUTER_READY, ()] == 1
        assert values[names.ROUTER_STORE_CONNECTED, ()] == 1
        assert values[names.ROUTER_POLICY_REVISION, ()] == 1
        assert values[names.CLUSTER_STATE, ("eu-a", "healthy")] == 1
        assert values[names.CLUSTER_IN_FLIGHT, ("us-a",)] == 0
        assert values[names.ROUTER_CLUSTER_MOVES, ("report", "healthy")] == 2
        assert values[names.ROUTER_CHANGES, ()] >= 2
        rig.router.supervisor.tallies.probes_voided += 1
        rig.router.supervisor.tallies.probes += 1
        voided = await page(rig.router.metrics_port)
        assert voided[names.ROUTER_PROBES, ("voided",)] == 1
        assert sum(voided[names.ROUTER_PROBES, (result,)] for result in ("ok", "failed", "voided")) == (
            rig.router.supervisor.tallies.probes
        )
        assert 0 <= values[names.CLUSTER_SILENCE, ("us-a",)] < 2


def test_a_projectors_values_are_all_in_the_closed_list() -> None:
    clock = VirtualClock()
    bus = MemoryBus(clock)
    store = MemoryFleetStore(MemoryStoreServer(clock))
    projector = Projector(bus.reader(PROJECTED_TOPICS), store, bus.publisher(), clock)
    values = list(projector_values(projector))
    assert {value.name for value in values} <= set(METRICS)
    assert all(len(value.labels) == len(METRICS[value.name].labels) for value in values)
    assert {value.value for value in values if value.name == names.PROJECTOR_RECORDS} == {0}
    assert {value.value for value in values if value.name == names.PROJECTOR_READY} == {False}
