"""Faults one by one over real sockets: what each knob does, and that a wrong change is refused whole."""

import asyncio
import math
from typing import Any

import httpx
import pytest

from services.adapters.http.connection import Phase
from services.simulator.assembly import RunningPod
from services.simulator.faults import Faults
from tests.simulator.pods import chat, connected, raw_request, running_pod
from tests.simulator.test_vllm_page import parsed, value
from tests.support.wait import eventually


def busy(pod: RunningPod) -> int:
    """How many connections owe an answer."""
    return sum(connection.phase is Phase.BUSY for connection in pod._sockets._connections)


async def test_knobs_are_shown_and_changed_in_part(http: httpx.AsyncClient) -> None:
    assert (await http.get("/admin/config")).json() == Faults().document()
    changed = await http.post("/admin/config", json={"extra-ttft-ms": 5})
    assert changed.json() == Faults(extra_ttft_ms=5.0).document()
    assert (await http.get("/admin/config")).json() == changed.json()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "unexpected end of data"),
        (b"[1]", "expected a JSON object of knobs"),
        (b'{"hang": 3, "extra_ttft_ms": 9}', "hang: expected true or false, not 3"),
        (b'{"crash": "exit", "extra_ttft_ms": 9}', "crash: this pod can only do reset, not 'exit'"),
    ],
)
async def test_a_wrong_change_is_refused_whole(http: httpx.AsyncClient, content: bytes, message: str) -> None:
    answer = await http.post("/admin/config", content=content)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    assert (await http.get("/admin/config")).json() == Faults().document()


async def test_latency_knobs_reach_the_engine(pod: RunningPod, http: httpx.AsyncClient) -> None:
    await http.post("/admin/config", json={"extra_ttft_ms": 30, "inter_token_factor": 20})
    await http.post("/v1/chat/completions", json=chat())
    tallies = pod.engine.tallies
    assert tallies.time_to_first_token.sum_ns >= 30_000_000
    assert tallies.inter_token.sum_ns == 3 * 20 * 1_010_000


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("rate_limit", 429),
        ("invalid_api_key", 401),
        ("context_length", 400),
        ("server_error", 503),
        ("invalid_request", 400),
        ("model_not_found", 404),
    ],
)
async def test_an_injected_failure_has_its_status(http: httpx.AsyncClient, kind: str, status: int) -> None:
    await http.post("/admin/config", json={"failure_injection_rate": 100, "failure_types": [kind]})
    answer = await http.post("/v1/chat/completions", json=chat())
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == status
    assert ("retry-after" in answer.headers) == (status == 429)
    assert (await http.get("/health")).status_code == 200


async def test_an_injection_depends_on_the_request_id(http: httpx.AsyncClient) -> None:
    await http.post("/admin/config", json={"failure_injection_rate": 50})

    async def statuses() -> list[int]:
        return [
            (
                await http.post("/v1/chat/completions", json=chat(), headers={"x-request-id": f"r-{i}"})
            ).status_code
            for i in range(20)
        ]

    first = await statuses()
    assert first == await statuses()
    assert len(set(first)) > 1
    assert 200 in first


async def test_a_status_can_be_asked_for(http: httpx.AsyncClient) -> None:
    for wanted, got in (("429", 429), ("503", 503), ("200", 400), ("many", 400)):
        answer = await http.post("/v1/chat/completions", json=chat(), headers={"X-Return-Error": wanted})
        assert answer.status_code == got


async def test_a_hanging_pod_accepts_and_never_answers(pod: RunningPod, http: httpx.AsyncClient) -> None:
    pod.configure({"hang": True})
    async with connected(pod) as (reader, writer):
        writer.write(raw_request(chat(stream=True)))
        read = asyncio.ensure_future(reader.read(1))  # noqa: TID251 -- awaited below
        await eventually(lambda: busy(pod) == 1, what="the request to be read")
        assert (await http.get("/health")).status_code == 200
        assert pod.engine.running + pod.engine.waiting == 0
        pod.configure({"hang": False})
        assert (await http.post("/v1/chat/completions", json=chat())).status_code == 200
        assert not read.done()
    assert await read == b""


@pytest.mark.parametrize(
    ("knob", "path"), [({"metrics": "hang"}, "/metrics"), ({"probes": "hang"}, "/health")]
)
async def test_a_page_can_hang_while_inference_goes_on(
    pod: RunningPod, http: httpx.AsyncClient, knob: dict[str, str], path: str
) -> None:
    pod.configure(knob)
    hanging = asyncio.ensure_future(http.get(path))  # noqa: TID251 -- cancelled and awaited below
    await eventually(lambda: busy(pod) == 1, what="the request to be read")
    assert (await http.post("/v1/chat/completions", json=chat())).status_code == 200
    assert not hanging.done()
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)


async def test_probes_can_fail(pod: RunningPod, http: httpx.AsyncClient) -> None:
    pod.configure({"probes": "fail"})
    assert [(await http.get(path)).status_code for path in ("/health", "/ping")] == [503, 503]


async def test_metrics_can_be_wrong_in_each_way(pod: RunningPod, http: httpx.AsyncClient) -> None:
    async def samples(kind: str) -> dict[Any, float]:
        pod.configure({"metrics": kind})
        return parsed((await http.get("/metrics")).content)

    assert math.isnan(value(await samples("nan"), "vllm:kv_cache_usage_perc"))
    assert value(await samples("zero"), "vllm:num_requests_running") == 0
    assert "vllm:kv_cache_usage_perc" not in {name for name, _ in await samples("missing_kv")}
    assert "vllm:gpu_cache_usage_perc" in {name for name, _ in await samples("old_names")}
    assert "vllm:kv_cache_usage_perc" in {name for name, _ in await samples("none")}


async def test_a_frozen_page_stays_until_it_thaws(pod: RunningPod, http: httpx.AsyncClient) -> None:
    pod.configure({"metrics": "frozen"})
    before = (await http.get("/metrics")).content
    await http.post("/v1/chat/completions", json=chat())
    pod.configure({"extra_ttft_ms": 1})
    assert (await http.get("/metrics")).content == before
    pod.configure({"metrics": "none"})
    assert (await http.get("/metrics")).content != before


async def test_the_reset_knob_resets_every_connection_and_the_pod_stays(pod: RunningPod) -> None:
    async with connected(pod) as (reader, writer):
        writer.write(raw_request({"crash": "reset"}, "/admin/config"))
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
    async with httpx.AsyncClient(base_url=f"http://{pod.address}") as http:
        assert (await http.get("/health")).status_code == 200


async def test_the_exit_knob_ends_the_process_it_was_given() -> None:
    exits: list[str] = []

    def leave() -> None:
        exits.append("gone")

    async with running_pod(exit_process=leave) as pod, connected(pod) as (_, writer):
        writer.write(raw_request({"crash": "exit"}, "/admin/config"))
        await eventually(lambda: exits == ["gone"], what="the exit")
