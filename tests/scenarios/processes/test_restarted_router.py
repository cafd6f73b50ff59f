"""A router comes back to a list in which a cluster stands that died long ago: it gets no traffic."""

import asyncio
from collections.abc import Callable

import pytest

from services.adapters.ports import ChangeKind
from services.adapters.redis.store import RedisFleetStore
from services.adapters.system.ids import SystemIds
from services.core.units import Instant
from tests.scenarios.processes.evidence import attempts_in
from tests.scenarios.processes.fleet import ProcessFleet
from tests.scenarios.processes.plan import AP, EU, FLEET
from tests.scenarios.processes.traffic import CLOCK, STEADY, Traffic, polled, settled, traffic

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(240)]

REQUESTS = 80


async def listed(fleet: ProcessFleet) -> set[str]:
    """The clusters whose reports the first region's store holds."""
    store = RedisFleetStore(fleet.redis.url, FLEET, EU, SystemIds())
    try:
        listing = await store.list()
    finally:
        await store.close()
    return {entry.key for entry in listing.entries if entry.kind is ChangeKind.HEALTH}


async def serves_without(fleet: ProcessFleet, running: Traffic, ready: Callable[[], bool]) -> Instant:
    """Wait until the router is `ready` and has answered plenty after that; return when it was ready."""
    await polled(ready, "the router to serve")
    serving_at = CLOCK.now()
    await running.answers(REQUESTS, serving_at)
    assert fleet.serving(EU, fleet.plan.clusters_of(AP), "unhealthy")
    return serving_at


async def test_a_cluster_long_dead_in_a_restarted_routers_list_gets_no_traffic(fleet: ProcessFleet) -> None:
    """Once with the store, whose list still holds its last report; once without any, from disk and probes."""
    (dead,) = fleet.plan.clusters_of(AP)
    others = [cluster.name for cluster in fleet.plan.clusters if cluster.name != dead]
    router, file = fleet.router(EU), fleet.decision_file(EU)
    await settled(fleet)
    # The clients knock all the while: what a router does in its first moments counts most.
    async with traffic(fleet, STEADY) as running:
        await running.in_flight([dead], 4)
        await asyncio.to_thread(fleet.processes["ap-south-1-picker-0"].kill)
        await polled(lambda: fleet.serving(EU, [dead], "unhealthy"), "the death to be found out")

        await asyncio.to_thread(router.kill)
        restarted_at = CLOCK.now()
        assert dead in await listed(fleet)
        router.start()
        with_store = await serves_without(fleet, running, lambda: fleet.serving(EU, others))
        with_store_until = CLOCK.now()

        await asyncio.to_thread(fleet.redis.stop)
        await asyncio.to_thread(router.kill)
        router.start()
        # Without reports a cluster whose probes answer is routable all the same.
        without_store = await serves_without(fleet, running, lambda: fleet.serving(EU, others, "stale"))
        assert fleet.metrics(EU)["gir_router_store_connected"] == 0

        store_back = CLOCK.now()
        # The store returns empty and is filled from the bus, where the dead cluster's report still lies.
        await asyncio.to_thread(fleet.redis.start)
        await serves_without(fleet, running, lambda: fleet.serving(EU, others))
        assert dead in await listed(fleet)
        await running.finish()

    assert "HTTP Request" not in router.stderr(), "probes are not logged one by one"
    sent_to = [attempt.cluster for attempt in attempts_in(file, restarted_at)]
    assert dead not in sent_to
    assert len(sent_to) >= 3 * REQUESTS
    # What was under way when the router was killed under its clients proves nothing. Without reports a router
    # does not know who serves which model, so failures are judged only where it had the store.
    asked = [
        sample
        for sample in running.samples
        if sample.sent_at >= with_store and sample.ended_at is not None and sample.ended_at < with_store_until
    ]
    assert len(asked) >= REQUESTS / 2
    assert [sample for sample in asked if sample.failed] == []
    blind = [sample for sample in running.samples if without_store <= sample.sent_at < store_back]
    assert sum(not sample.failed for sample in blind) >= REQUESTS / 2
