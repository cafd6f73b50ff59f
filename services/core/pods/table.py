"""The table of pods: scrape results and connect failures in, states and log-worthy moves out.

Laws. A pod that never answered is WARMING. Three refused scrapes in a row make FAILED, a connect failure on
the request path makes EXCLUDED, metrics older than 2 s make STALE; each of these ends with two good scrapes
in a row, so that a single lost scrape moves nothing and a flapping server stays out. A version or page that
lacks a needed metric is DEGRADED, which still serves. DRAINING is declared from outside. Every move is
returned exactly once. Time is an argument; scraping, logging and scoring are elsewhere.
"""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from services.core.fleet import PodState
from services.core.pods.reading import EngineIdentity, EngineReading
from services.core.pods.ttft import TtftWindow
from services.core.units import Duration, Instant, seconds

_NEVER = Instant(0)


@dataclass(frozen=True, slots=True)
class PodRules:
    """`stale_after`: ten missed scrapes. `failures_to_fail`, `goods_to_recover`: consecutive scrapes."""

    stale_after: Duration = seconds(2)
    failures_to_fail: int = 3
    goods_to_recover: int = 2


class ScrapeFailure(enum.Enum):
    """Why a scrape brought no reading. Only REFUSED says that nobody is there."""

    REFUSED = "refused"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    STATUS = "status"
    BROKEN = "broken"


_ANSWERED = frozenset({ScrapeFailure.TOO_LARGE, ScrapeFailure.STATUS})
"""Failures in which the server did speak: it is up, whatever its metrics are."""


class Serving(enum.Enum):
    """Which pods may be picked now.

    FRESH: pods with current metrics. DEGRADED: none is fresh, so those without current metrics serve, by
    least own in-flight. LAST_RESORT: only pods whose last connection failed are left. NOBODY: none at all.
    """

    FRESH = "fresh"
    DEGRADED = "degraded"
    LAST_RESORT = "last_resort"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class PodMoved:
    """A pod entered another state, or stayed and the reason changed."""

    pod: str
    before: PodState
    after: PodState
    reason: str


@dataclass(frozen=True, slots=True)
class SignalMoved:
    """A metric of a pod appeared (`present`) or went missing."""

    pod: str
    metric: str
    present: bool


PodEffect = PodMoved | SignalMoved


@dataclass(slots=True, eq=False)
class Pod:
    """One pod's row. `in_flight` and `since_reading` are kept by the picker, in both directions.

    `since_reading` is what this picker added to (or took from) the pod's load since `reading` was made; it
    corrects the reading until the next one. `declared_requests` is the pod's concurrency, if declared.
    """

    id: str
    address: str
    pool: str
    draining: bool = False
    declared_requests: int | None = None
    declared_tokens_per_s: float | None = None
    state: PodState = PodState.WARMING
    reason: str = "no answer yet"
    since: Instant = _NEVER
    reading: EngineReading | None = None
    read_at: Instant | None = None
    identity: EngineIdentity | None = None
    in_flight: int = 0
    since_reading: int = 0
    ttft: TtftWindow | None = None
    answered: bool = False
    refused_in_row: int = 0
    good_in_row: int = 0
    connect_failed: bool = False
    last_failure: ScrapeFailure | None = None


class PodTable:
    """All pods of a cluster.

    `version` grows when who may be picked may have changed, `readings` with every reading.
    """

    def __init__(self, pods: Iterable[Pod], now: Instant, rules: PodRules | None = None) -> None:
        self.rules = rules or PodRules()
        self.version = 0
        self.readings = 0
        self._pods: dict[str, Pod] = {}
        for pod in pods:
            pod.since = now
            pod.state, pod.reason = self._judge(pod, now)
            self._pods[pod.id] = pod

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods.values())

    def __getitem__(self, pod_id: str) -> Pod:
        return self._pods[pod_id]

    def in_pool(self, pool: str) -> list[Pod]:
        """Return the pods of a pool in declared order."""
        return [pod for pod in self._pods.values() if pod.pool == pool]

    def read(self, pod_id: str, reading: EngineReading, now: Instant) -> tuple[PodEffect, ...]:
        """Take in a good scrape."""
        pod = self._pods[pod_id]
        self.readings += 1
        self.version += pod.refused_in_row > 0
        signals = _signals(pod, reading)
        pod.reading, pod.read_at = reading, now
        pod.since_reading = 0
        pod.answered = True
        pod.refused_in_row = 0
        pod.good_in_row += 1
        if pod.good_in_row >= self.rules.goods_to_recover:
            pod.connect_failed = False
        if reading.ttft is not None:
            if pod.ttft is None:
                pod.ttft = TtftWindow()
            pod.ttft.add(reading.ttft, now)
        return signals + self._move(pod, now)

    def missed(self, pod_id: str, failure: ScrapeFailure, now: Instant) -> tuple[PodEffect, ...]:
        """Take in a scrape that brought nothing."""
        pod = self._pods[pod_id]
        self.version += (failure is ScrapeFailure.REFUSED) != (pod.refused_in_row > 0)
        pod.last_failure = failure
        pod.good_in_row = 0
        pod.refused_in_row = pod.refused_in_row + 1 if failure is ScrapeFailure.REFUSED else 0
        pod.answered = pod.answered or failure in _ANSWERED
        return self._move(pod, now)

    def identified(self, pod_id: str, identity: EngineIdentity, now: Instant) -> tuple[PodEffect, ...]:
        """Take in what the server says it is."""
        pod = self._pods[pod_id]
        pod.identity = identity
        return self._move(pod, now)

    def connect_failed(self, pod_id: str, now: Instant) -> tuple[PodEffect, ...]:
        """A request could not connect: the pod leaves at once, ahead of the next scrape."""
        pod = self._pods[pod_id]
        pod.connect_failed = True
        pod.good_in_row = 0
        return self._move(pod, now)

    def tick(self, now: Instant) -> tuple[PodEffect, ...]:
        """Let time act: readings grow old."""
        effects: list[PodEffect] = []
        for pod in self._pods.values():
            effects.extend(self._move(pod, now))
        return tuple(effects)

    def serving(self, pool: str) -> tuple[Serving, list[Pod]]:
        """Return which pods of `pool` may be picked, and in what mode."""
        pods = self.in_pool(pool)
        fresh = [pod for pod in pods if pod.state in _FRESH]
        if fresh:
            return Serving.FRESH, fresh
        unsure = [pod for pod in pods if pod.state in _UNSURE and not pod.refused_in_row]
        if unsure:
            return Serving.DEGRADED, unsure
        excluded = [pod for pod in pods if pod.state is PodState.EXCLUDED]
        return (Serving.LAST_RESORT, excluded) if excluded else (Serving.NOBODY, [])

    def ready(self, pool: str) -> list[Pod]:
        """Return the pods that count as ready: the fresh ones, else those that answered before and may still."""
        serving, pods = self.serving(pool)
        if serving is Serving.FRESH:
            return pods
        return [pod for pod in pods if pod.state is PodState.STALE] if serving is Serving.DEGRADED else []

    def _move(self, pod: Pod, now: Instant) -> tuple[PodEffect, ...]:
        state, reason = self._judge(pod, now)
        if state is pod.state and reason == pod.reason:
            return ()
        moved = PodMoved(pod.id, pod.state, state, reason)
        if state is not pod.state:
            pod.since = now
        pod.state, pod.reason = state, reason
        self.version += 1
        return (moved,)

    def _judge(self, pod: Pod, now: Instant) -> tuple[PodState, str]:
        """Return the state that the row's facts mean, and one sentence part saying why."""
        recovered = pod.good_in_row >= self.rules.goods_to_recover
        if pod.draining:
            return PodState.DRAINING, "declared draining"
        if pod.answered and pod.refused_in_row >= self.rules.failures_to_fail:
            return PodState.FAILED, "connection refused"
        if pod.state is PodState.FAILED and not recovered:
            return PodState.FAILED, pod.reason
        if pod.connect_failed:
            return PodState.EXCLUDED, "a request could not connect"
        if not pod.answered:
            return PodState.WARMING, "no answer yet"
        old = pod.read_at is None or now - pod.read_at >= self.rules.stale_after
        if pod.state is PodState.STALE and (old or not recovered):
            return PodState.STALE, pod.reason
        if old:
            return PodState.STALE, f"no current metrics: {_cause(pod)}"
        return self._judge_metrics(pod)

    @staticmethod
    def _judge_metrics(pod: Pod) -> tuple[PodState, str]:
        identity, reading = pod.identity, pod.reading
        if identity is not None and identity.fault:
            return PodState.DEGRADED, f"{identity.engine} {identity.version} is too old for {identity.fault}"
        if reading is not None and reading.missing:
            return PodState.DEGRADED, f"missing {', '.join(reading.missing)}"
        return PodState.READY, ""


_FRESH = frozenset({PodState.READY, PodState.DEGRADED})
_UNSURE = frozenset({PodState.STALE, PodState.WARMING})


def _cause(pod: Pod) -> str:
    return pod.last_failure.value if pod.last_failure is not None else "late"


def _signals(pod: Pod, reading: EngineReading) -> tuple[PodEffect, ...]:
    """Return what appeared or went missing since the last reading; a first reading tells only what is missing."""
    before = frozenset(pod.reading.missing) if pod.reading is not None else frozenset[str]()
    missing = frozenset(reading.missing)
    gone = [SignalMoved(pod.id, metric, present=False) for metric in sorted(missing - before)]
    back = [SignalMoved(pod.id, metric, present=True) for metric in sorted(before - missing)]
    return (*gone, *back)
