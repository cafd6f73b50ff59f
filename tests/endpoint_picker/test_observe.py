"""Scrape loops in virtual time: each pod by itself, never twice at once, less often when slow; cases by id."""

import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.adapters.memory.clock import VirtualClock
from services.adapters.memory.discovery import MemoryDiscovery
from services.adapters.model_server import vllm
from services.adapters.model_server.engines import AUTO
from services.adapters.system.ids import SystemIds
from services.adapters.system.tasks import TaskScope
from services.core.fleet import PodState
from services.core.pods.discovered import (
    DiscoveredEndpoint,
    PodAdded,
    PodChanged,
    PodContested,
    PodRemoved,
    StartPhase,
)
from services.core.pods.table import Pod, PodEffect, PodMoved, PodTable, Serving, SignalMoved
from services.core.units import ms, seconds
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.observe import Observer, ScrapeRules, line_of
from tests.endpoint_picker.servers import PAGE, Server, VirtualServers


class Watched:
    """An observer over virtual servers, its loops running."""

    def __init__(self, pods: int, rules: ScrapeRules, agents: int = 1) -> None:
        self.clock = VirtualClock()
        self.servers = VirtualServers(self.clock)
        self.failures: list[BaseException] = []
        self.scope = TaskScope(lambda _, failure: self.failures.append(failure))
        self.observers = []
        for _ in range(agents):
            table = PodTable(
                (Pod(f"p{n}", f"10.0.0.{n}:8000", "pool") for n in range(pods)), self.clock.now()
            )
            self.observers.append(
                Observer(
                    table, self.servers, lambda _: vllm.ENGINE, self.clock, SystemIds(), Counters(), rules
                )
            )
        self.observer = self.observers[0]
        self.table = self.observer.table

    def server(self, number: int) -> Server:
        return self.servers[f"10.0.0.{number}:8000"]

    async def run(self, milliseconds: float) -> None:
        """Let time pass, looking at ages every 100 ms as the pulse does."""
        for _ in range(round(milliseconds / 100)):
            await self.clock.advance(ms(100))
            for observer in self.observers:
                observer.apply(observer.table.tick(self.clock.now()))

    def state(self, pod: str) -> PodState:
        return self.table[pod].state

    def age_ms(self, pod: str) -> float:
        read_at = self.table[pod].read_at
        assert read_at is not None
        return (self.clock.now() - read_at) / 1e6


@asynccontextmanager
async def watched(pods: int = 1, rules: ScrapeRules | None = None, agents: int = 1) -> AsyncIterator[Watched]:
    world = Watched(pods, rules or ScrapeRules(), agents)
    for observer in world.observers:
        observer.start(world.scope)
    yield world
    await world.scope.close()
    assert world.failures == []


async def test_a_pod_is_known_within_its_first_interval_with_engine_and_version() -> None:
    async with watched() as world:
        await world.run(300)
        pod = world.table["p0"]
        assert pod.state is PodState.READY
        assert pod.identity is not None
        assert (pod.identity.engine, pod.identity.version) == ("vllm", "0.11.0")


async def test_f014_a_hanging_pod_delays_nobody() -> None:
    """Ten pods every 50 ms, scrapes bounded by 5 s, pod 7 never answers: the others stay below twice the interval."""
    rules = ScrapeRules(interval=ms(50), timeout=seconds(5))
    async with watched(10, rules) as world:
        world.server(7).takes = seconds(3600)
        await world.run(200)
        for _ in range(80):
            await world.run(100)
            for number in set(range(10)) - {7}:
                assert world.age_ms(f"p{number}") < 100
        assert world.state("p7") is PodState.WARMING
        world.server(7).takes = ms(1)
        await world.run(6_000)
        world.server(7).takes = seconds(3600)
        await world.run(2_200)
        states = [pod.state for pod in world.table]
        assert states == [*[PodState.READY] * 7, PodState.STALE, *[PodState.READY] * 2]


async def test_f016_slow_metrics_alone_never_stop_traffic() -> None:
    """The case's policy switch is not built: the design decides for flowing traffic."""
    async with watched(1) as world:
        await world.run(500)
        world.server(0).takes = seconds(3)
        await world.run(3_000)
        assert world.state("p0") is PodState.STALE
        assert world.table.serving("pool") == (Serving.DEGRADED, [world.table["p0"]])
    async with watched(3) as world:
        await world.run(500)
        world.server(0).takes = world.server(1).takes = seconds(3)
        await world.run(3_000)
        assert world.table.serving("pool") == (Serving.FRESH, [world.table["p2"]])


async def test_f019_slow_servers_are_asked_one_at_a_time_and_less_often_by_agents_that_spread() -> None:
    rules = ScrapeRules(interval=ms(100), timeout=seconds(5))
    async with watched(1, rules, agents=3) as world:
        world.server(0).takes = seconds(2)
        await world.run(20_000)
        asked = world.server(0).asked
        assert world.server(0).most_at_once <= 3
        assert len(asked) <= 3 * (20 / 4 + 1)
        assert len({instant % ms(100) for instant in asked[:3]}) == 3


async def test_the_interval_is_kept_while_a_scrape_is_quick() -> None:
    async with watched(1) as world:
        world.server(0).takes = ms(40)
        await world.run(4_000)
        asked = world.server(0).asked
        gaps = {later - earlier for earlier, later in itertools.pairwise(asked[3:])}
        assert gaps == {ms(200)}


async def test_f020_a_new_pod_is_warming_until_it_answers() -> None:
    async with watched(4) as world:
        world.server(3).takes = seconds(5)
        await world.run(4_000)
        assert world.state("p3") is PodState.WARMING
        assert [pod.id for pod in world.table.serving("pool")[1]] == ["p0", "p1", "p2"]
        world.server(3).takes = ms(1)
        await world.run(2_500)
        assert world.state("p3") is PodState.READY
        assert len(world.table.serving("pool")[1]) == 4


async def test_f004_a_missing_family_is_told_once_each_way(caplog: pytest.LogCaptureFixture) -> None:
    """The case's LoRA family is optional and tells nothing; the needed KV gauge is told at its transitions only."""
    caplog.set_level(logging.INFO)
    async with watched(1) as world:
        await world.run(20_000)
        assert [record.message for record in caplog.records] == ["pod p0: WARMING -> READY"]
        caplog.clear()
        world.server(0).page = PAGE.replace(b"kv_cache", b"other")
        await world.run(20_000)
        assert [record.message for record in caplog.records] == [
            f"pod p0: metric {vllm.KV_USE} is missing",
            f"pod p0: READY -> DEGRADED (missing {vllm.KV_USE})",
        ]
        caplog.clear()
        world.server(0).page = PAGE
        await world.run(20_000)
        assert [record.message for record in caplog.records] == [
            f"pod p0: metric {vllm.KV_USE} is back",
            "pod p0: DEGRADED -> READY",
        ]


async def test_an_old_engine_is_degraded_and_a_restarted_one_is_asked_again() -> None:
    async with watched(1) as world:
        world.server(0).version = b'{"version": "0.8.5"}'
        await world.run(500)
        assert world.state("p0") is PodState.DEGRADED
        assert world.table["p0"].reason == f"vllm 0.8.5 is too old for {vllm.KV_USE}"
        world.server(0).failure = "refused"
        await world.run(1_500)
        assert world.state("p0") is PodState.FAILED
        world.server(0).failure = ""
        world.server(0).version = b'{"version": "0.11.0"}'
        await world.run(1_500)
        assert world.state("p0") is PodState.READY
        asked = world.server(0).versions_asked
        await world.run(57_000)
        assert world.server(0).versions_asked == asked
        await world.run(5_000)
        assert world.server(0).versions_asked == asked + 1


SGLANG_PAGE = b"sglang:num_queue_reqs 0\nsglang:num_running_reqs 1\nsglang:token_usage 0.1\n"


async def test_the_version_is_asked_as_the_page_shows_the_engine() -> None:
    """Of a pod whose engine is not configured; the first path is not there on this release, the second is."""
    async with watched(1) as world:
        world.observer.engine_of = lambda _: AUTO
        server = world.server(0)
        server.page, server.version_path, server.version = (
            SGLANG_PAGE,
            "server_info",
            b'{"version": "0.3.5"}',
        )
        await world.run(500)
        assert world.table["p0"].reason == "sglang 0.3.5 is too old for sglang:num_queue_reqs"
        assert set(world.servers.paths) == {"/metrics", "/get_server_info", "/server_info"}


async def test_a_server_that_leaves_the_version_unanswered_is_not_asked_on() -> None:
    async with watched(1) as world:
        world.observer.engine_of = lambda _: AUTO
        server = world.server(0)
        server.page, server.version_path, server.version = SGLANG_PAGE, "get_server_info", b"#" * (1 << 20)
        await world.run(500)
        assert world.state("p0") is PodState.READY
        assert (world.table["p0"].identity, server.versions_asked) == (None, 1)


async def test_a_page_of_no_known_engine_is_degraded_by_name_and_asked_for_no_version() -> None:
    async with watched(1) as world:
        world.observer.engine_of = lambda _: AUTO
        world.server(0).page = b"go_goroutines 12\n"
        await world.run(500)
        assert world.table["p0"].reason == "missing any known engine's metrics"
        assert set(world.servers.paths) == {"/metrics"}


async def test_metrics_are_read_where_the_engine_has_them() -> None:
    async with watched(1) as world:
        world.observer.engine_of = lambda _: "triton"
        world.servers["10.0.0.0:8002"].page = b'nv_inference_pending_request_count{model="m"} 4\n'
        world.server(0).version_path = "v2"
        await world.run(500)
        reading = world.table["p0"].reading
        assert reading is not None
        assert (world.state("p0"), reading.waiting) == (PodState.READY, 4)
        assert world.server(0).asked == []
        assert world.server(0).versions_asked == 1


async def test_a_server_without_a_version_page_is_left_unjudged() -> None:
    async with watched(1) as world:
        world.server(0).version = b"not found"
        await world.run(1_000)
        assert world.state("p0") is PodState.READY
        assert world.table["p0"].identity is None
        assert world.server(0).versions_asked == 1


async def test_every_result_is_counted_by_its_word() -> None:
    async with watched(1) as world:
        await world.run(600)
        world.server(0).failure = "status"
        await world.run(600)
        world.server(0).failure = ""
        world.server(0).page = b"#" * (5 << 20)
        await world.run(600)
        counters = world.observer.counters
        assert set(counters.scrapes) == {"ok", "status", "too_large"}
        assert counters.pod_moves == 1


async def test_histograms_are_read_once_a_second() -> None:
    histogram = (
        b'vllm:time_to_first_token_seconds_bucket{le="0.1"} %d\n'
        b'vllm:time_to_first_token_seconds_bucket{le="+Inf"} %d\n'
    )
    async with watched(1) as world:
        seen = set()
        for served in range(1, 51):
            world.server(0).page = PAGE + histogram % (served, served)
            await world.run(100)
            window = world.table["p0"].ttft
            recent = window.recent() if window is not None else None
            seen.add(None if recent is None else recent.counts)
        # Five seconds of pages, each with counts of its own: every page read would give fifty.
        assert 3 <= len(seen) <= 7
        assert max(counts for counts in seen if counts)[0] >= 20


async def test_a_frozen_observer_asks_nobody() -> None:
    async with watched(1) as world:
        await world.run(1_000)
        world.observer.frozen = True
        asked = len(world.server(0).asked)
        await world.run(1_000)
        assert len(world.server(0).asked) == asked


async def test_the_configured_path_is_asked() -> None:
    async with watched(1, ScrapeRules(metrics_path="/internal/metrics")) as world:
        await world.run(500)
        assert set(world.servers.paths) == {"/internal/metrics", "/version"}


def endpoint(name: str, host: str, **declared: Any) -> DiscoveredEndpoint:
    return DiscoveredEndpoint(name, host, (8000,), **declared)


async def test_loops_begin_and_end_with_the_pods_that_discovery_declares() -> None:
    async with watched(0) as world:
        source = MemoryDiscovery()
        world.scope.spawn(world.observer.follow("pool", source), "discovery")
        source.declare(endpoint("a", "10.0.0.0"), endpoint("b", "10.0.0.1"))
        await world.run(500)
        assert [world.state(pod) for pod in "ab"] == [PodState.READY] * 2
        kept = world.table["a"]
        source.declare(endpoint("a", "10.0.0.0"))
        await world.run(100)
        asked = len(world.server(1).asked)
        await world.run(2_000)
        assert len(world.server(1).asked) == asked
        assert (world.table["a"], kept.state) == (kept, PodState.READY)


async def test_a_pod_whose_address_changed_is_another_server() -> None:
    async with watched(0) as world:
        world.observer.set_pods("pool", [endpoint("a", "10.0.0.0")])
        await world.run(500)
        world.server(1).failure = "refused"
        world.observer.set_pods("pool", [endpoint("a", "10.0.0.1")])
        asked = len(world.server(0).asked)
        await world.run(1_000)
        assert world.state("a") is PodState.WARMING
        assert len(world.server(0).asked) == asked
        assert len(world.server(1).asked) > 3


async def test_a_pod_is_asked_from_the_moment_it_has_an_address() -> None:
    async with watched(0) as world:
        world.observer.set_pods("pool", [endpoint("a", "", phase=StartPhase.SCHEDULED)])
        await world.run(1_000)
        assert not world.servers.paths
        world.observer.set_pods("pool", [endpoint("a", "10.0.0.0", phase=StartPhase.LOADING)])
        await world.run(500)
        assert world.state("a") is PodState.READY


async def test_pods_declared_before_the_start_are_watched_from_the_start() -> None:
    world = Watched(0, ScrapeRules())
    world.observer.set_pods("pool", [endpoint("a", "10.0.0.0")])
    world.observer.start(world.scope)
    await world.run(500)
    assert world.state("a") is PodState.READY
    await world.scope.close()


def test_each_effect_has_its_line() -> None:
    effects: list[PodEffect] = [
        PodMoved("p", PodState.READY, PodState.STALE, "late"),
        SignalMoved("p", "m", present=True),
        PodAdded("p", "h:1"),
        PodAdded("p", ""),
        PodRemoved("p"),
        PodChanged("p", ("labels", "zone")),
        PodContested("p", "two", "one"),
    ]
    assert [line_of(effect) for effect in effects] == [
        "pod p: READY -> STALE (late)",
        "pod p: metric m is back",
        "pod p: declared at h:1",
        "pod p: declared without an address",
        "pod p: declared no more",
        "pod p: labels, zone changed",
        "pod p: declared by pool two while pool one has it; it serves one",
    ]


async def test_a_pool_whose_metrics_have_a_port_of_their_own_is_read_there() -> None:
    async with watched() as world:
        world.observer.metrics_ports = {"pool": 9100, "other": 9200}
        await world.run(1000)
        assert world.servers["10.0.0.0:9100"].asked
        assert (world.server(0).asked, world.server(0).versions_asked) == ([], 1)
        assert world.state("p0") is PodState.READY
