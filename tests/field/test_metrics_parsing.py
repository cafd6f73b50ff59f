"""Field cases of metrics-parsing through a whole picker: whatever one pod's page holds, the cluster reports on."""

import asyncio

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
