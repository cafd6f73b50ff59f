"""Two replicas of a picker, one Redis: each knows what the other sent where, and neither needs it to serve."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from deploy.stack.redis import RedisServer
from services.adapters.auth.key_files import write_private
from services.endpoint_picker.assembly import Shared, build
from services.endpoint_picker.process import EndpointPicker
from tests.endpoint_picker.cluster import WAIT_S, Cluster, picker_settings
from tests.scenarios.picker.asking import DIRECT, ask, direct_cluster, pod_for, refusal
from tests.support.metrics import read_metrics
from tests.support.wait import eventually

CONNECTED = "gir_picker_prefix_feed_connected"


def prompt(number: int) -> str:
    return f"{number:04d}" * 1_000


def sharing(folder: Path, name: str, secret: bytes, redis: RedisServer) -> dict[str, Any]:
    file = folder / name
    write_private(file, secret)
    return {"redis": redis.url, "secret_file": str(file)}


@asynccontextmanager
async def replica(
    cluster: Cluster, prefix: dict[str, Any]
) -> AsyncIterator[tuple[EndpointPicker, httpx.AsyncClient]]:
    """Another picker over the same pods."""
    picker = build(picker_settings(cluster.pods, http=DIRECT, prefix=prefix), Shared(hand_off_keys={}))
    await picker.start()
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{picker.http_port}", timeout=WAIT_S
        ) as client:
            await eventually(lambda: len(picker.observer.table.ready("chat")) == len(cluster.pods))
            yield picker, client
    finally:
        await picker.abort()


async def comes_to_know(client: httpx.AsyncClient, text: str) -> str:
    """The pod to which a picker sends a prompt that it never sent itself, once it heard of it."""
    async with asyncio.timeout(WAIT_S):
        while (answer := await ask(client, text, prefer="if-available")).status_code != 200:
            assert refusal(answer) == (412, "cache_miss")
    return str(answer.headers["x-gir-endpoint"])


async def shares(picker: EndpointPicker, connected: bool) -> None:
    """Wait until a picker's metrics say whether it shares."""
    async with asyncio.timeout(WAIT_S):
        while (await asyncio.to_thread(read_metrics, picker.metrics_port))[CONNECTED] != connected:
            pass


async def test_a_replica_knows_what_the_other_sent_and_goes_on_without_redis(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    ours, theirs = (sharing(tmp_path, name, b"s" * 32, own_redis) for name in ("a", "b"))
    async with direct_cluster(3, prefix=ours) as cluster, replica(cluster, theirs) as (other, client):
        for number in range(3):
            home = await pod_for(cluster.client, prompt(number))
            assert await comes_to_know(client, prompt(number)) == home
        await asyncio.to_thread(own_redis.kill)
        for picker in (cluster.picker, other):
            await shares(picker, connected=False)
        home = await pod_for(cluster.client, prompt(10))
        assert await pod_for(cluster.client, prompt(10)) == home
        assert refusal(await ask(client, prompt(10), prefer="if-available")) == (412, "cache_miss")
        assert await pod_for(client, prompt(0)) == await pod_for(client, prompt(0))
        await asyncio.to_thread(own_redis.start)
        for picker in (cluster.picker, other):
            await shares(picker, connected=True)
        home = await pod_for(client, prompt(20))
        assert await comes_to_know(cluster.client, prompt(20)) == home


async def test_a_replica_that_starts_later_learns_what_was_sent_before(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    ours, theirs = (sharing(tmp_path, name, b"s" * 32, own_redis) for name in ("a", "b"))
    async with direct_cluster(3, prefix=ours) as cluster:
        home = await pod_for(cluster.client, prompt(1))
        async with replica(cluster, theirs) as (_, client):
            assert await comes_to_know(client, prompt(1)) == home


async def test_a_picker_with_another_secret_reads_nothing_and_a_metric_says_so(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    ours = sharing(tmp_path, "a", b"s" * 32, own_redis)
    async with (
        direct_cluster(2, prefix=ours) as cluster,
        replica(cluster, sharing(tmp_path, "b", b"t" * 32, own_redis)) as (other, client),
    ):
        await pod_for(cluster.client, prompt(1))
        parts = other.prefix
        assert parts is not None
        assert parts.sharing is not None
        sharer = parts.sharing
        await eventually(lambda: sharer.unreadable > 0)
        assert refusal(await ask(client, prompt(1), prefer="if-available")) == (412, "cache_miss")
