"""A whole picker in a whole cluster: reports on the bus, orderly and sudden ends, metrics, field cases end to end."""

import asyncio
from pathlib import Path

import httpx
import pytest

from services.adapters.memory.bus import MemoryBus
from services.adapters.ports import Topic
from services.adapters.system.clock import SystemClock
from services.core.fleet import PodState
from services.endpoint_picker.assembly import Shared, build
from services.wire.config.settings_source import SettingsError
from tests.endpoint_picker.cluster import (
    KEY,
    MODEL,
    chat,
    cluster_of,
    picker_settings,
    simulated_pod,
    sse_data,
    token,
)
from tests.support.wait import eventually


async def test_the_cluster_reports_its_pods_and_its_load() -> None:
    async with cluster_of(2) as cluster:
        report = await cluster.report_where(lambda found: found.pools[0].saturation is not None)
        await eventually(lambda: (found := cluster.pods_report()) and found.pods[1].version)
        pods = cluster.pods_report()
        assert pods is not None
        pool = report.pools[0]
        assert (report.cluster, report.region, report.jurisdiction) == ("eu-west-1", "eu-west", "eu")
        assert (pool.pool, pool.model, pool.ready_endpoints, pool.total_endpoints) == ("chat", MODEL, 2, 2)
        assert (pool.capacity_requests, pool.engine) == (128, "vllm")
        assert (pool.waiting, pool.running) == (0, 0)
        assert [(pod.id, pod.state, pod.engine) for pod in pods.pods] == [
            ("pod-0", PodState.READY, "vllm"),
            ("pod-1", PodState.READY, "vllm"),
        ]


async def test_time_to_first_token_reaches_the_report() -> None:
    async with cluster_of(1) as cluster:
        for _ in range(5):
            await cluster.post(chat())
        report = await cluster.report_where(lambda found: found.pools[0].ttft_ms_p95 is not None)
        ttft = report.pools[0]
        assert ttft.ttft_ms_p50 is not None
        assert ttft.ttft_ms_p95 is not None
        assert 0 < ttft.ttft_ms_p50 <= ttft.ttft_ms_p95 < 10_000


async def test_dead_pods_are_reported_and_come_back_when_they_do() -> None:
    async with cluster_of(1) as cluster:
        port = cluster.pods[0].port
        cluster.pods[0].reset()
        await eventually(lambda: cluster.state("pod-0") == "FAILED")
        assert (await cluster.client.get("/readyz")).status_code == 503
        await cluster.report_where(lambda found: found.pools[0].ready_endpoints == 0)
        cluster.pods[0] = await simulated_pod(0, port=port)
        await eventually(lambda: cluster.state("pod-0") == "READY")
        assert (await cluster.client.get("/readyz")).status_code == 200
        assert (await cluster.post(chat())).status_code == 200


async def test_f001_old_metric_names_are_read_and_the_old_engine_is_told() -> None:
    async with cluster_of(1, pod={"metric_names": "old", "version": "0.8.5"}) as cluster:
        await eventually(lambda: cluster.state("pod-0") == "DEGRADED")
        pod = cluster.picker.observer.table["pod-0"]
        assert pod.reading is not None
        assert pod.reading.kv_use is not None
        assert (await cluster.post(chat())).status_code == 200


async def test_a_drain_is_reported_and_stop_lets_streams_finish() -> None:
    async with cluster_of(1, pod={"faults": {"extra_ttft_ms": 200}}) as cluster:
        async with asyncio.TaskGroup() as scope:
            running = scope.create_task(cluster.post(chat(stream=True)))
            await eventually(lambda: cluster.picker.observer.table["pod-0"].in_flight == 1)
            await cluster.picker.stop()
        assert sse_data(running.result().text)[-1] == "[DONE]"
        report = cluster.report()
        assert report is not None
        assert report.draining
        with pytest.raises(httpx.ConnectError):
            await cluster.client.get("/healthz")


async def test_a_stop_is_announced_before_the_doors_close() -> None:
    """What routers still send meanwhile is told to go elsewhere; a refused connection would count against the cluster."""
    async with cluster_of(1) as cluster:
        await cluster.report_where(lambda report: not report.draining)
        async with asyncio.TaskGroup() as scope:
            stopping = scope.create_task(cluster.picker.stop())
            await cluster.report_where(lambda report: report.draining)
            late = await cluster.post(chat())
            assert (late.status_code, late.headers["x-gir-drained"]) == (503, "true")
            assert not stopping.done()


async def test_an_abort_cuts_every_socket_and_says_nothing_more() -> None:
    async with cluster_of(1) as cluster:
        engine = cluster.pods[0].engine
        body = chat(stream=True, max_tokens=4_000)
        headers = {"x-gir-hand-off": token()}
        async with cluster.client.stream(
            "POST", "/v1/chat/completions", json=body, headers=headers
        ) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            await cluster.picker.abort()
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                async for _ in lines:
                    pass
        with pytest.raises(httpx.ConnectError):
            await cluster.client.get("/readyz")
        await eventually(lambda: engine.running == 0)
        report = cluster.report()
        assert report is not None
        assert not report.draining
        assert not cluster.picker.observer.counters.publishing


async def test_metrics_are_the_closed_list_with_values() -> None:
    async with cluster_of(2) as cluster:
        await cluster.post(chat())
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{cluster.picker.metrics_port}") as client:
            text = (await client.get("/metrics")).text
            assert (await client.get("/")).status_code == 404
        assert 'gir_picker_pods{pool="chat",state="READY"} 2.0' in text
        assert "gir_picker_picks_total 1.0" in text
        assert 'gir_picker_outcomes_total{outcome="succeeded"} 1.0' in text
        assert 'gir_picker_serving_without_metrics{pool="chat"} 0.0' in text
        assert "gir_picker_bus_connected 1.0" in text
        assert (await cluster.client.get("/metrics")).status_code == 404


async def test_f016_a_pool_whose_metrics_are_gone_serves_and_says_so() -> None:
    async with cluster_of(1) as cluster:
        cluster.pods[0].configure({"metrics": "hang"})
        await eventually(lambda: cluster.state("pod-0") == "STALE")
        assert (await cluster.post(chat())).status_code == 200
        assert (await cluster.client.get("/readyz")).status_code == 200


async def test_a_second_metrics_listener_on_one_host_takes_the_next_port() -> None:
    async with cluster_of(0) as cluster:
        taken = cluster.picker.metrics_port
        async with cluster_of(0, metrics={"port": taken}) as other:
            assert other.picker.metrics_port > taken


async def test_a_taken_port_leaves_nothing_running() -> None:
    async with cluster_of(0) as cluster:
        settings = picker_settings([], http={"port": cluster.picker.http_port})
        picker = build(settings, Shared(hand_off_keys={KEY.kid: KEY.secret}))
        with pytest.raises(OSError, match="in use"):
            await picker.start()
        assert picker.metrics_port == 0


def test_a_picker_for_routers_needs_keys() -> None:
    with pytest.raises(SettingsError, match="hand_off_keys: needed"):
        build(picker_settings([]))


async def test_pools_may_have_their_metrics_on_a_port_of_their_own() -> None:
    pools = [
        {"name": "chat", "models": ["m"], "engine": "triton", "metrics_port": 9100},
        {"name": "other", "models": ["n"]},
    ]
    picker = build(picker_settings([], pools=pools), Shared(hand_off_keys={}))
    assert picker.observer.metrics_ports == {"chat": 9100}


def test_an_unknown_engine_is_refused_by_name() -> None:
    pools = [{"name": "chat", "models": ["m"], "engine": "other"}]
    with pytest.raises(SettingsError, match=r"pools.chat.engine: 'other': must be one of vllm"):
        build(picker_settings([], pools=pools), Shared(hand_off_keys={}))


async def test_what_still_runs_at_the_end_of_the_drain_time_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster_of(1, drain_ms=100) as cluster:
        body = chat(stream=True, max_tokens=100_000)
        headers = {"x-gir-hand-off": token()}
        async with cluster.client.stream(
            "POST", "/v1/chat/completions", json=body, headers=headers
        ) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            async with asyncio.TaskGroup() as scope:
                stopping = scope.create_task(cluster.picker.stop())
                with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                    async for _ in lines:
                        pass
            assert stopping.done()
    assert "requests were cut at the end of the drain time" in caplog.text


async def test_a_part_that_fails_is_told_to_the_owner(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster_of(1) as cluster:
        monkeypatch.setattr(cluster.picker.observer.table, "tick", lambda _: 1 / 0)
        assert cluster.picker.failure is not None
        async with asyncio.timeout(10):
            await cluster.picker.failure
        assert "pulse ended" in caplog.text


async def test_a_picker_without_a_bus_serves() -> None:
    picker = build(picker_settings([]), Shared(hand_off_keys={KEY.kid: KEY.secret}))
    await picker.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{picker.http_port}") as client:
            assert (await client.get("/healthz")).status_code == 200
        picker.black_hole(True)
        picker.black_hole(False)
        picker.drain()
    finally:
        await picker.stop()


async def test_pickers_of_one_host_elect_one_by_a_file(tmp_path: Path) -> None:
    clock = SystemClock()
    bus = MemoryBus(clock)
    settings = picker_settings([], lease="file", lease_file=str(tmp_path / "lease"))
    pickers = [
        build(
            settings,
            Shared(
                sender=bus.publisher(),
                reader=bus.reader((Topic.HEALTH,)),
                hand_off_keys={KEY.kid: KEY.secret},
            ),
        )
        for _ in range(2)
    ]
    for picker in pickers:
        await picker.start()
    first, second = (picker.observer.counters for picker in pickers)
    await eventually(lambda: first.publishing or second.publishing)
    assert first.publishing is not second.publishing
    holder, other = (0, 1) if first.publishing else (1, 0)
    await pickers[holder].abort()
    await eventually(lambda: pickers[other].observer.counters.publishing)
    await pickers[other].abort()


def test_a_lease_file_in_no_folder_is_refused(tmp_path: Path) -> None:
    settings = picker_settings(
        [], lease="file", lease_file=str(tmp_path / "no" / "lease"), kafka={"bootstrap": "h:1"}
    )
    with pytest.raises(SettingsError, match="is not a folder"):
        build(settings, Shared(hand_off_keys={}))


async def test_a_pod_put_to_sleep_gets_nothing_until_it_is_woken() -> None:
    async with cluster_of(2) as cluster, httpx.AsyncClient() as direct:
        base = f"http://{cluster.pods[0].address}"
        await direct.post(f"{base}/sleep")
        await eventually(lambda: cluster.picker.observer.table["pod-0"].reason == "asleep")
        assert [pod.id for pod in cluster.picker.observer.table.ready("chat")] == ["pod-1"]
        await direct.post(f"{base}/wake_up")
        await eventually(lambda: cluster.picker.observer.table["pod-0"].state is PodState.READY)
