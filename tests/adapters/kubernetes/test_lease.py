"""The Lease election against a real API server: what its contract suite cannot provoke."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from deploy.stack.kubernetes import KubernetesServer
from services.adapters.kubernetes.api import KubernetesApi
from services.adapters.kubernetes.lease import KubernetesLease, LeaseRules
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.core.units import ms, seconds
from tests.support.kubernetes import Namespace
from tests.support.wait import eventually

LEASE_API = "coordination.k8s.io/v1"
RULES = LeaseRules(lasts=seconds(1), renew_within=ms(700), every=ms(50))
Make = Callable[[], KubernetesLease]


@pytest.fixture
async def candidate(api: KubernetesApi, namespace: Namespace) -> AsyncIterator[Make]:
    async with AsyncExitStack() as closing:

        def make() -> KubernetesLease:
            made = KubernetesLease(
                api, namespace.name, "publisher", "picker-0", SystemClock(), SystemIds(), RULES
            )
            closing.push_async_callback(made.release)
            return made

        yield make


async def test_a_holder_renews_and_says_so_in_the_lease(candidate: Make, namespace: Namespace) -> None:
    holder = candidate()
    await holder.acquire()
    first = namespace.get(LEASE_API, "Lease", "publisher")["spec"]
    assert first["holderIdentity"].startswith("picker-0_")
    assert (first["leaseDurationSeconds"], first["leaseTransitions"]) == (1, 0)
    await eventually(
        lambda: namespace.get(LEASE_API, "Lease", "publisher")["spec"]["renewTime"] > first["renewTime"]
    )
    last = namespace.get(LEASE_API, "Lease", "publisher")["spec"]
    assert (last["acquireTime"], last["leaseTransitions"]) == (first["acquireTime"], 0)
    assert holder.held()


async def test_a_holder_that_died_is_succeeded_when_its_lease_ran_out(
    candidate: Make, namespace: Namespace
) -> None:
    dead, heir = candidate(), candidate()
    await dead.acquire()
    dead._end_renewing()
    await asyncio.wait_for(heir.acquire(), 10)
    assert (heir.held(), dead.held()) == (True, False)
    assert namespace.get(LEASE_API, "Lease", "publisher")["spec"]["leaseTransitions"] == 1


async def test_a_holder_whose_lease_another_took_stops_at_once(candidate: Make, namespace: Namespace) -> None:
    holder = candidate()
    await holder.acquire()
    namespace.patch(LEASE_API, "Lease", "publisher", {"spec": {"holderIdentity": "somebody"}})
    await eventually(lambda: not holder.held())


async def test_an_administrators_touch_or_deletion_takes_the_lease_from_nobody(
    candidate: Make, namespace: Namespace
) -> None:
    holder = candidate()
    await holder.acquire()
    namespace.patch(LEASE_API, "Lease", "publisher", {"metadata": {"labels": {"seen": "yes"}}})
    namespace.delete(LEASE_API, "Lease", "publisher")
    await eventually(lambda: namespace.client.get(holder._path).status_code == 200)
    assert holder.held()


async def test_of_candidates_that_come_at_once_one_holds_it(candidate: Make) -> None:
    candidates = [candidate() for _ in range(4)]
    loop = asyncio.get_running_loop()
    waiting = [loop.create_task(each.acquire()) for each in candidates]
    await eventually(lambda: any(task.done() for task in waiting))
    assert sum(each.held() for each in candidates) == 1
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_server_that_is_away_costs_the_lease_in_time(
    own_kubernetes_api: KubernetesApi, own_kubernetes: KubernetesServer
) -> None:
    holder = KubernetesLease(
        own_kubernetes_api, "default", "publisher", "picker-0", SystemClock(), SystemIds(), RULES
    )
    await holder.acquire()
    own_kubernetes.process.kill()
    await eventually(lambda: not holder.held())
    own_kubernetes.start()
    await asyncio.wait_for(holder.acquire(), 30)
    assert holder.held()
    own_kubernetes.kill()
    await holder.release()
    assert not holder.held()
