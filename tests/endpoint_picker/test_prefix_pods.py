"""Pods come, go and are replaced: whose events are heard, and what is believed of whom, follows."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from services.adapters.memory.kv_events import MemoryKvEvents, MemoryKvPublisher
from services.adapters.system.clock import SystemClock
from services.adapters.system.tasks import TaskScope
from services.core.pods.discovered import DiscoveredEndpoint
from services.core.pods.reading import EngineReading
from services.core.pods.table import Pod, PodTable, ScrapeFailure
from services.core.prefix.blocks import Prompt, complete
from services.core.units import Instant
from services.endpoint_picker.kv_listener import KvListener
from services.endpoint_picker.prefix import PrefixIndexes
from services.endpoint_picker.prefix_pods import KvEventPlan, PrefixPods
from tests.support.wait import eventually

NOW = Instant(0)
PROMPT = Prompt(b"x" * 2560)


class Publisher(MemoryKvEvents):
    """A subscription that says when it is closed, and may be held back from that."""

    def __init__(self, name: str, closed: list[str]) -> None:
        super().__init__(MemoryKvPublisher())
        self.name = name
        self.closed = closed
        self.may_close = asyncio.Event()
        self.may_close.set()

    async def close(self) -> None:
        await self.may_close.wait()
        self.closed.append(self.name)
        await super().close()


class World:
    """Pods of pool `chat` as discovery declares them, and who is subscribed to."""

    def __init__(self, scope: TaskScope, *, ranks: int = 0) -> None:
        self.indexes = PrefixIndexes(b"s" * 32, precise=ranks > 0)
        self.table = PodTable((), NOW)
        self.heard: dict[str, Publisher] = {}
        self.closed: list[str] = []
        plan = None
        if self.indexes.precise is not None:
            listener = KvListener(self.indexes.precise, SystemClock())
            plan = KvEventPlan(listener, {"chat": "llama"}, ranks, self.connect)
        self.pods = PrefixPods(self.indexes, scope, plan)

    def connect(self, pod: Pod, rank: int) -> Publisher:
        name = f"{pod.id}@{pod.address}/{rank}"
        self.heard[name] = Publisher(name, self.closed)
        return self.heard[name]

    def declare(self, *endpoints: DiscoveredEndpoint) -> None:
        self.table.set_pods("chat", endpoints, NOW)
        self.pods.follow(self.table)

    async def hears(self, names: Iterable[str]) -> None:
        def holds() -> bool:
            self.pods.follow(self.table)
            return self.heard.keys() - self.closed == set(names)

        await eventually(holds)


def endpoint(name: str, address: str = "10.0.0.1", *ports: int) -> DiscoveredEndpoint:
    return DiscoveredEndpoint(name, address, ports or (8000,))


MakeWorld = Callable[[int], World]


@pytest.fixture
async def world() -> AsyncIterator[MakeWorld]:
    """Makes worlds; a task of theirs that fails fails the test, as it would end the picker."""
    failed: list[BaseException] = []
    scope = TaskScope(lambda _, failure: failed.append(failure))
    yield lambda ranks: World(scope, ranks=ranks)
    await scope.close()
    assert failed == []


async def test_without_events_pods_are_known_and_their_caches_measured(world: MakeWorld) -> None:
    made = world(0)
    made.declare(endpoint("a"), endpoint("b"))
    made.table.read("a", EngineReading("vllm", block_tokens=256), NOW)
    made.pods.follow(made.table)
    assert made.indexes.knows("a")
    assert made.indexes.signals("chat", "llama", PROMPT).chains.keys() == {64, 256}
    made.declare(endpoint("b"))
    await eventually(lambda: not made.indexes.knows("a"))
    assert made.indexes.signals("chat", "llama", PROMPT).chains.keys() == {64}


async def test_each_rank_behind_one_endpoint_is_heard(world: MakeWorld) -> None:
    made = world(2)
    made.declare(endpoint("a"))
    await made.hears(["a@10.0.0.1:8000/0", "a@10.0.0.1:8000/1"])


async def test_endpoints_that_are_ranks_count_by_their_place_in_the_pod(world: MakeWorld) -> None:
    made = world(1)
    made.declare(endpoint("a", "10.0.0.1", 8000, 8001), endpoint("b", "10.0.0.2", 8000, 8001))
    await made.hears(
        [
            "a-rank-0@10.0.0.1:8000/0",
            "a-rank-1@10.0.0.1:8001/1",
            "b-rank-0@10.0.0.2:8000/0",
            "b-rank-1@10.0.0.2:8001/1",
        ]
    )


async def test_a_pod_is_heard_once_it_has_an_address(world: MakeWorld) -> None:
    made = world(1)
    made.declare(endpoint("a", ""))
    assert made.heard == {}
    made.declare(endpoint("a", "10.0.0.7"))
    await made.hears(["a@10.0.0.7:8000/0"])


async def test_a_pod_that_left_is_heard_no_more(world: MakeWorld) -> None:
    made = world(1)
    made.declare(endpoint("a"), endpoint("b", "10.0.0.2"))
    await made.hears(["a@10.0.0.1:8000/0", "b@10.0.0.2:8000/0"])
    made.declare(endpoint("b", "10.0.0.2"))
    await made.hears(["b@10.0.0.2:8000/0"])
    await eventually(lambda: not made.indexes.knows("a"))


async def test_another_server_under_the_same_name_begins_after_the_old_one_was_forgotten(
    world: MakeWorld,
) -> None:
    made = world(1)
    made.declare(endpoint("a"))
    await made.hears(["a@10.0.0.1:8000/0"])
    old = made.heard["a@10.0.0.1:8000/0"]
    old.may_close.clear()
    made.declare(endpoint("a", "10.0.0.2"))
    made.pods.follow(made.table)
    assert made.heard.keys() == {old.name}
    old.may_close.set()
    await made.hears(["a@10.0.0.2:8000/0"])
    assert made.indexes.knows("a")


async def test_a_server_that_is_down_holds_nothing_and_is_heard_anew_when_it_is_back(
    world: MakeWorld,
) -> None:
    made = world(1)
    made.declare(endpoint("a"))
    await made.hears(["a@10.0.0.1:8000/0"])
    for _ in range(made.table.rules.failures_to_fail):
        made.table.missed("a", ScrapeFailure.REFUSED, NOW)
    made.pods.follow(made.table)
    await eventually(lambda: not made.indexes.knows("a"))
    made.pods.follow(made.table)
    assert made.closed == ["a@10.0.0.1:8000/0"]
    made.closed.clear()
    made.heard.clear()
    made.table.read("a", EngineReading("vllm"), NOW)
    await made.hears(["a@10.0.0.1:8000/0"])
    assert made.indexes.knows("a")


async def test_nothing_is_done_while_nothing_changed(world: MakeWorld) -> None:
    made = world(0)
    made.declare(endpoint("a"))
    complete(made.indexes.remove("a"))
    made.pods.follow(made.table)
    assert not made.indexes.knows("a")
