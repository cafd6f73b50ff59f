"""How evenly and how warmly each profile picks: ten simulated engines in virtual time, the same requests for all.

Engines, pod table, scheduler and prefix index are the real ones; only time is virtual, so a minute takes seconds
and two runs are equal. Pods are scraped every 200 ms as in production: the picker sees loads that are that old.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.locality import Jurisdiction, Locality, Region
from services.core.outcomes import Rejected
from services.core.pods.reading import EngineReading
from services.core.pods.report import PoolSpec
from services.core.pods.table import Pod, PodTable
from services.core.prefix.blocks import Prompt, complete
from services.core.residency import ANYWHERE
from services.core.scheduling.baselines import STRATEGIES
from services.core.scheduling.profile import SchedulingProfile
from services.core.scheduling.signals import Signals
from services.core.units import NS_PER_MS, Instant, Tokens, ms, seconds
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.pick import LocalScheduler, Pick
from services.endpoint_picker.prefix import PrefixIndexes
from services.simulator.engine import Engine
from services.simulator.events import EngineRequest, Finished, FirstToken
from services.simulator.profile import H100_8B
from services.simulator.tokens import BYTES_PER_TOKEN, answer_content, block_hashes
from services.worlds.bench_http import BenchError
from services.worlds.bench_picker_figures import Figure, at_least, at_most, max_over_mean, quantile
from services.worlds.bench_picker_stage import MODEL, POOL
from services.worlds.bench_picker_workloads import ONE_SHOT, SHARED, UNIFORM, Arrivals, Turn, Workload

PODS = 10
SCRAPE_EVERY = ms(200)
WARM_SHARE = 0.25
"""Of the time: caches fill and queues form; nothing of it is counted."""
LOAD_MAX = 1.3
TTFT_RATIO_MAX = 1.0
HIT_GAIN_MIN = 1.1
"""Hit rate over least-outstanding's, which finds the one shared prefix as often: all of the gain is in the rest."""
OURS, LEAST = "prefix-aware", "least-outstanding"
_HERE = Locality(Region("bench"), Jurisdiction("bench"))
_START = Instant(seconds(10))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one profile did with one workload, warm-up left out.

    `load`: the busiest pod's requests over the mean; `outstanding`: the same of requests in it, over time.
    `hit_rate`: prompt tokens that were not computed again.
    """

    requests: int
    load: float
    outstanding: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    hit_rate: float


@dataclass(slots=True, eq=False)
class _Sent:
    turn: Turn
    pick: Pick
    pod: int


@dataclass(slots=True, eq=False)
class World:
    """Ten engines behind one picker with `profile`."""

    workload: Workload
    profile: SchedulingProfile
    table: PodTable = field(init=False)
    engines: list[Engine] = field(init=False)
    arrivals: Arrivals = field(init=False)
    _scheduler: LocalScheduler = field(init=False)
    _indexes: PrefixIndexes = field(init=False)
    _sent: dict[str, _Sent] = field(default_factory=dict)
    _first_tokens: list[float] = field(default_factory=list)
    _picks: list[int] = field(default_factory=lambda: [0] * PODS)
    _held: list[int] = field(default_factory=lambda: [0] * PODS)
    _asked_tokens: int = 0
    _cached_tokens: int = 0

    def __post_init__(self) -> None:
        """Start everything idle."""
        names = [f"pod-{number}" for number in range(PODS)]
        self.table = PodTable((Pod(name, f"{name}:8000", POOL) for name in names), _START)
        self.engines = [Engine(H100_8B, _START) for _ in names]
        self.arrivals = Arrivals(self.workload, _START)
        specs = (PoolSpec(POOL, (ModelName(MODEL),)),)
        self._scheduler = LocalScheduler(self.table, specs, _HERE, Counters(), self.profile)
        self._indexes = PrefixIndexes(b"0123456789abcdef")
        for number in range(PODS):
            self._scrape(number, _START)

    def run(self) -> Outcome:
        """Play the whole workload. Raises BenchError for a request that no pod gets."""
        counted_from = _START + seconds(self.workload.seconds * WARM_SHARE)
        scrapes = [(Instant(_START + SCRAPE_EVERY * number // PODS), number) for number in range(PODS)]
        for turn in self.arrivals:
            while scrapes[0][0] <= turn.at:
                at, number = scrapes[0]
                self._advance(at, counted_from)
                self._scrape(number, at)
                if at >= counted_from:
                    self._held[number] += self.engines[number].running + self.engines[number].waiting
                heapq.heapreplace(scrapes, (Instant(at + SCRAPE_EVERY), number))
            self._advance(turn.at, counted_from)
            self._send(turn, counted=turn.at >= counted_from)
        # What is still running when the last has arrived ends, so that no slow first token is left out.
        end = turn.at
        while self._sent:
            end = Instant(end + SCRAPE_EVERY)
            self._advance(end, counted_from)
        return Outcome(
            sum(self._picks),
            max_over_mean(self._picks),
            max_over_mean(self._held),
            quantile(self._first_tokens, 0.5),
            quantile(self._first_tokens, 0.99),
            self._cached_tokens / self._asked_tokens,
        )

    def _send(self, turn: Turn, *, counted: bool) -> None:
        prompt = Prompt(turn.prompt, BYTES_PER_TOKEN)
        tokens = len(turn.prompt) // BYTES_PER_TOKEN
        found = self._indexes.signals(POOL, MODEL, prompt)
        name = RequestId(f"01930000-0000-7000-8000-{turn.number:012x}")
        request = InferenceRequest(
            name,
            Tenant(TenantId("bench"), Grants()),
            ModelName(MODEL),
            ANYWHERE,
            prompt_tokens=Tokens(tokens),
        )
        signals = Signals(found.matched, found.total_blocks, found.block_tokens, prompt_tokens=tokens)
        pick = self._scheduler.pick(request, turn.at, pool=POOL, signals=signals)
        if isinstance(pick, Rejected):
            raise BenchError(f"a request was refused in virtual time: {pick.message}")
        complete(self._indexes.approximate.record(pick.pod.id, found.chains[found.block_tokens]))
        pod = int(pick.pod.id.removeprefix("pod-"))
        answer = turn.answer_tokens
        hashes = block_hashes(turn.prompt + answer_content(answer), H100_8B.block_size)
        self.engines[pod].submit(EngineRequest(name, tokens, answer, hashes), turn.at)
        self._sent[name] = _Sent(turn, pick, pod)
        self._picks[pod] += counted

    def _advance(self, now: Instant, counted_from: int) -> None:
        for engine in self.engines:
            for event in engine.advance(now):
                if isinstance(event, FirstToken):
                    turn = self._sent[event.request_id].turn
                    if turn.at >= counted_from:
                        self._first_tokens.append((event.at - turn.at) / NS_PER_MS)
                        self._asked_tokens += len(turn.prompt) // BYTES_PER_TOKEN
                        self._cached_tokens += event.cached_tokens
                elif isinstance(event, Finished):
                    sent = self._sent.pop(event.request_id)
                    self._scheduler.complete(sent.pick)
                    self.arrivals.answered(sent.turn)

    def _scrape(self, number: int, now: Instant) -> None:
        engine, name = self.engines[number], f"pod-{number}"
        profile = engine.profile
        reading = EngineReading(
            "vllm",
            waiting=engine.waiting,
            running=engine.running,
            kv_use=engine.kv_usage,
            models=frozenset({MODEL}),
            kv_blocks=profile.num_gpu_blocks,
            block_tokens=profile.block_size,
        )
        self.table.read(name, reading, now)
        self._indexes.observe(name, POOL, reading)


def run(
    progress: Callable[[str], None], workloads: tuple[Workload, ...] = (SHARED, ONE_SHOT, UNIFORM)
) -> list[Figure]:
    """Play every workload with every profile. Raises BenchError."""
    figures: list[Figure] = []
    for workload in workloads:
        outcomes: dict[str, Outcome] = {}
        for name, profile in STRATEGIES.items():
            outcome = outcomes[name] = World(workload, profile).run()
            progress(
                f"{workload.name}, {name}: busiest pod {outcome.load:.2f} of the mean, "
                f"TTFT p99 {outcome.ttft_p99_ms:.0f} ms, hit rate {outcome.hit_rate:.1%}"
            )
        figures += figures_of(workload, outcomes)
    return figures


def figures_of(workload: Workload, outcomes: dict[str, Outcome]) -> list[Figure]:
    """Return the figures of one workload: the default profile beside least-outstanding, then all by name."""
    ours, least = outcomes[OURS], outcomes[LEAST]
    prefix = f"sharing.{workload.name}"
    figures = [
        at_most(f"{prefix}.load", ours.load, "max/mean", LOAD_MAX),
        at_most(f"{prefix}.outstanding", ours.outstanding, "max/mean", LOAD_MAX),
    ]
    ratio = ours.ttft_p99_ms / least.ttft_p99_ms
    if workload.shared:
        figures.append(at_most(f"{prefix}.ttft_p99_ratio", ratio, "ratio", TTFT_RATIO_MAX))
    else:
        figures.append(Figure(f"{prefix}.ttft_p99_ratio", ratio, "ratio"))
    if workload.shared and workload.turns > 1:
        gain = ours.hit_rate / least.hit_rate if least.hit_rate else 0.0
        figures.append(at_least(f"{prefix}.hit_gain", gain, "ratio", HIT_GAIN_MIN))
    for name, outcome in outcomes.items():
        figures += [
            Figure(f"{prefix}.{name}.load", outcome.load, "max/mean", least.load),
            Figure(f"{prefix}.{name}.ttft_p50", outcome.ttft_p50_ms, "ms", least.ttft_p50_ms),
            Figure(f"{prefix}.{name}.ttft_p99", outcome.ttft_p99_ms, "ms", least.ttft_p99_ms),
            Figure(f"{prefix}.{name}.hit_rate", outcome.hit_rate, "share", least.hit_rate),
        ]
    return figures
