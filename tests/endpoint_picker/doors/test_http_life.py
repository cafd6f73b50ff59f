"""What the life cycle does to a request at the HTTP door: renamed, told, evicted, given up."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from services.core.outcomes import DropReason
from services.core.units import seconds
from services.endpoint_picker.lifecycle import Dropped
from services.endpoint_picker.sessions import SessionTable, session_token
from tests.endpoint_picker.cluster import MODEL, Cluster, chat, cluster_of
from tests.endpoint_picker.doors.test_forward import OK, SSE, chunk, outcomes, pod_that
from tests.support.wait import eventually

DIRECT = {"port": 0, "accept": "direct"}
REWRITE = {"x-llm-d-model-name-rewrite": "base"}
EVICTED = Dropped(DropReason.EVICTED, "Needed.", seconds(2))


async def figures(cluster: Cluster) -> dict[str, float]:
    """Every sample of the running picker's page, summed over labels."""
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{cluster.picker.metrics_port}/metrics")).text
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] += sample.value  # type: ignore[assignment]  # samples are floats
    return dict(found)


async def test_a_rewritten_model_is_named_as_the_client_did_in_json_and_events() -> None:
    body = b'{"model":"base","usage":{"prompt_tokens":3,"completion_tokens":2}}'
    event = b'data: {"model":"base","choices":[{}]}\n\n'
    answers = [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body),
        SSE
        + b"".join(chunk(event[at : at + 9]) for at in range(0, len(event), 9))
        + chunk(b"data: [DONE]\n\n")
        + b"0\r\n\r\n",
    ]

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(answers.pop(0))

    async with pod_that(answer, http=DIRECT) as cluster:
        plain = await cluster.client.post("/v1/chat/completions", json=chat(), headers=REWRITE)
        assert plain.json() == json.loads(body) | {"model": MODEL}
        events = await cluster.client.post("/v1/chat/completions", json=chat(stream=True), headers=REWRITE)
        assert events.content == event.replace(b"base", MODEL.encode()) + b"data: [DONE]\n\n"
        page = await figures(cluster)
        sizes, tokens = (f"inference_objective_{name}" for name in ("response_sizes", "output_tokens"))
        assert (page[f"{sizes}_count"], page[f"{sizes}_sum"]) == (2, len(body) + len(event) + 14)
        assert (page[f"{tokens}_count"], page[f"{tokens}_sum"]) == (1, 2)


async def test_an_eviction_before_the_first_byte_is_429_and_cuts_the_pod() -> None:
    async with cluster_of(1) as cluster, asyncio.TaskGroup() as scope:
        engine, door = cluster.pods[0].engine, cluster.picker.doors.http
        asked = scope.create_task(cluster.post(chat(max_tokens=4_000)))
        await eventually(lambda: engine.running == 1)
        forward = next(iter(door._running))
        for _ in range(2):
            forward.evict(EVICTED.reason, EVICTED.message, EVICTED.retry_after)
        answer = await asked
        assert (answer.status_code, answer.headers["x-gir-drop-reason"]) == (429, "evicted")
        assert answer.headers["retry-after"] == "2"
        assert outcomes(cluster) == {"cancelled": 1}
        assert not door._running
        await eventually(lambda: engine.running == 0)


async def test_an_eviction_that_comes_after_the_first_byte_changes_nothing() -> None:
    proceed = asyncio.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(SSE + chunk(b"data: {}\n\n"))
        await proceed.wait()
        writer.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    async with pod_that(slow) as cluster, asyncio.TaskGroup() as scope:
        asked = scope.create_task(cluster.post(chat(stream=True)))
        door = cluster.picker.doors.http
        await eventually(lambda: door._running and next(iter(door._running)).responder.started)
        next(iter(door._running)).evict(EVICTED.reason, EVICTED.message, EVICTED.retry_after)
        proceed.set()
        assert (await asked).content == b"data: {}\n\ndata: [DONE]\n\n"
        assert outcomes(cluster) == {"succeeded": 1}


async def test_who_leaves_in_the_dark_is_not_forwarded_in_the_light() -> None:
    asked_pod = 0

    async def count(writer: asyncio.StreamWriter) -> None:
        nonlocal asked_pod
        asked_pod += 1
        writer.write(OK)

    async with pod_that(count) as cluster, asyncio.TaskGroup() as scope:
        door = cluster.picker.doors.http
        cluster.picker.black_hole(True)
        asked = scope.create_task(cluster.post(chat()))
        await eventually(lambda: door._held)
        asked.cancel()
        await eventually(lambda: cluster.picker.doors.http_server.connections == 0)
        cluster.picker.black_hole(False)
        assert not door._running
        assert asked_pod == 0


async def test_a_session_token_names_the_pod_where_sessions_are_on() -> None:
    async def forge(writer: asyncio.StreamWriter) -> None:
        writer.write(
            OK.replace(b"\r\n\r\n", b"\r\nx-session-token: forged\r\nx-gir-endpoint: forged\r\n\r\n")
        )

    async with pod_that(forge) as cluster:
        cluster.picker.life.sessions = SessionTable()
        answer = await cluster.post(chat())
        assert answer.headers.get_list("x-session-token") == [session_token("odd")]
        assert answer.headers.get_list("x-gir-endpoint") == ["odd"]


QUEUE = """
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
flowControl: {saturationDetector: {pluginRef: concurrency-detector}}
"""


async def test_a_client_that_leaves_the_queue_frees_its_place_at_once(tmp_path: Path) -> None:
    config = tmp_path / "picker.yaml"
    config.write_text(QUEUE)
    pod = {"faults": {"extra_ttft_ms": 60_000}}
    async with (
        cluster_of(1, pod=pod, scheduling={"config": str(config)}) as cluster,
        asyncio.TaskGroup() as scope,
    ):
        door, life = cluster.picker.doors.http, cluster.picker.life
        first = scope.create_task(cluster.post(chat()))
        await eventually(lambda: len(door._running) == 1)
        second = scope.create_task(cluster.post(chat()))
        await eventually(lambda: len(door.waiting) == 1 and life.flow.controller.queued == 1)
        second.cancel()
        await eventually(lambda: not door.waiting)
        assert (life.flow.controller.queued, life.running) == (0, 1)
        first.cancel()
        await eventually(lambda: life.running == 0)
