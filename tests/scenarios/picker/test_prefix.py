"""Approximate prefix affinity and the strategies, through a running picker and real sockets."""

import asyncio
from collections import Counter

import pytest

from tests.endpoint_picker.cluster import Cluster, simulated_pod
from tests.scenarios.picker.asking import QUICK, ask, direct_cluster, pod_for, refusal
from tests.support.wait import eventually


def prompt(number: int) -> str:
    """1,000 tokens that differ from the first one on."""
    return f"{number:04d}" * 1_000


async def test_a_repeated_prompt_stays_with_its_pod_and_others_spread() -> None:
    async with direct_cluster(3) as cluster:
        homes = {}
        for number in range(15):
            homes[number] = await pod_for(cluster.client, prompt(number))
        assert set(homes.values()) == {"pod-0", "pod-1", "pod-2"}
        for number, home in homes.items():
            assert {await pod_for(cluster.client, prompt(number)) for _ in range(3)} == {home}


async def test_a_longer_prompt_follows_the_one_it_begins_with() -> None:
    async with direct_cluster(3) as cluster:
        home = await pod_for(cluster.client, prompt(1))
        for number in range(5):
            assert await pod_for(cluster.client, prompt(1) + f" and {number}") == home


async def test_if_available_is_412_until_the_prompt_is_cached() -> None:
    async with direct_cluster(2) as cluster:
        cold = await ask(cluster.client, prompt(1), prefer="if-available")
        assert refusal(cold) == (412, "cache_miss")
        assert [pod.in_flight for pod in cluster.picker.observer.table] == [0, 0]
        home = await pod_for(cluster.client, prompt(1))
        assert await pod_for(cluster.client, prompt(1), prefer="if-available") == home


async def test_f026_a_pod_that_comes_back_with_another_block_size_gains_affinity_again() -> None:
    async with direct_cluster(2) as cluster:
        home = await pod_for(cluster.client, prompt(1))
        place = int(home[-1])
        port = cluster.pods[place].port
        cluster.pods[place].reset()
        await eventually(lambda: cluster.state(home) == "FAILED")
        engine = QUICK | {"block_size": 128}
        cluster.pods[place] = await simulated_pod(place, port=port, engine=engine)
        await eventually(lambda: cluster.state(home) == "READY")
        await eventually(lambda: _block_tokens(cluster, home) == 128)
        homes = {await pod_for(cluster.client, prompt(number)) for number in range(10, 22)}
        assert homes == {"pod-0", "pod-1"}
        for number in range(10, 22):
            first = await pod_for(cluster.client, prompt(number))
            assert await pod_for(cluster.client, prompt(number), prefer="if-available") == first


def _block_tokens(cluster: Cluster, pod: str) -> int | None:
    reading = cluster.picker.observer.table[pod].reading
    return None if reading is None else reading.block_tokens


@pytest.mark.parametrize("name", ["ROUND_ROBIN", "round-robin"])
async def test_round_robin_gives_each_its_turn(name: str) -> None:
    async with direct_cluster(3, scheduling={"strategy": name}) as cluster:
        served = [await pod_for(cluster.client, prompt(1)) for _ in range(9)]
        assert served[:3] == served[3:6] == served[6:]
        assert len(set(served)) == 3


async def test_random_reaches_everybody_and_knows_no_prefix() -> None:
    async with direct_cluster(3, scheduling={"strategy": "RANDOM"}) as cluster:
        served = Counter([await pod_for(cluster.client, prompt(1)) for _ in range(40)])
        assert set(served) == {"pod-0", "pod-1", "pod-2"}
        assert cluster.picker.prefix is None


async def test_least_outstanding_avoids_pods_that_are_busy() -> None:
    by_load = {"strategy": "LEAST_OUTSTANDING_REQUESTS"}
    async with direct_cluster(3, scheduling=by_load) as cluster, asyncio.TaskGroup() as scope:
        held = []
        for busy in (1, 2):
            held.append(scope.create_task(ask(cluster.client, prompt(1), max_tokens=50_000)))
            await _see_running(cluster, busy)
        (free,) = {"pod-0", "pod-1", "pod-2"} - _running(cluster)
        for _ in range(5):
            assert await pod_for(cluster.client, prompt(1)) == free
        for task in held:
            task.cancel()


async def _see_running(cluster: Cluster, count: int) -> None:
    await eventually(lambda: len(_running(cluster)) == count)


def _running(cluster: Cluster) -> set[str]:
    """The pods whose metrics show a request."""
    return {pod.id for pod in cluster.picker.observer.table if pod.reading and pod.reading.running}


async def test_prefix_aware_is_the_default_by_its_name() -> None:
    async with direct_cluster(3, scheduling={"strategy": "PREFIX_AWARE"}) as cluster:
        home = await pod_for(cluster.client, prompt(7))
        assert {await pod_for(cluster.client, prompt(7)) for _ in range(5)} == {home}
