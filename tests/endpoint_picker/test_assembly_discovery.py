"""Which source each setting becomes, and a picker whose pods come and go while it serves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from services.adapters.kubernetes.discovery import KubernetesDiscovery
from services.adapters.kubernetes.lease import KubernetesLease
from services.adapters.memory.clock import VirtualClock
from services.adapters.system.dns_discovery import DnsDiscovery
from services.adapters.system.file_discovery import FileDiscovery
from services.adapters.system.ids import SystemIds
from services.endpoint_picker import discovery_settings as wanted
from services.endpoint_picker.assembly import Shared, build
from services.endpoint_picker.assembly_discovery import build_lease, build_sources
from services.endpoint_picker.process import EndpointPicker
from services.simulator.assembly import RunningPod
from services.wire.config.settings_source import SettingsError
from tests.endpoint_picker.cluster import KEY, MODEL, WAIT_S, chat, picker_settings, simulated_pod, token
from tests.support.wait import eventually

IN_CLUSTER = wanted.KubernetesDiscovery(kind="kubernetes", pool="llama")


async def test_each_setting_becomes_its_source_and_the_cluster_is_asked_nothing_yet(tmp_path: Path) -> None:
    pools: list[tuple[str, wanted.Discovery]] = [
        ("listed", wanted.StaticDiscovery()),
        ("filed", wanted.FileDiscovery(kind="file", file=tmp_path / "pods.yaml")),
        ("named", wanted.DnsDiscovery(kind="dns", host="pods.example", ports=(8000,))),
        ("chat", IN_CLUSTER),
    ]
    access = wanted.KubernetesAccess(namespace="serving")
    sources = build_sources(pools, access, VirtualClock(), SystemIds())
    assert {name: type(source) for name, source in sources.endpoints.items()} == {
        "filed": FileDiscovery,
        "named": DnsDiscovery,
        "chat": KubernetesDiscovery,
    }
    assert len(sources.objects) == 1
    await sources.close()


async def test_an_election_by_lease_needs_the_api_and_no_pool_of_the_cluster() -> None:
    access = wanted.KubernetesAccess(namespace="serving")
    assert build_sources([], access, VirtualClock(), SystemIds()).api is None
    sources = build_sources([], access, VirtualClock(), SystemIds(), elects=True)
    assert sources.api is not None
    assert isinstance(build_lease(sources.api, access, VirtualClock(), SystemIds()), KubernetesLease)
    with pytest.raises(SettingsError, match="needed outside of a pod"):
        build_lease(sources.api, wanted.KubernetesAccess(), VirtualClock(), SystemIds())
    await sources.close()


def test_outside_of_a_pod_the_namespace_must_be_given() -> None:
    with pytest.raises(SettingsError, match=r"kubernetes\.namespace: needed outside of a pod"):
        build_sources([("chat", IN_CLUSTER)], wanted.KubernetesAccess(), VirtualClock(), SystemIds())


class FiledPicker:
    """A picker over a file of simulated pods."""

    def __init__(self, picker: EndpointPicker, file: Path, client: httpx.AsyncClient) -> None:
        self.picker = picker
        self._file = file
        self._client = client

    def declare(self, **pods: RunningPod) -> None:
        entries = [
            {"name": name, "address": host, "port": int(port)}
            for name, pod in pods.items()
            for host, _, port in [pod.address.rpartition(":")]
        ]
        self._file.with_suffix(".new").write_text(yaml.safe_dump({"endpoints": entries}))
        self._file.with_suffix(".new").replace(self._file)

    async def ready(self, *names: str) -> None:
        table = self.picker.observer.table
        await eventually(lambda: {pod.id for pod in table.ready("chat")} == set(names))

    async def ask(self, max_tokens: int = 2) -> httpx.Response:
        return await self._client.post(
            "/v1/chat/completions", json=chat(max_tokens=max_tokens), headers={"x-gir-hand-off": token()}
        )


@asynccontextmanager
async def filed_picker(file: Path) -> AsyncIterator[FiledPicker]:
    pool = {
        "name": "chat",
        "models": [MODEL],
        "discovery": {"kind": "file", "file": str(file), "look_every_ms": 50},
    }
    picker = build(picker_settings([], pools=[pool]), Shared(hand_off_keys={KEY.kid: KEY.secret}))
    await picker.start()
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{picker.http_port}", timeout=WAIT_S
        ) as client:
            yield FiledPicker(picker, file, client)
    finally:
        await picker.abort()


async def test_scale_to_zero_and_back_while_a_request_of_a_removed_pod_finishes(tmp_path: Path) -> None:
    pods = [await simulated_pod(number) for number in range(2)]
    try:
        async with filed_picker(tmp_path / "pods.yaml") as world:
            assert (await world.ask()).status_code == 503
            world.declare(first=pods[0])
            await world.ready("first")
            row = world.picker.observer.table["first"]
            long = asyncio.get_running_loop().create_task(world.ask(max_tokens=200))
            await eventually(lambda: row.in_flight == 1)
            world.declare()
            await world.ready()
            assert (await world.ask()).status_code == 503
            world.declare(second=pods[1])
            await world.ready("second")
            assert (await world.ask()).status_code == 200
            assert (await long).status_code == 200
            await eventually(lambda: row.in_flight == 0)
            assert world.picker.observer.table["second"].in_flight == 0
    finally:
        for pod in pods:
            await pod.stop()
