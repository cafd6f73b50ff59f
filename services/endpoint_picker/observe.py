"""Watching the pods: one scrape loop per pod, each with its own deadline, feeding the pod table.

Loops start and stop with the pods that discovery declares. A loop never has two requests to its server at
once, and a server that answers slowly is asked less often, so that scraping cannot be what overloads it. What
results mean is the table's business. Moves are logged here, one line each; publishing them is `publish`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from services.adapters.model_server.engines import ENGINES, Readers, metrics_url, version_urls
from services.adapters.model_server.versions import VERSION_MAX_BYTES, version_in
from services.adapters.ports import Clock, EndpointDiscovery, Ids, MetricsSource
from services.adapters.system.tasks import TaskScope
from services.core.pods.discovered import (
    DiscoveredEndpoint,
    PodAdded,
    PodChanged,
    PodContested,
    PodRemoved,
)
from services.core.pods.table import Pod, PodEffect, PodMoved, PodTable, ScrapeFailure, SignalMoved
from services.core.units import Duration, Instant, ms, seconds
from services.endpoint_picker.counters import Counters

_LOG = logging.getLogger(__name__)

SPREAD_AT_MOST = seconds(1)
"""A pod is known within a second of the start, however rarely it is asked later."""
HISTOGRAMS_EVERY = seconds(1)
"""The window of a minute gains nothing from more, and the histogram is most of the cost of a page."""
IDENTIFY_EVERY = seconds(60)
"""A server upgraded in place is noticed within a minute; one that restarted, at its return."""


@dataclass(frozen=True, slots=True)
class ScrapeRules:
    """When and how much to read. `interval` is kept while a scrape takes less than half of it.

    `metrics_path` is where every engine has its metrics; empty: each where its own maker put them.
    """

    interval: Duration = ms(200)
    timeout: Duration = seconds(1)
    max_bytes: int = 4 << 20
    metrics_path: str = ""


@dataclass(slots=True)
class Observer:
    """Runs the scrape loops. `engine_of` names a pod's engine, one of the `CHOICES`; `frozen` stops them (a black-holed cluster).

    `metrics_ports`, by pool, are where pods have their metrics other than where their engine does.

    `start` begins one loop per pod; from then on `set_pods` and `follow` begin and end loops with the pods.
    """

    table: PodTable
    source: MetricsSource
    engine_of: Callable[[Pod], str]
    clock: Clock
    ids: Ids
    counters: Counters
    rules: ScrapeRules = field(default_factory=ScrapeRules)
    readers: Readers = field(default_factory=Readers)
    metrics_ports: Mapping[str, int] = field(default_factory=dict)
    frozen: bool = False
    _histogram_at: dict[str, Instant] = field(default_factory=dict)
    _scope: TaskScope | None = None
    _loops: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def start(self, scope: TaskScope) -> None:
        """Watch every pod of the table, in tasks of `scope`."""
        self._scope = scope
        for pod in self.table:
            self._begin(pod.id)

    async def follow(self, pool: str, source: EndpointDiscovery) -> None:
        """Make each set that `source` yields the whole of `pool`, for ever."""
        async for endpoints in source.sets():
            self.set_pods(pool, endpoints)

    def set_pods(self, pool: str, endpoints: Iterable[DiscoveredEndpoint]) -> None:
        """Make `endpoints` the whole of `pool`: loops of pods that left end, those of new ones begin."""
        effects = self.table.set_pods(pool, endpoints, self.clock.now())
        self.apply(effects)
        for effect in effects:
            if isinstance(effect, PodRemoved):
                self._end(effect.pod)
            elif isinstance(effect, PodAdded) or (
                isinstance(effect, PodChanged) and "address" in effect.fields
            ):
                # Another address is another server: what the old one still answers is not this pod's.
                self._end(effect.pod)
                self._begin(effect.pod)

    def _begin(self, pod_id: str) -> None:
        if self._scope is not None and self.table[pod_id].address:
            self._loops[pod_id] = self._scope.spawn(self.watch(pod_id), f"watch {pod_id}")

    def _end(self, pod_id: str) -> None:
        self._histogram_at.pop(pod_id, None)
        loop = self._loops.pop(pod_id, None)
        if loop is not None:
            loop.cancel()

    async def watch(self, pod_id: str) -> None:
        """Scrape one pod for ever."""
        # Agents and pods that start together spread over the interval and stay spread.
        phase = int.from_bytes(self.ids.token(4), "big") / 2**32
        await self.clock.sleep(Duration(round(phase * min(self.rules.interval, SPREAD_AT_MOST))))
        identified_at: Instant | None = None
        while True:
            started = self.clock.now()
            if not self.frozen:
                await self.scrape(pod_id)
                pod = self.table[pod_id]
                if pod.read_at is not None and pod.read_at >= started:
                    due = identified_at is None or started - identified_at >= IDENTIFY_EVERY
                    if due or pod.good_in_row == 1:
                        identified_at = started
                        await self.identify(pod_id)
            took = self.clock.now() - started
            await self.clock.sleep(Duration(max(self.rules.interval - took, took)))

    async def scrape(self, pod_id: str) -> None:
        """Fetch and read one page."""
        pod = self.table[pod_id]
        engine = self.engine_of(pod)
        url = metrics_url(pod.address, engine, self.rules.metrics_path, self.metrics_ports.get(pod.pool))
        page = await self.source.fetch(url, self.rules.timeout, self.rules.max_bytes)
        self.counters.scrapes[page.failure or "ok"] += 1
        if page.failure:
            self.apply(self.table.missed(pod_id, ScrapeFailure(page.failure), page.finished_at))
        else:
            now = page.finished_at
            last = self._histogram_at.get(pod_id)
            with_ttft = last is None or now - last >= HISTOGRAMS_EVERY
            if with_ttft:
                self._histogram_at[pod_id] = now
            reading = self.readers.reader(engine)(page.body, with_ttft=with_ttft)
            self.counters.incomplete_pages += bool(reading.missing)
            self.apply(self.table.read(pod_id, reading, now))

    async def identify(self, pod_id: str) -> None:
        """Ask the server for its version; one that tells none is left unjudged.

        What it runs is what its last page showed. A path that is not there leads to the next; a server that does
        not answer in time is not asked again before its next metrics.
        """
        pod = self.table[pod_id]
        engine = pod.reading.engine if pod.reading is not None else ""
        for url in version_urls(pod.address, engine):
            page = await self.source.fetch(url, self.rules.timeout, VERSION_MAX_BYTES)
            if page.failure and page.failure != ScrapeFailure.STATUS.value:
                return
            version = version_in(page.body)
            if version:
                identity = ENGINES[engine].identify(version)
                self.apply(self.table.identified(pod_id, identity, page.finished_at))
                return

    def apply(self, effects: Iterable[PodEffect]) -> None:
        """Count and log what the table says happened."""
        for effect in effects:
            self.counters.pod_moves += isinstance(effect, PodMoved)
            level = logging.WARNING if isinstance(effect, SignalMoved | PodContested) else logging.INFO
            _LOG.log(level, "%s", line_of(effect))


def line_of(effect: PodEffect) -> str:
    """Return the log line of one effect."""
    match effect:
        case PodMoved(pod, before, after, reason):
            return f"pod {pod}: {before.value} -> {after.value}{f' ({reason})' if reason else ''}"
        case SignalMoved(pod, metric, present):
            return f"pod {pod}: metric {metric} {'is back' if present else 'is missing'}"
        case PodAdded(pod, address):
            return (
                f"pod {pod}: declared at {address}" if address else f"pod {pod}: declared without an address"
            )
        case PodRemoved(pod):
            return f"pod {pod}: declared no more"
        case PodChanged(pod, fields):
            return f"pod {pod}: {', '.join(fields)} changed"
        case PodContested(pod, pool, holder):
            return f"pod {pod}: declared by pool {pool} while pool {holder} has it; it serves {holder}"
