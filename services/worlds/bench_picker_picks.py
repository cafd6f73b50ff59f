"""What one pick over a hundred pods costs in process: with every scorer there is, and with the default profile.

Readings arrive between picks as they would at 500 requests a second, so that the mean contains the laying out of
new readings; the median is a pick between two of them. Judging is the figures' own.
"""

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns

from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.locality import Jurisdiction, Locality, Region
from services.core.outcomes import Rejected
from services.core.pods.reading import BucketCounts, EngineReading
from services.core.pods.report import PoolSpec
from services.core.pods.table import Pod, PodTable
from services.core.residency import ANYWHERE
from services.core.scheduling.profile import ENDPOINTS, SchedulingProfile, Weighted, endpoint_profile
from services.core.scheduling.scorers.affinity import ColdSpread, Lora, Prefix, Session
from services.core.scheduling.scorers.fit import (
    CONTEXT_LENGTH_LABEL,
    LEVELS,
    Attribute,
    ContextLength,
    HeaderLabel,
    Topology,
)
from services.core.scheduling.scorers.latency import Latency
from services.core.scheduling.scorers.load import ActiveRequests, KvUse, LoadAware, Queue, Running, TokenLoad
from services.core.scheduling.scorers.scorer import Scorer
from services.core.scheduling.signals import Signals
from services.core.units import Instant, Tokens, seconds
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.pick import LocalScheduler
from services.worlds.bench_http import BenchError
from services.worlds.bench_picker_figures import Figure, at_most, quantile
from services.worlds.bench_picker_stage import MODEL, POOL

MEDIAN_US_MAX = 200.0
IN_FLIGHT = 64
"""Requests running at any moment; the oldest ends when the next comes."""
MATCHED = 12
"""Pods that hold a part of each prompt."""
BLOCKS = 64
"""Of 64 tokens: the prompt has 4,096."""
REQUESTS_PER_S = 500
READINGS_PER_S = 500
"""A hundred pods five times a second."""

_HERE = Locality(Region("bench"), Jurisdiction("bench"))
_TIER_LABEL, _TIER_HEADER = "bench/tier", "x-bench-tier"
_ADAPTERS = tuple(f"adapter-{number}" for number in range(8))
_SCORERS: tuple[Scorer, ...] = (
    Queue(),
    Running(),
    KvUse(),
    LoadAware(),
    ActiveRequests(),
    TokenLoad(),
    Prefix(length_weight=0.2),
    Lora(),
    Session(),
    ColdSpread(),
    ContextLength(),
    HeaderLabel(_TIER_HEADER, _TIER_LABEL),
    Topology({"zone": "zone-1"}),
    Attribute("saturation"),
    Latency(),
)
ALL_SCORERS = endpoint_profile(scorers=tuple(Weighted(scorer) for scorer in _SCORERS))
"""Every scorer, each with something to say of every request."""


@dataclass(frozen=True, slots=True)
class PickOptions:
    """How much is measured."""

    pods: int = 100
    picks: int = 6_000


def table_of(count: int) -> PodTable:
    """Return pods with labels of all kinds, each read once at instant 0."""
    now = Instant(0)
    table = PodTable(
        (
            Pod(
                f"pod-{number}",
                f"10.0.0.{number}:8000",
                POOL,
                labels={
                    CONTEXT_LENGTH_LABEL: f"0-{8192 << number % 3}",
                    _TIER_LABEL: ("gold", "plain")[number % 2],
                    LEVELS["zone"][0]: f"zone-{number % 3}",
                },
            )
            for number in range(count)
        ),
        now,
    )
    for number in range(count):
        table.read(f"pod-{number}", reading_of(number, 0), now)
    return table


def reading_of(pod: int, turn: int) -> EngineReading:
    """Return what a pod says at its `turn`th scrape; loads differ between pods and change with time."""
    seen = float(turn + 1)
    return EngineReading(
        "vllm",
        waiting=(pod * 7 + turn) % 5,
        running=20 + (pod * 3 + turn) % 11,
        kv_use=((pod * 13 + turn) % 60) / 100,
        models=frozenset({MODEL}),
        active_adapters=frozenset({_ADAPTERS[pod % 8], _ADAPTERS[(pod + turn) % 8]}),
        waiting_adapters=frozenset({_ADAPTERS[(pod + 3) % 8]}),
        max_adapters=4,
        ttft=BucketCounts((0.1, 0.5, float("inf")), (seen * (pod % 3), seen * 3, seen * 4)),
    )


def signals_of(number: int, pods: int) -> Signals:
    """Return the signals of a request that has one of every kind."""
    matched = {f"pod-{(number * 5 + step) % pods}": BLOCKS - step * 4 for step in range(MATCHED)}
    return Signals(
        matched,
        BLOCKS,
        64,
        adapter=_ADAPTERS[number % 8],
        session=f"pod-{number * 3 % pods}",
        prompt_tokens=BLOCKS * 64,
        ttft_slo_ms=400.0,
        headers={_TIER_HEADER: "gold"},
    )


def request_of(number: int) -> InferenceRequest:
    """Return a request of its own id."""
    tenant = Tenant(TenantId("bench"), Grants())
    name = RequestId(f"01930000-0000-7000-8000-{number:012x}")
    return InferenceRequest(name, tenant, ModelName(MODEL), ANYWHERE, prompt_tokens=Tokens(BLOCKS * 64))


def pick_us(profile: SchedulingProfile, options: PickOptions) -> list[float]:
    """Return the microseconds of each pick; a warming tenth is left out. Raises BenchError for a refusal."""
    table = table_of(options.pods)
    scheduler = LocalScheduler(table, (PoolSpec(POOL, (ModelName(MODEL),)),), _HERE, Counters(), profile)
    running = []
    spans = []
    # Request, signals and reading belong to the scenery: they are made outside of what is timed.
    for number in range(options.picks):
        now = Instant(seconds(1) + number * seconds(1) // REQUESTS_PER_S)
        for step in range(READINGS_PER_S // REQUESTS_PER_S):
            turn, pod = divmod(number * (READINGS_PER_S // REQUESTS_PER_S) + step, options.pods)
            table.read(f"pod-{pod}", reading_of(pod, turn), now)
        request, signals = request_of(number), signals_of(number, options.pods)
        began = perf_counter_ns()
        picked = scheduler.pick(request, now, pool=POOL, signals=signals)
        spans.append((perf_counter_ns() - began) / 1000)
        if isinstance(picked, Rejected):
            raise BenchError(f"a pick was refused: {picked.message}")
        running.append(picked)
        if len(running) > IN_FLIGHT:
            scheduler.complete(running.pop(0))
    return spans[options.picks // 10 :]


def run(options: PickOptions, progress: Callable[[str], None]) -> list[Figure]:
    """Measure both profiles. Raises BenchError."""
    figures = []
    for name, profile in (("all_scorers", ALL_SCORERS), ("default", ENDPOINTS)):
        gc.collect()
        spans = pick_us(profile, options)
        figures += _figures(f"pick.{name}.{options.pods}", spans)
        progress(f"a pick over {options.pods} pods, {name}: {statistics.median(spans):.0f} us")
    return figures


def _figures(name: str, spans: Sequence[float]) -> list[Figure]:
    return [
        at_most(f"{name}.median", statistics.median(spans), "us", MEDIAN_US_MAX),
        Figure(f"{name}.mean", statistics.fmean(spans), "us"),
        Figure(f"{name}.p99", quantile(spans, 0.99), "us"),
    ]
