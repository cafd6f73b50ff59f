"""Precise prefix affinity: pods publish what their caches hold, and the picker follows, whoever filled them.

Each pod has a loopback address of its own, because all publish on the same port.
"""

import asyncio
import itertools
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson

from services.core.prefix.blocks import complete
from services.simulator.tokens import token_ids
from services.wire.openai.prompts import read_prompt
from tests.endpoint_picker.cluster import MODEL, WAIT_S, Cluster, simulated_pod
from tests.scenarios.picker.asking import QUICK, ask, direct_cluster, pod_for, refusal
from tests.support.wait import eventually

WHAT = "What is written here is 24 bytes long, sixteen times. "
TEXT = WHAT * 16
"""216 tokens: 13 blocks of 16."""
IDS = token_ids(TEXT.encode())
SMALL = QUICK | {"num_gpu_blocks": 40, "max_model_len": 640, "max_num_batched_tokens": 640}
FILLERS = ("z" * 2_400, "y" * 2_400)
"""600 tokens each: together more than the cache, whose oldest blocks go last block first."""


@asynccontextmanager
async def publishing(
    new_port: Callable[[], int], *, tokenize: bool = True
) -> AsyncIterator[tuple[Cluster, Any]]:
    port, replay = new_port(), new_port()

    def pod(number: int) -> dict[str, Any]:
        host = f"127.0.0.{number + 2}"
        events = {"endpoint": f"tcp://{host}:{port}", "replay_endpoint": f"tcp://{host}:{replay}"}
        return {"host": host, "engine": SMALL, "kv_events": events}

    prefix: dict[str, Any] = {"kv_events": {"port": port, "replay_port": replay}}
    if tokenize:
        prefix["tokenize"] = {"budget_ms": 1_000}
    async with direct_cluster(3, pod=pod, prefix=prefix) as cluster:
        yield cluster, pod


async def fill(cluster: Cluster, place: int, text: str) -> None:
    """Have a pod cache a prompt that the picker does not see."""
    async with httpx.AsyncClient(base_url=f"http://{cluster.pods[place].address}") as client:
        assert (await ask(client, text)).status_code == 200


def held(cluster: Cluster, text: str) -> dict[str, tuple[float, int]]:
    """What the precise index believes of a prompt."""
    parts = cluster.picker.prefix
    assert parts is not None
    assert parts.indexes.precise is not None
    ids = token_ids(text.encode())
    return complete(parts.indexes.precise.match(struct.pack(f"<{len(ids)}I", *ids), MODEL, ""))


async def test_a_prompt_goes_where_it_is_cached_whoever_sent_it_there(new_port: Callable[[], int]) -> None:
    async with publishing(new_port) as (cluster, _):
        await fill(cluster, 1, TEXT)
        await eventually(lambda: held(cluster, TEXT).keys() == {"pod-1"})
        for _number in range(3):
            assert await pod_for(cluster.client, TEXT) == "pod-1"
        assert await pod_for(cluster.client, TEXT + "And more.", prefer="if-available") == "pod-1"


async def test_token_ids_need_no_tokenizer_and_mean_the_same_prompt(new_port: Callable[[], int]) -> None:
    async with publishing(new_port, tokenize=False) as (cluster, _):
        await fill(cluster, 2, TEXT)
        await eventually(lambda: held(cluster, TEXT).keys() == {"pod-2"})
        for _number in range(3):
            assert await pod_for(cluster.client, list(IDS)) == "pod-2"
        assert refusal(await ask(cluster.client, TEXT, prefer="if-available")) == (412, "cache_miss")


async def test_what_a_pod_evicts_attracts_nobody_any_more(new_port: Callable[[], int]) -> None:
    async with publishing(new_port) as (cluster, _):
        home = await pod_for(cluster.client, TEXT)
        await eventually(lambda: held(cluster, TEXT).keys() == {home})
        for filler in FILLERS:
            await fill(cluster, int(home[-1]), filler)
        await eventually(lambda: not held(cluster, TEXT))
        assert refusal(await ask(cluster.client, TEXT, prefer="if-available")) == (412, "cache_miss")


async def test_a_pod_that_restarts_is_believed_to_hold_what_it_says_then(new_port: Callable[[], int]) -> None:
    async with publishing(new_port) as (cluster, pod):
        await fill(cluster, 1, TEXT)
        await eventually(lambda: held(cluster, TEXT).keys() == {"pod-1"})
        port = cluster.pods[1].port
        cluster.pods[1].reset()
        await eventually(lambda: cluster.state("pod-1") == "FAILED" and not held(cluster, TEXT))
        cluster.pods[1] = await simulated_pod(1, port=port, **pod(1))
        await eventually(lambda: cluster.state("pod-1") == "READY")
        numbers = itertools.count()
        other = "Something else, " * 20
        async with asyncio.timeout(WAIT_S):
            # What is published before the subscription stands is had by replay with the first event after it.
            while held(cluster, other).keys() != {"pod-1"}:
                await fill(cluster, 1, other)
                await fill(cluster, 1, f"{next(numbers):04d} makes an event. " * 4)
        assert not held(cluster, TEXT)
        assert refusal(await ask(cluster.client, TEXT, prefer="if-available")) == (412, "cache_miss")
        assert await pod_for(cluster.client, other, prefer="if-available") == "pod-1"


def test_the_text_of_these_tests_is_read_as_the_pods_read_it() -> None:
    _, prompt = read_prompt(orjson.dumps({"model": MODEL, "prompt": TEXT}))
    assert (len(IDS), prompt.token_ids) == (len(TEXT) // 4, False)
