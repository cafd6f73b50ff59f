"""What every `EndpointDiscovery` promises: complete sets, news only, and the last set while its source is away."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest
import yaml

from deploy.stack.kubernetes import KubernetesServer
from services.adapters.kubernetes.api import KubernetesApi
from services.adapters.kubernetes.discovery import KubernetesDiscovery
from services.adapters.kubernetes.watch import WatchRules
from services.adapters.memory.discovery import MemoryDiscovery
from services.adapters.ports import EndpointDiscovery
from services.adapters.system.clock import SystemClock
from services.adapters.system.dns_discovery import DnsDiscovery
from services.adapters.system.file_discovery import FileDiscovery
from services.adapters.system.ids import SystemIds
from services.core.pods.discovered import DiscoveredEndpoint
from services.core.units import ms
from tests.support.kubernetes import Namespace, install, make_namespace
from tests.support.wait import eventually

FIRST, SECOND, THIRD = "10.1.0.1", "10.1.0.2", "10.1.0.3"


class Part(Protocol):
    """A source that the test owns."""

    @property
    def source(self) -> EndpointDiscovery: ...

    def declare(self, *addresses: str) -> None: ...


class FrailPart(Part, Protocol):
    """One that can be away."""

    def leave(self) -> None: ...

    def come_back(self) -> None: ...


class MemoryPart:
    """Cannot be away."""

    def __init__(self) -> None:
        self.source = MemoryDiscovery()

    def declare(self, *addresses: str) -> None:
        self.source.declare(*(DiscoveredEndpoint(each, each, (8000,)) for each in addresses))


class FilePart:
    def __init__(self, file: Path) -> None:
        self._file = file
        self.source = FileDiscovery(file, SystemClock(), ms(10))

    def declare(self, *addresses: str) -> None:
        entries = [{"name": f"pod-{each}", "address": each, "port": 8000} for each in addresses]
        self._file.with_suffix(".new").write_text(yaml.safe_dump({"endpoints": entries}))
        self._file.with_suffix(".new").replace(self._file)

    def leave(self) -> None:
        self._file.rename(self._file.with_suffix(".away"))

    def come_back(self) -> None:
        """What is declared next brings it back; until then the old file does."""
        self._file.with_suffix(".away").rename(self._file)


class DnsPart:
    """The system's resolver cannot be told what to answer; its answers are a list here."""

    def __init__(self) -> None:
        self._addresses: tuple[str, ...] = ()
        self._away = False
        self.source = DnsDiscovery("pods.example", (8000,), SystemClock(), ms(10), self._resolve)

    async def _resolve(self, host: str) -> tuple[str, ...]:
        assert host == "pods.example"
        if self._away:
            raise OSError(-3, "Temporary failure in name resolution")
        return self._addresses

    def declare(self, *addresses: str) -> None:
        self._addresses = addresses

    def leave(self) -> None:
        self._away = True

    def come_back(self) -> None:
        self._away = False


class KubernetesPart:
    def __init__(self, server: KubernetesServer, namespace: Namespace, source: EndpointDiscovery) -> None:
        self._server = server
        self._namespace = namespace
        self._pods: set[str] = set()
        self.source = source

    def declare(self, *addresses: str) -> None:
        for address in self._pods - set(addresses):
            self._namespace.delete("v1", "Pod", f"pod-{address}")
        for address in set(addresses) - self._pods:
            self._namespace.pod(f"pod-{address}", address)
        self._pods = set(addresses)

    def leave(self) -> None:
        self._server.process.kill()

    def come_back(self) -> None:
        self._server.start()


@asynccontextmanager
async def kubernetes_part(server: KubernetesServer, name: str) -> AsyncIterator[KubernetesPart]:
    install(server, "inferencepools.inference.networking.k8s.io")
    api = KubernetesApi(server.kubeconfig())
    try:
        with server.client() as client:
            namespace = make_namespace(server, name, client)
            namespace.pool()
            rules = WatchRules(retry_first=ms(20), retry_most=ms(100))
            source = KubernetesDiscovery(api, name, "pool", SystemClock(), SystemIds(), rules)
            yield KubernetesPart(server, namespace, source)
    finally:
        await api.close()


class Reader:
    """Reads a source in the background; `addresses` are those of each set, in order."""

    def __init__(self, source: EndpointDiscovery) -> None:
        self.sets: list[tuple[DiscoveredEndpoint, ...]] = []
        self._source = source

    async def run(self) -> None:
        async for each in self._source.sets():
            self.sets.append(each)

    @property
    def addresses(self) -> set[str] | None:
        return {each.address for each in self.sets[-1] if each.address} if self.sets else None


@asynccontextmanager
async def reading(source: EndpointDiscovery) -> AsyncIterator[Reader]:
    reader = Reader(source)
    task = asyncio.get_running_loop().create_task(reader.run())
    try:
        yield reader
    finally:
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        await source.close()
    assert isinstance(outcome, asyncio.CancelledError)


SOURCES = ["memory", "file", "dns", pytest.param("kubernetes", marks=pytest.mark.server)]


@pytest.fixture(params=SOURCES)
async def part(request: pytest.FixtureRequest, tmp_path: Path, fresh_name: str) -> AsyncIterator[Part]:
    """A source that is always there."""
    if request.param == "kubernetes":
        async with kubernetes_part(request.getfixturevalue("kubernetes_server"), fresh_name) as made:
            yield made
    elif request.param == "memory":
        yield MemoryPart()
    else:
        yield FilePart(tmp_path / "endpoints.yaml") if request.param == "file" else DnsPart()


@pytest.fixture(params=SOURCES[1:])
async def frail_part(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FrailPart]:
    """A source that the test may take away."""
    if request.param == "kubernetes":
        async with kubernetes_part(request.getfixturevalue("own_kubernetes"), "frail") as made:
            yield made
    else:
        yield FilePart(tmp_path / "endpoints.yaml") if request.param == "file" else DnsPart()


async def test_each_set_is_complete_and_follows_every_change(part: Part) -> None:
    part.declare(FIRST)
    async with reading(part.source) as reader:
        await eventually(lambda: reader.addresses == {FIRST})
        part.declare(FIRST, SECOND)
        await eventually(lambda: reader.addresses == {FIRST, SECOND})
        part.declare(SECOND, THIRD)
        await eventually(lambda: reader.addresses == {SECOND, THIRD})
        assert all(each.ports == (8000,) for each in reader.sets[-1])
        assert part.source.trouble == ""


async def test_what_did_not_change_is_no_news(part: Part) -> None:
    part.declare(FIRST, SECOND)
    async with reading(part.source) as reader:
        await eventually(lambda: reader.addresses == {FIRST, SECOND})
        part.declare(FIRST, SECOND)
        part.declare(SECOND, FIRST, THIRD)
        await eventually(lambda: reader.addresses == {FIRST, SECOND, THIRD})
        assert all(before != after for before, after in itertools.pairwise(reader.sets))


async def test_f152_a_source_that_is_away_keeps_the_last_set_and_what_was_missed_is_made_up_for(
    frail_part: FrailPart,
) -> None:
    part = frail_part
    part.declare(FIRST, SECOND)
    async with reading(part.source) as reader:
        await eventually(lambda: reader.addresses == {FIRST, SECOND})
        told = len(reader.sets)
        part.leave()
        await eventually(lambda: part.source.trouble)
        assert len(reader.sets) == told
        part.come_back()
        part.declare(SECOND)
        await eventually(lambda: reader.addresses == {SECOND}, timeout_s=30)
        await eventually(lambda: part.source.trouble == "", timeout_s=30)
