"""A whole cluster in one process: simulated pods, a picker with real sockets, a bus in memory."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from services.adapters.memory.bus import MemoryBus
from services.adapters.ports import Topic
from services.adapters.system.clock import SystemClock
from services.core.fleet import HealthReport, PodsReport
from services.core.inference import ModelName, RequestId, TenantId
from services.core.locality import ClusterId, Jurisdiction
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.units import WallMs
from services.endpoint_picker.assembly import Shared, build
from services.endpoint_picker.process import EndpointPicker
from services.endpoint_picker.settings import PickerSettings
from services.simulator.assembly import RunningPod, start_pod
from services.simulator.settings import PodSettings
from services.wire.hand_off import HandOff, HandOffKey, derive_key, sign
from services.wire.health_codec import decode_report
from services.wire.pods_codec import decode_pods, pods_key
from tests.support.wait import eventually

CLUSTER = ClusterId("eu-west-1")
MODEL = ModelName("llama-3.1-8b")
KEY = derive_key("region-1", b"s" * 32, CLUSTER)
REQUEST_ID = RequestId("01900000-0000-7000-8000-000000000001")
EU_ONLY = ResidencyRule(allow_jurisdictions=frozenset({Jurisdiction("eu")}))
US_ONLY = ResidencyRule(allow_jurisdictions=frozenset({Jurisdiction("us")}))
WAIT_S = 10.0
"""How long a test waits for something that takes well under a second."""


def token(
    *,
    audience: ClusterId = CLUSTER,
    model: ModelName = MODEL,
    allowed: ResidencyRule = ANYWHERE,
    key: HandOffKey = KEY,
    expires_in_ms: int = 30_000,
    deadline_in_ms: int | None = None,
) -> str:
    now = SystemClock().wall_ms()
    deadline = None if deadline_in_ms is None else WallMs(now + deadline_in_ms)
    hand_off = HandOff(
        audience, REQUEST_ID, TenantId("acme"), model, allowed, WallMs(now + expires_in_ms), deadline
    )
    return sign(hand_off, key)


def chat(*, stream: bool = False, max_tokens: int = 4, model: str = MODEL) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": "hello there"}],
        "max_tokens": max_tokens,
        "stream": stream,
    }


@dataclass
class Cluster:
    """Pods, their picker and the bus; `client` speaks to the gateway with a valid hand-off unless told otherwise."""

    pods: list[RunningPod]
    picker: EndpointPicker
    bus: MemoryBus
    client: httpx.AsyncClient
    clock: SystemClock = field(default_factory=SystemClock)

    async def post(self, body: dict[str, Any], hand_off: str | None = None, **headers: str) -> httpx.Response:
        sent = {"x-gir-hand-off": token() if hand_off is None else hand_off, **headers}
        return await self.client.post("/v1/chat/completions", json=body, headers=sent)

    def report(self) -> HealthReport | None:
        value = self.bus.partition_of(Topic.HEALTH, CLUSTER).newest(CLUSTER)
        return None if value is None else decode_report(value)

    async def report_where(self, held: Callable[[HealthReport], bool]) -> HealthReport:
        """Wait for a report of which `held` is true."""
        await eventually(lambda: (found := self.report()) is not None and held(found))
        report = self.report()
        assert report is not None
        return report

    def pods_report(self) -> PodsReport | None:
        key = pods_key(CLUSTER, "chat")
        value = self.bus.partition_of(Topic.PODS, key).newest(key)
        return None if value is None else decode_pods(value)

    def state(self, pod: str) -> str:
        return self.picker.observer.table[pod].state.value


def picker_settings(pods: list[RunningPod], **changes: Any) -> PickerSettings:
    document: dict[str, Any] = {
        "cluster": CLUSTER,
        "region": "eu-west",
        "jurisdiction": "eu",
        "pools": [
            {
                "name": "chat",
                "models": [MODEL],
                "endpoints": [
                    {"id": f"pod-{number}", "address": pod.address, "capacity_requests": 64}
                    for number, pod in enumerate(pods)
                ],
            }
        ],
        "scrape": {"interval_ms": 50},
        "http": {"port": 0},
        "grpc": {"port": 0},
        "metrics": {"port": 0},
        "drain_ms": 5_000,
    }
    return PickerSettings.model_validate(document | changes)


async def simulated_pod(number: int, **changes: Any) -> RunningPod:
    fields = {"pod": f"pod-{number}", "port": 0, "model": MODEL} | changes
    return await start_pod(PodSettings.model_validate(fields), SystemClock())


@asynccontextmanager
async def cluster_of(
    pods: int = 2, *, pod: dict[str, Any] | Callable[[int], dict[str, Any]] | None = None, **changes: Any
) -> AsyncIterator[Cluster]:
    """A ready cluster of `pods` simulated pods. `changes` are picker settings, `pod` those of all pods or of each."""
    clock = SystemClock()
    bus = MemoryBus(clock)
    running = [
        await simulated_pod(number, **(pod(number) if callable(pod) else pod or {})) for number in range(pods)
    ]
    shared = Shared(
        sender=bus.publisher(),
        reader=bus.reader((Topic.HEALTH,)),
        hand_off_keys={KEY.kid: KEY.secret},
    )
    picker = build(picker_settings(running, **changes), shared)
    await picker.start()
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{picker.http_port}", timeout=WAIT_S
        ) as client:
            table = picker.observer.table
            if pods:
                await eventually(lambda: len(table.ready("chat")) == pods)
            yield Cluster(running, picker, bus, client, clock)
    finally:
        await picker.abort()
        for each in running:
            await each.stop()


def sse_data(text: str) -> list[str]:
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


def content_of(events: list[str]) -> str:
    parts = [json.loads(event) for event in events if event != "[DONE]"]
    return "".join(
        choice["delta"].get("content") or "" for part in parts for choice in part.get("choices", ())
    )
