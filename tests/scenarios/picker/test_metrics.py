"""Every name of the closed list that a picker speaks is fed by one that runs, and a trace goes through it whole."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from services.adapters.metric_names import field, picker
from services.adapters.metric_names.spec import Kind, MetricSpec
from services.adapters.telemetry.tracing import Tracing
from services.core.inference import ModelName
from services.core.models.rewrites import Rewrite, RewriteRule, Target
from services.endpoint_picker.lifecycle import Dropped, Running
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import Pick
from services.wire.openai.usage import Usage
from tests.endpoint_picker.cluster import MODEL, Cluster, chat
from tests.endpoint_picker.doors.processor import data_plane
from tests.scenarios.picker.asking import QUICK, ask, config_file, direct_cluster, refusal
from tests.support.wait import eventually

CONFIG = """
featureGates: [flowControl]
plugins:
  - {type: queue-scorer}
  - {type: prefix-cache-scorer}
  - {type: concurrency-detector, parameters: {maxConcurrency: 1}}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  enableEviction: true
"""
OLD = {"version": "0.8.5", "metric_names": "current", "faults": {"metrics": "missing_kv"}}
LONG = 50_000
"""Tokens of an answer that takes longer than a test."""
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MAY_BE_ZERO = {
    picker.PICKER_EXPIRED_PICKS,
    picker.PICKER_REPORTS_LOST,
    picker.PICKER_FENCED,
    *field.POLL_ERRORS.names,
}
"""Counters of what must not happen here; the others have counted something at the end."""


PAGE_BYTES_MAX = 6 << 20


class Nobody:
    """Whoever asks and does not listen."""

    def picked(self, request: Running, pick: Pick, body: bytes) -> None:
        """Sent nowhere."""

    def dropped(self, dropped: Dropped) -> None:
        raise AssertionError(dropped)

    def evicted(self, dropped: Dropped) -> None:
        raise AssertionError(dropped)


def pod_of(number: int) -> dict[str, object]:
    """The first pod is as it should be; the second is too old and hides its KV use."""
    return {"engine": QUICK, **(OLD if number else {})}


@asynccontextmanager
async def busy_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """Two pods that take one request each."""
    scheduling = config_file(folder, CONFIG)
    async with direct_cluster(2, scheduling=scheduling, pod=pod_of, objectives={"spare": -1}) as cluster:
        yield cluster


def totals(page: str) -> dict[str, float]:
    """Sample name -> sum over its labels, as a reader of the format understands the page."""
    found: dict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found[sample.name] += sample.value
    return found


def unfed(page: str, specs: Iterable[MetricSpec]) -> list[str]:
    """Names that are not on the page, and those that counted nothing although something happened."""
    found = totals(page)
    wanted = {spec.name: f"{spec.name}_count" if spec.kind is Kind.HISTOGRAM else spec.name for spec in specs}
    idle = MAY_BE_ZERO | {spec.name for spec in specs if spec.kind is Kind.GAUGE}
    return [
        name for name, sample in wanted.items() if sample not in found or not (found[sample] or name in idle)
    ]


async def some_of_everything(cluster: Cluster) -> None:
    """Requests that are answered, streamed, rewritten, refused, queued and evicted, at both doors."""
    client = cluster.client
    for _ in range(2):
        assert (await ask(client, "hello " * 100, max_tokens=4)).status_code == 200
    body = chat(stream=True) | {"stream_options": {"include_usage": True}}
    streamed = await client.post("/v1/chat/completions", json=body)
    assert streamed.status_code == 200
    assert (
        await client.post("/v1/chat/completions", json=chat(), headers={"x-gir-hand-off": "no"})
    ).status_code == 401
    assert refusal(await ask(client, "never seen", prefer="if-available"))[0] == 412
    async with data_plane(cluster.picker.grpc_port) as plane:
        assert (await plane.ask(json.dumps(chat()).encode())).destination
    await eventually(lambda: sum(pod.in_flight for pod in cluster.picker.observer.table) == 0)
    cluster.picker.life.declared.models.rewrite(
        [Rewrite("canary", "chat", 0, (RewriteRule((MODEL,), (Target(ModelName(f"{MODEL}-2"), 1),)),))]
    )
    await ask(client, "rewritten")
    cluster.picker.life.declared.models.rewrite(())
    await evicted_work(client, cluster)


async def evicted_work(client: httpx.AsyncClient, cluster: Cluster) -> None:
    """Both pods are full of work that may be shed; what may not waits for one of them."""
    async with asyncio.TaskGroup() as scope:
        spare = [
            scope.create_task(ask(client, "spare", max_tokens=LONG, x_llm_d_inference_objective="spare"))
            for _ in range(2)
        ]
        await eventually(lambda: sum(pod.in_flight for pod in cluster.picker.observer.table) == 2)
        assert (await ask(client, "wanted")).status_code == 200
        answers, _ = await asyncio.wait(spare, return_when=asyncio.FIRST_COMPLETED)
        assert refusal(answers.pop().result()) == (429, "evicted")
        for task in spare:
            task.cancel()


@asynccontextmanager
async def a_queue(cluster: Cluster) -> AsyncIterator[None]:
    """Both pods are full, and one request waits."""
    async with asyncio.TaskGroup() as scope:
        tasks = [scope.create_task(ask(cluster.client, "long", max_tokens=LONG)) for _ in range(3)]
        await eventually(lambda: bool(cluster.picker.life.flow.figures().queues))
        yield
        for task in tasks:
            task.cancel()


async def page_of(cluster: Cluster) -> str:
    async with httpx.AsyncClient() as reader:
        return (await reader.get(f"http://127.0.0.1:{cluster.picker.metrics_port}/metrics")).text


async def test_every_name_is_fed_by_a_picker_that_runs(tmp_path: Path) -> None:
    async with busy_cluster(tmp_path) as cluster:
        await some_of_everything(cluster)
        # Rates are known from the second reading on.
        rates = cluster.picker.observer.table["pod-0"].rates
        assert rates is not None
        await eventually(lambda: rates.recent().prefix_hit_ratio is not None)
        async with a_queue(cluster):
            assert unfed(await page_of(cluster), (*field.SPECS, *picker.SPECS)) == []


async def test_a_page_stays_bounded_whatever_tenants_and_models_invent() -> None:
    """1,500 of each; the model of the configuration is told by its name all the same."""
    async with direct_cluster(1, default_pool="chat") as cluster:
        life = cluster.picker.life
        for number in range(1_500):
            for model in (MODEL, f"m{number}"):
                intake = cluster.picker.doors.http.reception.read(
                    None,
                    json.dumps({"model": model, "prompt": "x"}).encode(),
                    {b"x-llm-d-inference-fairness-id": b"tenant-%d" % number}.get,
                )
                life.end(life.start(intake, Nobody()), Outcome.SUCCEEDED, Usage(10, 5, 3), 100)
        page = await page_of(cluster)
        assert len(page) < PAGE_BYTES_MAX
        counted = [line for line in page.splitlines(keepends=True) if "llm_d_epp_request_total" in line]
        named: dict[str, float] = defaultdict(float)
        for family in text_string_to_metric_families("".join(counted)):
            for sample in family.samples:
                named[sample.labels["model_name"]] += sample.value
        assert named[MODEL] == 1_500
        assert sum(named.values()) == 3_000


async def test_a_sampled_request_takes_our_place_in_its_trace_along_at_both_doors() -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter, "test", ratio=0.0)
    async with (
        direct_cluster(1) as cluster,
        data_plane(cluster.picker.grpc_port) as plane,
    ):
        cluster.picker.life.telling.tracing = tracing
        body = json.dumps(chat()).encode()
        assert "traceparent" not in (await plane.ask(body)).headers
        told = (await plane.ask(body, {"traceparent": TRACE})).headers["traceparent"]
        assert (await ask(cluster.client, "hello", traceparent=TRACE)).status_code == 200
        await eventually(lambda: sum(pod.in_flight for pod in cluster.picker.observer.table) == 0)
    tracing.close()
    spans = exporter.get_finished_spans()
    names = ["run_scheduler_profile", "gateway.request_orchestration", "gateway.request"]
    assert sorted(span.name for span in spans) == sorted(names * 2)
    trace = TRACE.split("-")[1]
    assert {format(span.context.trace_id, "032x") for span in spans if span.context} == {trace}
    requests = [span.context for span in spans if span.name == "gateway.request"]
    ours = [f"00-{trace}-{context.span_id:016x}-01" for context in requests if context]
    assert told in ours
    profile = next(span for span in spans if span.name == "run_scheduler_profile")
    assert dict(profile.attributes or {}) == {
        "llm_d.epp.filter.candidate_endpoints": 1,
        "llm_d.epp.picker.top_endpoints": (cluster.pods[0].address,),
    }
