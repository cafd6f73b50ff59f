"""Field cases of metrics-parsing through a whole picker: whatever one pod's page holds, the cluster reports on."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from services.adapters.model_server.engines import ENGINES
from services.core.pods.table import Pod
from tests.adapters.model_server.releases import RELEASES, Release
from tests.endpoint_picker.cluster import MODEL, cluster_of
from tests.support.wait import eventually

GOOD = "vllm:num_requests_waiting 0\nvllm:num_requests_running 1\nvllm:kv_cache_usage_perc 0.1\n"
HOSTILE = (
    "vllm:num_requests_waiting 1e300\nvllm:num_requests_running 1.7e308\nvllm:kv_cache_usage_perc 1e300\n",
    'vllm:num_requests_waiting{engine="0"} 1.7e308\nvllm:num_requests_waiting{engine="1"} 1.7e308\n',
    GOOD + 'vllm:lora_requests_info{max_lora="4",running_lora_adapters="a\\nb,\x07,ok"} 1\n',
    GOOD + 'vllm:lora_requests_info{max_lora="4",running_lora_adapters="' + "x" * 70_000 + '"} 1\n',
    "vllm:num_requests_waiting{" + 'a="x",' * 50_000 + "} 1\n",
)


async def test_f005_f008_f010_no_page_of_a_pod_silences_its_cluster() -> None:
    """Numbers that fit no report, names that none can carry, endless labels: reports go on and stay readable."""
    pages = [GOOD]
    asked = 0

    async def pod(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        top = await reader.readuntil(b"\r\n\r\n")
        body = b'{"version":"0.11.0"}' if b"/version" in top.partition(b"\r\n")[0] else pages[-1].encode()
        asked += 1
        writer.write(
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        writer.close()

    server = await asyncio.start_server(pod, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    pools = [{"name": "chat", "models": [MODEL], "endpoints": [{"id": "a", "address": address}]}]
    async with server, cluster_of(0, pools=pools) as cluster:
        await eventually(lambda: cluster.state("a") == "READY")

        async def reports_on(page: str) -> None:
            pages.append(page)
            due = asked + 3
            await eventually(lambda: asked >= due, what="three scrapes")
            before = (await cluster.report_where(lambda _: True)).id
            await cluster.report_where(lambda report: report.id > before)

        for page in HOSTILE:
            await reports_on(page)
        pages.append(GOOD)
        await eventually(lambda: cluster.state("a") == "READY")
        assert cluster.picker.failure is not None
        assert not cluster.picker.failure.done()


async def test_f001_f002_a_picker_tells_every_engine_apart_and_the_old_ones_by_name() -> None:
    """Pages of all releases through sockets, the engine told by the page, the version by the server's own path."""
    async with AsyncExitStack() as open_servers:
        endpoints = []
        for number, release in enumerate(RELEASES):
            server = await asyncio.start_server(partial(answer, release), "127.0.0.1", 0)
            await open_servers.enter_async_context(server)
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            endpoints.append({"id": f"p{number}", "address": address})
        pools = [{"name": "chat", "models": [MODEL], "engine": "auto", "endpoints": endpoints}]
        cluster = await open_servers.enter_async_context(cluster_of(0, pools=pools))
        table = cluster.picker.observer.table
        for number, release in enumerate(RELEASES):
            pod = table[f"p{number}"]
            await eventually(partial(is_judged, pod, release), what=str(release))
            assert pod.reading is not None
            assert (pod.reading.engine, pod.reading.waiting) == (release.engine, release.reading.waiting)


def is_judged(pod: Pod, release: Release) -> bool:
    """Whether the picker has come to the verdict of the compatibility table."""
    return (pod.state, pod.reason, pod.identity) == (*release.verdict, release.identity)


async def answer(release: Release, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one request as a server of this release would: its page, its version, or 404."""
    top = await reader.read(65_536)  # Empty when the picker stops with a connection just opened.
    path = top.split(b" ", 2)[1].decode() if top else ""
    bodies = {"/metrics": release.page}
    bodies |= dict.fromkeys(
        ENGINES[release.engine].version_paths, b'{"version":"%b"}' % release.version.encode()
    )
    status, body = (b"200 OK", bodies[path]) if path in bodies else (b"404 Not Found", b"")
    writer.write(
        b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)
    )
    writer.close()
