"""Simulated pods and a picker in the places where the run's Envoy looks for them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from services.adapters.grpc.binding import Listen
from services.adapters.grpc.server import GrpcServer
from services.adapters.system.clock import SystemClock
from services.core.units import Instant, ms
from services.endpoint_picker.assembly import build
from services.endpoint_picker.doors.ext_proc import UNWATCHED_FOR, ProcessorService
from services.endpoint_picker.process import EndpointPicker
from services.endpoint_picker.settings import PickerSettings
from services.simulator.assembly import RunningPod, start_pod
from services.simulator.settings import PodSettings
from services.wire.ext_proc.events import StreamRules
from tests.endpoint_picker.cluster import MODEL
from tests.support.envoy import EnvoyPlaces
from tests.support.wait import eventually

SUBSET = "x-test-subset"
WAIT_S = 15.0
LIST_MAX = 3

RULES = {
    "picker": StreamRules(endpoints_max=LIST_MAX),
    "observing": StreamRules(endpoints_max=LIST_MAX),
    "field": StreamRules(body_bytes_max=1 << 20),
}
"""By the place a picker's server takes; Gateway API implementations read one endpoint only."""


@dataclass
class EnvoyWorld:
    """`client` speaks to Envoy; `doors` by place."""

    places: EnvoyPlaces
    picker: EndpointPicker
    client: httpx.AsyncClient
    doors: dict[str, ProcessorService] = field(default_factory=dict)
    pods: dict[int, RunningPod] = field(default_factory=dict)
    servers: list[GrpcServer] = field(default_factory=list)

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.places.pod_ports[number]}"

    async def post(self, listener: str, body: dict[str, Any], **headers: str) -> httpx.Response:
        lines = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(
            f"{self.places.url(listener)}/v1/chat/completions", json=body, headers=lines
        )

    async def start_pod(self, number: int, **changes: Any) -> None:
        fields = {"pod": f"pod-{number}", "port": self.places.pod_ports[number], "model": MODEL} | changes
        self.pods[number] = await start_pod(PodSettings.model_validate(fields), SystemClock())

    def kill_pod(self, number: int) -> None:
        self.pods.pop(number).reset()

    async def start_picker(self) -> None:
        ports = (self.places.picker_port, self.places.observing_port, self.places.field_port)
        for door, port in zip(self.doors.values(), ports, strict=True):
            server = GrpcServer(Listen(port=port), [door.door()])
            await server.start()
            self.servers.append(server)

    async def kill_picker(self) -> None:
        """End every stream at once; connects are refused until it is started again."""
        while self.servers:
            await self.servers.pop().stop(ms(0))

    async def ready(self, pods: int) -> None:
        """Wait until the picker knows as many ready pods."""
        table = self.picker.observer.table
        await eventually(lambda: len(table.ready("chat")) == pods, what=f"{pods} ready pods")

    async def settle(self) -> None:
        """Wait until no stream is open, and let go of the requests whose end nobody tells."""
        for door in self.doors.values():
            await asyncio.wait_for(door.finished(), WAIT_S)
            door.expire(Instant(self.picker.clock.now() + UNWATCHED_FOR))

    @property
    def running(self) -> int:
        """Requests that count as in flight."""
        return self.picker.doors.http.life.running


@asynccontextmanager
async def world_of(places: EnvoyPlaces, pods: int = 3, **pod: Any) -> AsyncIterator[EnvoyWorld]:
    """A picker that knows three places, `pods` of them taken by simulated pods; ready when these are."""
    endpoints = [
        {"id": f"pod-{number}", "address": f"127.0.0.1:{port}"}
        for number, port in enumerate(places.pod_ports)
    ]
    settings = PickerSettings.model_validate(
        {
            "cluster": "eu-west-1",
            "region": "eu-west",
            "jurisdiction": "eu",
            "pools": [{"name": "chat", "models": [MODEL], "endpoints": endpoints}],
            "scrape": {"interval_ms": 50},
            "http": {"port": 0, "accept": "direct"},
            "grpc": {"port": 0},
            "metrics": {"port": 0},
        }
    )
    async with AsyncExitStack() as undo:
        client = await undo.enter_async_context(httpx.AsyncClient(timeout=WAIT_S))
        picker = build(settings)
        world = EnvoyWorld(places, picker, client)
        undo.push_async_callback(_stop_pods, world)
        for number in range(pods):
            await world.start_pod(number, **pod)
        await picker.start()
        undo.push_async_callback(picker.abort)
        asked = picker.doors.http
        world.doors = {
            place: ProcessorService(asked.entry, asked.reception, asked.life, asked.clock, rules)
            for place, rules in RULES.items()
        }
        undo.push_async_callback(world.kill_picker)
        await world.start_picker()
        await world.ready(pods)
        yield world


async def _stop_pods(world: EnvoyWorld) -> None:
    for pod in world.pods.values():
        await pod.stop()


async def until_answered(ask: Callable[[], Any], status: int) -> httpx.Response:
    """Repeat a request until it is answered with `status`: a proxy notices a new server at its next try."""
    answers: list[httpx.Response] = []

    async def once() -> bool:
        answers.append(await ask())
        return answers[-1].status_code == status

    for _ in range(100):
        if await once():
            return answers[-1]
    raise AssertionError([each.status_code for each in answers[-3:]])
