"""Flow control as an `EndpointPickerConfig` declares it, through a running picker: waiting, order, every refusal."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.endpoint_picker.cluster import Cluster, chat
from tests.endpoint_picker.doors.processor import data_plane
from tests.scenarios.picker.asking import ask, config_file, direct_cluster, refusal
from tests.support.metrics import read_metrics
from tests.support.wait import eventually

CONFIG = """
featureGates: [flowControl]
plugins:
  - {type: queue-scorer}
  - {type: concurrency-detector, parameters: {maxConcurrency: 1}}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  enableEviction: true
"""
OBJECTIVES = {"gold": 10, "spare": -1}
LONG = 50_000
"""Tokens of an answer that takes longer than a test."""


def queueing(
    folder: Path, pods: int = 1, more: str = "", **changes: Any
) -> AbstractAsyncContextManager[Cluster]:
    """A cluster whose pods take one request each; everything else waits."""
    scheduling = config_file(folder, CONFIG + more)
    return direct_cluster(pods, scheduling=scheduling, objectives=OBJECTIVES, **changes)


def waiting(cluster: Cluster) -> int:
    return sum(queue.queue_size for queue in cluster.picker.life.flow.figures().queues)


async def queued(cluster: Cluster, count: int) -> None:
    await eventually(lambda: waiting(cluster) == count)


@asynccontextmanager
async def held(cluster: Cluster) -> AsyncIterator["asyncio.Task[httpx.Response]"]:
    """The pod's one place is taken until the task is cancelled."""
    async with asyncio.TaskGroup() as scope:
        holder = scope.create_task(ask(cluster.client, "hold", max_tokens=LONG))
        await eventually(lambda: cluster.picker.observer.table["pod-0"].in_flight == 1)
        yield holder
        holder.cancel()


async def test_a_saturated_pool_queues_and_serves_in_turn(tmp_path: Path) -> None:
    async with queueing(tmp_path) as cluster, asyncio.TaskGroup() as scope:
        async with held(cluster):
            waiter = [scope.create_task(ask(cluster.client, f"{number}")) for number in range(3)]
            await eventually(lambda: waiting(cluster) == 3)
            assert cluster.picker.observer.table["pod-0"].in_flight == 1
            samples = await asyncio.to_thread(read_metrics, cluster.picker.metrics_port)
            flow = 'fairness_id="default-flow",inference_pool="chat",priority="0"'
            assert samples[f"llm_d_epp_flow_control_queue_size{{{flow}}}"] == 3
            saturation = 'llm_d_epp_flow_control_pool_saturation{inference_pool="chat",stage="effective"}'
            assert samples[saturation] == 1
        answers = [await each for each in waiter]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert waiting(cluster) == 0
        samples = await asyncio.to_thread(read_metrics, cluster.picker.metrics_port)
        waited = '{fairness_id="default-flow",inference_pool="chat",outcome="Dispatched",priority="0"}'
        assert samples[f"llm_d_epp_flow_control_request_queue_duration_seconds_count{waited}"] == 3


async def test_priority_goes_first_and_tenants_share_the_rest(tmp_path: Path) -> None:
    async with queueing(tmp_path) as cluster, asyncio.TaskGroup() as scope:
        served: list[str] = []

        async def send(name: str, flow: str, **headers: Any) -> None:
            answer = await ask(cluster.client, name, x_llm_d_inference_fairness_id=flow, **headers)
            assert answer.status_code == 200
            served.append(flow)

        async with held(cluster):
            for number in range(6):
                scope.create_task(send(f"big {number}", "big"))
                await queued(cluster, number + 1)
            for number in range(2):
                scope.create_task(send(f"small {number}", "small"))
            scope.create_task(send("urgent", "urgent", x_llm_d_inference_objective="gold"))
            await eventually(lambda: waiting(cluster) == 9)
        await eventually(lambda: len(served) == 9)
        assert served[0] == "urgent"
        assert served[1:6].count("small") == 2
        assert served[6:] == ["big", "big", "big"]


async def test_waiting_too_long_is_429_with_retry_after_at_both_doors(tmp_path: Path) -> None:
    more = "  defaultRequestTTL: 200ms\n"
    async with (
        queueing(tmp_path, more=more) as cluster,
        data_plane(cluster.picker.grpc_port) as plane,
        held(cluster),
    ):
        over_http = await ask(cluster.client, "late")
        assert refusal(over_http) == (429, "queued_too_long")
        assert over_http.headers["x-llm-d-request-dropped-reason"] == "rejected-ttl-expired"
        assert int(over_http.headers["retry-after"]) >= 1
        over_ext_proc = await plane.ask(json.dumps(chat()).encode())
        assert over_ext_proc.status == 429
        for name in ("x-llm-d-request-dropped-reason", "x-gir-drop-reason"):
            assert over_ext_proc.headers[name] == over_http.headers[name]
        assert int(over_ext_proc.headers["retry-after"]) >= 1
        assert json.loads(over_ext_proc.body) == over_http.json()


async def test_a_full_queue_is_429_at_once(tmp_path: Path) -> None:
    more = "  defaultPriorityBand: {maxRequests: 1}\n"
    async with queueing(tmp_path, more=more) as cluster, asyncio.TaskGroup() as scope, held(cluster):
        waiter = scope.create_task(ask(cluster.client, "first"))
        await eventually(lambda: waiting(cluster) == 1)
        full = await ask(cluster.client, "second")
        assert refusal(full) == (429, "queue_full")
        assert full.headers["x-llm-d-request-dropped-reason"] == "rejected-saturated"
        assert int(full.headers["retry-after"]) >= 1
        waiter.cancel()


async def test_sheddable_work_is_evicted_for_what_matters_more(tmp_path: Path) -> None:
    async with queueing(tmp_path) as cluster, asyncio.TaskGroup() as scope:
        spare = scope.create_task(
            ask(cluster.client, "spare", max_tokens=LONG, x_llm_d_inference_objective="spare")
        )
        await eventually(lambda: cluster.picker.observer.table["pod-0"].in_flight == 1)
        wanted = await ask(cluster.client, "wanted")
        assert wanted.status_code == 200
        evicted = await spare
        assert refusal(evicted) == (429, "evicted")
        assert evicted.headers["x-llm-d-request-dropped-reason"] == "evicted"


async def test_a_caller_who_leaves_gives_up_its_place_in_the_queue(tmp_path: Path) -> None:
    async with queueing(tmp_path) as cluster, asyncio.TaskGroup() as scope, held(cluster):
        waiter = scope.create_task(ask(cluster.client, "impatient"))
        await eventually(lambda: waiting(cluster) == 1)
        waiter.cancel()
        await eventually(lambda: waiting(cluster) == 0)


async def test_an_empty_pool_is_503_at_once_and_not_429(tmp_path: Path) -> None:
    async with queueing(tmp_path, 0) as cluster:
        answer = await ask(cluster.client, "anybody")
        assert refusal(answer) == (503, "no_endpoints")
        assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"


async def test_a_stop_lets_what_waits_be_served(tmp_path: Path) -> None:
    async with queueing(tmp_path) as cluster, asyncio.TaskGroup() as scope:
        async with held(cluster):
            waiter = scope.create_task(ask(cluster.client, "queued"))
            await eventually(lambda: waiting(cluster) == 1)
            stopping = scope.create_task(cluster.picker.stop())
            await eventually(lambda: cluster.picker.doors.http.entry.draining)
        assert (await waiter).status_code == 200
        await stopping


async def test_what_waits_until_the_end_of_a_drain_is_told_that_it_shuts_down(tmp_path: Path) -> None:
    async with queueing(tmp_path, drain_ms=1_300) as cluster, asyncio.TaskGroup() as scope:
        holder = scope.create_task(_cut(cluster))
        await eventually(lambda: cluster.picker.observer.table["pod-0"].in_flight == 1)
        waiter = scope.create_task(ask(cluster.client, "queued"))
        await eventually(lambda: waiting(cluster) == 1)
        await cluster.picker.stop()
        answer = await waiter
        assert refusal(answer) == (503, "shutting_down")
        assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-shutting-down"
        assert await holder


async def _cut(cluster: Cluster) -> bool:
    """Whether a request that takes too long is cut."""
    try:
        await ask(cluster.client, "hold", max_tokens=LONG)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return True
    return False
