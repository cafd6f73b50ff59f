"""Kafka, Redis and both stop under load at two doors, and return: nobody who sends requests notices."""

import asyncio

import pytest

from services.core.units import after, seconds
from tests.scenarios.processes.fleet import ProcessFleet
from tests.scenarios.processes.plan import EU, ROUTED, US
from tests.scenarios.processes.traffic import BOTH_DOORS, CLOCK, polled, settled, traffic
from tests.support.metrics import read_metrics

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(240)]

OUTAGE = seconds(10)
FRESH_S = 1.25
"""A cluster whose last report is younger than this is not silent."""


def router_shows(fleet: ProcessFleet, sample: str, value: float) -> bool:
    return all(fleet.metrics(region)[sample] == value for region in ROUTED)


def caught_up(fleet: ProcessFleet, policy_revision: float) -> bool:
    """Whether both routers and all projectors work as if nothing had been."""
    for region, clusters in ((EU, None), (US, fleet.plan.clusters_of(US))):
        metrics = fleet.metrics(region)
        silences = [value for name, value in metrics.items() if name.startswith("gir_cluster_silence")]
        connected = metrics["gir_router_store_connected"] == 1 and metrics["gir_fleet_bus_outage"] == 0
        same_policy = metrics["gir_router_policy_revision"] == policy_revision
        live = len(silences) == len(fleet.plan.clusters) and max(silences) < FRESH_S
        if not (connected and same_policy and live and fleet.serving(region, clusters)):
            return False
    pages = [read_metrics(port) for port in fleet.plan.projector_metrics.values()]
    return all(page["gir_projector_ready"] == page["gir_projector_bus_connected"] == 1 for page in pages)


def replays(fleet: ProcessFleet) -> list[float]:
    return [
        read_metrics(port)["gir_projector_replays_total"] for port in fleet.plan.projector_metrics.values()
    ]


@pytest.mark.parametrize("outage", ["kafka", "redis", "both"])
async def test_an_outage_is_not_noticed_and_the_view_catches_up_by_itself(
    fleet: ProcessFleet, outage: str
) -> None:
    """Ten seconds without Kafka (SIGTERM), without Redis (SIGTERM, empty afterwards), without both (SIGKILL)."""
    kafka, redis = fleet.kafka, fleet.redis
    away = {"kafka": [kafka.stop], "redis": [redis.stop], "both": [kafka.kill, redis.kill]}[outage]
    back = {"kafka": [kafka.start], "redis": [redis.start], "both": [kafka.start, redis.start]}[outage]
    await settled(fleet)
    revision = fleet.metrics(EU)["gir_router_policy_revision"]
    replays_before = replays(fleet)
    async with traffic(fleet, BOTH_DOORS) as running:
        await running.answers(20, CLOCK.now())
        await asyncio.gather(*map(asyncio.to_thread, away))
        gone_at = CLOCK.now()
        if outage == "kafka":
            await polled(lambda: router_shows(fleet, "gir_fleet_bus_outage", 1), "the outage to be named")
        else:
            await polled(
                lambda: router_shows(fleet, "gir_router_store_connected", 0), "the store to be missed"
            )
        await running.answers(20, after(gone_at, OUTAGE))
        await asyncio.gather(*map(asyncio.to_thread, back))
        await polled(lambda: caught_up(fleet, revision), "the view to catch up")
        await running.answers(20, CLOCK.now())
        await running.finish()
    assert [sample for sample in running.samples if sample.failed] == []
    if outage != "kafka":
        assert all(now > before for now, before in zip(replays(fleet), replays_before, strict=True))
