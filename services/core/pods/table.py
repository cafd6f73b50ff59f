"""The table of pods: declared sets, scrape results and connect failures in, states and log-worthy moves out.

Laws. A pod that left the declared set vanishes at once and its row counts on by itself; one that stays keeps
its row. Terminating pods are DRAINING; one that its orchestrator calls not ready is WARMING during its start
and FAILED after, and is never picked. A pod that never answered is WARMING. Three refused scrapes in a row make FAILED, a connect failure on
the request path makes EXCLUDED, metrics older than 2 s make STALE; each of these ends with two good scrapes
in a row, so that a single lost scrape moves nothing and a flapping server stays out. One that says it sleeps
is FAILED until it says otherwise. A version or page that
lacks a needed metric is DEGRADED, which still serves. DRAINING is declared from outside. Every move is
returned exactly once. Time is an argument; scraping, logging and scoring are elsewhere.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from services.core.fleet import PodState
from services.core.pods.discovered import (
    DiscoveredEndpoint,
    MembershipEffect,
    PodAdded,
    PodChanged,
    PodContested,
    PodRemoved,
    StartPhase,
)
from services.core.pods.rates import RateWindow
from services.core.pods.reading import EngineIdentity, EngineReading
from services.core.pods.starting import ORDER, StartTimes
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


PodEffect = PodMoved | SignalMoved | MembershipEffect


@dataclass(slots=True, eq=False)
class Pod:
    """One pod's row. `in_flight`, `in_flight_tokens` and `since_reading` are kept by the picker, in both directions.

    `since_reading` is what this picker added to (or took from) the pod's load since `reading` was made; it
    corrects the reading until the next one. `declared_requests` is the pod's concurrency, if declared;
    `declared_ready` is the orchestrator's word, None where there is none. `name` is the pod that this rank is of.
    `starting_since` is when its start began, `phase_since` when the present phase of it did.
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
    in_flight_tokens: int = 0
    since_reading: int = 0
    ttft: TtftWindow | None = None
    rates: RateWindow | None = None
    answered: bool = False
    refused_in_row: int = 0
    good_in_row: int = 0
    connect_failed: bool = False
    last_failure: ScrapeFailure | None = None
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""
    zone: str = ""
    terminating: bool = False
    declared_ready: bool | None = None
    phase: StartPhase | None = None
    phase_since: Instant = _NEVER
    starting_since: Instant = _NEVER

    @property
    def barred(self) -> bool:
        """Whether no request may go to it, however little else is left."""
        return self.terminating or self.declared_ready is False or not self.address


class PodTable:
    """All pods of a cluster.

    `version` grows when who may be picked may have changed, `readings` with every reading.
    """

    def __init__(self, pods: Iterable[Pod], now: Instant, rules: PodRules | None = None) -> None:
        self.rules = rules or PodRules()
        self.version = 0
        self.readings = 0
        self.starts: dict[str, StartTimes] = {}
        self._pods: dict[str, Pod] = {}
        self._pools: dict[str, dict[str, Pod]] = {}
        self._contested: dict[str, frozenset[str]] = {}
        for pod in pods:
            self._begin(pod, now)
            self._pools.setdefault(pod.pool, {})[pod.id] = pod

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods.values())

    def __getitem__(self, pod_id: str) -> Pod:
        return self._pods[pod_id]

    def in_pool(self, pool: str) -> list[Pod]:
        """Return the pods of a pool in declared order."""
        return [*self._pools.get(pool, {}).values()]

    def __contains__(self, pod_id: str) -> bool:
        return pod_id in self._pods

    def holds(self, pod: Pod) -> bool:
        """Whether this very row is in the table: neither removed nor replaced by another server of its name."""
        return self._pods.get(pod.id) is pod

    def set_pods(
        self, pool: str, endpoints: Iterable[DiscoveredEndpoint], now: Instant
    ) -> tuple[PodEffect, ...]:
        """Make `endpoints` the whole of `pool`; return what was added, removed, changed or moved."""
        before = self._pools.get(pool, {})
        rows: dict[str, Pod] = {}
        contested: dict[str, str] = {}
        effects: list[PodEffect] = []
        for endpoint in endpoints:
            for pod_id, address in endpoint.ranks():
                holder = self._pods.get(pod_id)
                if holder is not None and holder.pool != pool:
                    contested[pod_id] = holder.pool
                elif pod_id not in rows:
                    told, rows[pod_id] = self._take(pool, pod_id, address, endpoint, now)
                    effects += told
        known = self._contested.get(pool, frozenset())
        effects += [
            PodContested(pod_id, pool, holder) for pod_id, holder in contested.items() if pod_id not in known
        ]
        self._contested[pool] = frozenset(contested)
        for pod_id in before.keys() - rows.keys():
            del self._pods[pod_id]
            self.version += 1
            effects.append(PodRemoved(pod_id))
        self.version += [*before] != [*rows]
        self._pools[pool] = rows
        return tuple(effects)

    def _take(
        self, pool: str, pod_id: str, address: str, endpoint: DiscoveredEndpoint, now: Instant
    ) -> tuple[list[PodEffect], Pod]:
        """Give the row of one declared rank its declaration; return what that changed, and the row."""
        pod = self._pods.get(pod_id)
        if pod is None or (pod.address and pod.address != address):
            effect = PodAdded(pod_id, address) if pod is None else PodChanged(pod_id, ("address",))
            pod = Pod(pod_id, address, pool, name=endpoint.name)
            _declare(pod, endpoint)
            self._enter_phase(pod, endpoint, now)
            self._begin(pod, now)
            self.version += 1
            return [effect], pod
        fields = _declare(pod, endpoint)
        if address != pod.address:
            pod.address = address
            fields = ("address", *fields)
        if endpoint.phase is not pod.phase:
            self._enter_phase(pod, endpoint, now)
            fields = (*fields, "phase")
        if not fields:
            return [], pod
        self.version += 1
        return [PodChanged(pod_id, fields), *self._move(pod, now)], pod

    def _enter_phase(self, pod: Pod, endpoint: DiscoveredEndpoint, now: Instant) -> None:
        """Let the pod's start be where the source says, and learn from the phase that ended."""
        begun = Instant(now - endpoint.phase_age)
        if pod.phase is not None:
            times = self.starts.setdefault(pod.pool, StartTimes())
            times.advanced(pod.phase, endpoint.phase, Duration(begun - pod.phase_since))
        if pod.phase not in ORDER:
            pod.starting_since = begun
        pod.phase, pod.phase_since = endpoint.phase, begun

    def _begin(self, pod: Pod, now: Instant) -> None:
        pod.since = now
        pod.state, pod.reason = self._judge(pod, now)
        self._pods[pod.id] = pod

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
        if reading.totals is not None:
            if pod.rates is None:
                pod.rates = RateWindow()
            pod.rates.add(reading.totals, now)
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
        """A request could not connect: the pod leaves at once, ahead of the next scrape; one that left is no news."""
        pod = self._pods.get(pod_id)
        if pod is None:
            return ()
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
        unsure = [pod for pod in pods if pod.state in _UNSURE and not pod.refused_in_row and not pod.barred]
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
        if pod.terminating:
            return PodState.DRAINING, "terminating"
        if pod.draining:
            return PodState.DRAINING, "declared draining"
        if pod.declared_ready is False:
            if pod.phase in ORDER:
                return PodState.WARMING, pod.phase.value
            return PodState.FAILED, "not ready, says its orchestrator"
        if pod.answered and pod.refused_in_row >= self.rules.failures_to_fail:
            return PodState.FAILED, "connection refused"
        if pod.state is PodState.FAILED and not recovered:
            return PodState.FAILED, pod.reason
        if pod.reading is not None and pod.reading.asleep:
            return PodState.FAILED, "asleep"
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


def _declare(pod: Pod, endpoint: DiscoveredEndpoint) -> tuple[str, ...]:
    """Write a declaration into its row; return the names of the fields that this changed."""
    declared = endpoint.declared()
    changed = tuple(name for name, value in declared.items() if getattr(pod, name) != value)
    for name in changed:
        setattr(pod, name, declared[name])
    return changed


def _cause(pod: Pod) -> str:
    return pod.last_failure.value if pod.last_failure is not None else "late"


def _signals(pod: Pod, reading: EngineReading) -> tuple[PodEffect, ...]:
    """Return what appeared or went missing since the last reading; a first reading tells only what is missing."""
    before = frozenset(pod.reading.missing) if pod.reading is not None else frozenset[str]()
    missing = frozenset(reading.missing)
    gone = [SignalMoved(pod.id, metric, present=False) for metric in sorted(missing - before)]
    back = [SignalMoved(pod.id, metric, present=True) for metric in sorted(before - missing)]
    return (*gone, *back)
