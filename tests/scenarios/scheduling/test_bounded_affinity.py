"""Affinity with bounded load, on a small queueing model: ten pods, one prefix that is most of the traffic.

Each pod runs requests in turns of its own capacity and keeps the prefixes it saw last; a request that finds its
prefix there is served in a third of the time. Loads are scraped every 200 ms and are old in between, as in life.
The model is deterministic: arrivals and prefixes are hashes of a count.
"""

from bisect import insort
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b

import pytest

from services.core.fleet import LoadReport
from services.core.outcomes import Routed
from services.core.scheduling import endpoints
from services.core.scheduling.baselines import strategy
from services.core.scheduling.decide import decide
from services.core.scheduling.profile import SchedulingProfile
from services.core.scheduling.signals import Signals
from tests.core.scheduling.fleets import NOW, fleet, request
from tests.core.scheduling.pods import pod

PODS = 10
SLOTS = 8
KEPT_PREFIXES = 12
OTHER_PREFIXES = 80
HOT_SHARE = 0.8
MISS_MS, HIT_MS = 900.0, 300.0
SCRAPE_MS = 200.0
BLOCKS = 32
REQUESTS = 3000
WARM_UP = 800
"""Until every pod has had work, nothing is said of balance."""


def chance(number: int, what: str) -> float:
    """A number in [0, 1) that is the same in every run."""
    return int.from_bytes(blake2b(f"{what}{number}".encode(), digest_size=7).digest()) / (1 << 56)


@dataclass
class ModelPod:
    """A server of `SLOTS` places with a queue before them and an LRU of prefixes."""

    running: list[float] = field(default_factory=list)
    waiting: deque[tuple[float, float]] = field(default_factory=deque)
    prefixes: OrderedDict[int, None] = field(default_factory=OrderedDict)
    waits: list[float] = field(default_factory=list)

    def advance(self, now: float) -> int:
        """Let time pass; return how many requests ended."""
        ended = 0
        while self.running and self.running[0] <= now:
            free_at = self.running.pop(0)
            ended += 1
            if self.waiting:
                arrived, service = self.waiting.popleft()
                self.waits.append(free_at - arrived)
                insort(self.running, free_at + service)
        return ended

    def take(self, prefix: int, now: float) -> bool:
        """Take a request; return whether its prefix was there."""
        hit = prefix in self.prefixes
        self.prefixes[prefix] = None
        self.prefixes.move_to_end(prefix)
        if len(self.prefixes) > KEPT_PREFIXES:
            self.prefixes.popitem(last=False)
        service = HIT_MS if hit else MISS_MS
        if len(self.running) < SLOTS:
            self.waits.append(0.0)
            insort(self.running, now + service)
        else:
            self.waiting.append((now, service))
        return hit

    def load(self) -> LoadReport:
        return LoadReport(
            waiting=len(self.waiting), running=len(self.running), kv_use=len(self.running) / SLOTS
        )


@dataclass(frozen=True)
class Outcome:
    hit_rate: float
    max_over_mean: float
    served_max_over_mean: float
    wait_ms_p99: float


@cache
def run(profile: SchedulingProfile, gap_ms: float) -> Outcome:
    """Send one request every `gap_ms` on average; return what came of those after the warm-up."""
    pods = {f"p{number}": ModelPod() for number in range(PODS)}
    own: Counter[str] = Counter()
    served: Counter[str] = Counter()
    area: Counter[str] = Counter()
    prepared = fleet(*(pod(name, each.load()) for name, each in pods.items()), profile=profile)
    now = scraped = 0.0
    hits = 0
    for number in range(REQUESTS):
        now += gap_ms * 2 * chance(number, "gap")
        for name, each in pods.items():
            own[name] -= each.advance(now)
        if now - scraped >= SCRAPE_MS:
            scraped = now
            prepared = fleet(*(pod(name, each.load()) for name, each in pods.items()), profile=profile)
            own.clear()
        hot = chance(number, "hot") < HOT_SHARE
        prefix = 0 if hot else 1 + int(chance(number, "prefix") * OTHER_PREFIXES)
        matched = dict.fromkeys((name for name, each in pods.items() if prefix in each.prefixes), BLOCKS)
        signals = Signals(matched, BLOCKS, 64)
        decision = decide(prepared, request(number), NOW, signals=signals, in_flight=own, turn=number)
        assert isinstance(decision, Routed)
        own[decision.target] += 1
        hit = pods[decision.target].take(prefix, now)
        if number >= WARM_UP:
            hits += hit
            served[decision.target] += 1
            for name, each in pods.items():
                area[name] += len(each.running) + len(each.waiting)
    waits = sorted(wait for each in pods.values() for wait in each.waits)
    return Outcome(
        hits / (REQUESTS - WARM_UP),
        max(area.values()) * PODS / sum(area.values()),
        max(served.values()) * PODS / sum(served.values()),
        waits[int(len(waits) * 0.99)],
    )


BUSY_MS, HALF_MS, QUIET_MS = 4.6, 8.0, 40.0
"""Mean gaps between arrivals: near what the pods can serve without any hit, half of it, hardly anything."""


@pytest.mark.parametrize("gap_ms", [BUSY_MS, HALF_MS, QUIET_MS])
def test_one_hot_prefix_leaves_the_load_even(gap_ms: float) -> None:
    """80 % of the traffic shares one prefix, and no pod has more than 1.3 times the mean: in place or in total."""
    found = run(strategy("prefix-aware"), gap_ms)
    assert found.max_over_mean <= 1.3
    assert found.served_max_over_mean <= 1.3


@pytest.mark.parametrize("gap_ms", [BUSY_MS, HALF_MS, QUIET_MS])
def test_the_hit_rate_beats_least_outstanding_clearly(gap_ms: float) -> None:
    """Least outstanding hits the hot prefix and little else; affinity keeps the others where they are too."""
    ours, theirs = run(strategy("prefix-aware"), gap_ms), run(strategy("least-outstanding"), gap_ms)
    assert ours.hit_rate >= theirs.hit_rate + 0.08


@pytest.mark.parametrize("gap_ms", [BUSY_MS, HALF_MS, QUIET_MS])
def test_nobody_waits_longer_than_under_least_outstanding(gap_ms: float) -> None:
    ours, theirs = run(strategy("prefix-aware"), gap_ms), run(strategy("least-outstanding"), gap_ms)
    assert ours.wait_ms_p99 <= theirs.wait_ms_p99


def test_it_is_the_bound_that_keeps_the_load_even(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "AFFINITY_BOUND", 1000.0)
    assert run.__wrapped__(strategy("prefix-aware"), QUIET_MS).max_over_mean > 1.3
