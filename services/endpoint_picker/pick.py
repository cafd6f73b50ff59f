"""Picking a pod: the pod table laid out for the one scheduler, and this picker's own requests counted.

`decide` chooses; this module gives it candidates, says what was sent since their last scrape, and remembers
each pick until it ends. Doors call it; it opens no socket and takes time as an argument.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from services.core.fleet import Candidate, FleetSnapshot, HealthState, LoadReport, PodState
from services.core.inference import InferenceRequest
from services.core.locality import Locality
from services.core.outcomes import Explanation, Rejected
from services.core.pods.reading import EngineReading, pod_saturation
from services.core.pods.report import PoolSpec
from services.core.pods.table import Pod, PodTable, Serving
from services.core.pods.ttft import quantile_ms
from services.core.scheduling.decide import decide, explain
from services.core.scheduling.prepare import Prepared, prepare
from services.core.scheduling.profile import ENDPOINTS, SchedulingProfile
from services.core.scheduling.signals import NO_SIGNALS, Signals
from services.core.units import Instant, ms
from services.endpoint_picker.counters import Counters

REFRESH_AFTER = ms(20)
"""New readings alone are laid out at most fifty times a second: with a hundred pods, five hundred readings
arrive in that time, and own requests are counted in between."""

_NEVER = Instant(-(1 << 62))
_STATES = {
    PodState.READY: HealthState.HEALTHY,
    PodState.DEGRADED: HealthState.DEGRADED,
    PodState.STALE: HealthState.STALE,
    PodState.DRAINING: HealthState.HEALTHY,
    PodState.EXCLUDED: HealthState.HEALTHY,
    PodState.FAILED: HealthState.UNHEALTHY,
    PodState.WARMING: HealthState.UNKNOWN,
}
_FRESH = frozenset({PodState.READY, PodState.DEGRADED})


@dataclass(slots=True, eq=False)
class Pick:
    """One request's pod and those to try if it cannot be connected to.

    `pod` is where it counts as in flight, with `tokens` of prompt.
    """

    request: InferenceRequest
    pod: Pod
    fallbacks: tuple[Pod, ...]
    explanation: Explanation
    tokens: int = 0
    ended: bool = False


@dataclass(slots=True)
class LocalScheduler:
    """Picks among the pods of `table` for requests that come to `place`.

    `profiles`, by pool, are those of the pools that are not picked by `profile`.
    """

    table: PodTable
    pools: Sequence[PoolSpec]
    place: Locality
    counters: Counters
    profile: SchedulingProfile = ENDPOINTS
    profiles: Mapping[str, SchedulingProfile] = field(default_factory=dict)
    _prepared: dict[str, Prepared] = field(default_factory=dict)
    _candidates: dict[str, tuple[EngineReading | None, Candidate]] = field(default_factory=dict)
    _version: int = -1
    _readings: int = -1
    _laid_out_at: Instant = _NEVER
    _own: dict[str, int] = field(default_factory=dict)
    _tokens: dict[str, int] = field(default_factory=dict)
    _cold: dict[str, int] = field(default_factory=dict)
    _turn: int = 0

    def pick(
        self,
        request: InferenceRequest,
        now: Instant,
        *,
        pool: str,
        signals: Signals = NO_SIGNALS,
        among: Collection[str] | None = None,
        tried: Collection[str] = (),
        verbose: bool = False,
    ) -> Pick | Rejected:
        """Return a pick, counted as in flight until `complete`, or why there is none.

        Only pods of `pool` are looked at; `request.model` is for the words of a refusal. `among` are ids of the
        only pods that the caller can reach (None: all), `tried` those that the request
        already failed on. `verbose` explains every candidate.
        """
        choose = explain if verbose else decide
        decision = choose(
            self._current(pool, now),
            request,
            now,
            signals=signals,
            among=among,
            tried=tried,
            in_flight=self._own,
            in_flight_tokens=self._tokens,
            cold=self._cold,
            turn=self._turn,
        )
        if isinstance(decision, Rejected):
            self.counters.rejections[decision.reason.value] += 1
            return decision
        table = self.table
        pod = table[decision.target]
        tokens = signals.prompt_tokens or request.prompt_tokens or 0
        self._count(pod, 1, tokens)
        self._turn += 1
        if not any(signals.matched.values()):
            self._cold[pod.id] = self._turn
        self.counters.picks += 1
        fallbacks = tuple([table[name] for name in decision.fallbacks])
        return Pick(request, pod, fallbacks, decision.explanation, tokens)

    def scores(self, pick: Pick) -> tuple[tuple[str, float], ...]:
        """Return (address, weighted sum) of each pod that an explained pick compared; empty for any other."""
        profile = self.profiles.get(pick.pod.pool, self.profile)
        weights = {weighted.name: weighted.weight for weighted in profile.scorers}
        return tuple(
            (
                self.table[verdict.candidate].address,
                sum(weights[name] * score for name, score in verdict.scores),
            )
            for verdict in pick.explanation.verdicts
            if verdict.scores and verdict.candidate in self.table
        )

    def move(self, pick: Pick, pod: Pod) -> None:
        """The request goes to a fallback instead."""
        self._count(pick.pod, -1, -pick.tokens)
        pick.pod = pod
        self._count(pod, 1, pick.tokens)

    def complete(self, pick: Pick) -> None:
        """The request ended; a second call changes nothing."""
        if not pick.ended:
            pick.ended = True
            self._count(pick.pod, -1, -pick.tokens)

    @property
    def ready(self) -> bool:
        """Whether at least one endpoint of any pool is ready."""
        return any(self.table.ready(pool.name) for pool in self.pools)

    def _count(self, pod: Pod, change: int, tokens: int) -> None:
        pod.in_flight += change
        pod.in_flight_tokens += tokens
        pod.since_reading += change
        if self.table.holds(pod):
            # A request may outlive its pod's row; another server of that name owes it nothing.
            self._own[pod.id] = self._own.get(pod.id, 0) + change
            self._tokens[pod.id] = self._tokens.get(pod.id, 0) + tokens

    def _current(self, pool: str, now: Instant) -> Prepared:
        table = self.table
        if self._version != table.version or (
            self._readings != table.readings and now - self._laid_out_at >= REFRESH_AFTER
        ):
            self._prepared.clear()
            if self._version != table.version:
                self._candidates.clear()
            self._own, self._tokens = {}, {}
            self._cold = {name: turn for name, turn in self._cold.items() if name in table}
            self._version, self._readings, self._laid_out_at = table.version, table.readings, now
        prepared = self._prepared.get(pool)
        if prepared is None:
            prepared = self._prepared[pool] = self._lay_out(pool)
        return prepared

    def _lay_out(self, pool: str) -> Prepared:
        """Lay one pool out as a snapshot whose candidates are pods.

        Candidates name no models: which pool serves a request was settled before, and all its pods do. One whose pod
        was not read since is the one it was: whatever else it is made of, a change of it changes the table's version.
        """
        candidates: list[Candidate] = []
        profile = self.profiles.get(pool, self.profile)
        ttft = profile.reads_ttft
        serving, pods = self.table.serving(pool)
        # With nobody fresh, those left are offered as stale: `decide` then goes by own requests alone.
        revived = frozenset(pod.id for pod in pods) if serving is not Serving.FRESH else frozenset[str]()
        for pod in self.table.in_pool(pool):
            known = self._candidates.get(pod.id)
            if known is None or known[0] is not pod.reading:
                made = self._candidate(pod, revived=pod.id in revived, ttft=ttft)
                known = self._candidates[pod.id] = (pod.reading, made)
            candidates.append(known[1])
            self._own[pod.id] = pod.since_reading if pod.state in _FRESH else pod.in_flight
            self._tokens[pod.id] = pod.in_flight_tokens
        snapshot = FleetSnapshot(self.table.version, 0, self.place, tuple(candidates))
        return prepare(snapshot, None, profile)

    def _candidate(self, pod: Pod, *, revived: bool, ttft: bool) -> Candidate:
        return Candidate(
            id=pod.id,
            locality=self.place,
            models=None,
            load=_load(pod, ttft=ttft),
            state=HealthState.STALE if revived else _STATES[pod.state],
            draining=pod.state is PodState.DRAINING,
            ejected=pod.state is PodState.EXCLUDED and not revived,
            probing_ok=False,
            labels=pod.labels,
        )


def _load(pod: Pod, *, ttft: bool) -> LoadReport:
    """Return a pod's load as a scorer sees it; old readings are unknown, not last known.

    `ttft`: with the median time to first token of the last minute.
    """
    reading = pod.reading
    if reading is None or pod.state not in _FRESH:
        return LoadReport(capacity_requests=pod.declared_requests)
    return LoadReport(
        waiting=reading.waiting,
        running=reading.running,
        capacity_requests=pod.declared_requests,
        kv_use=reading.kv_use,
        saturation=pod_saturation(reading.waiting, reading.kv_use),
        ttft_ms=quantile_ms(pod.ttft.recent(), 0.5) if ttft and pod.ttft is not None else None,
        active_adapters=reading.active_adapters,
        waiting_adapters=reading.waiting_adapters,
        max_adapters=reading.max_adapters,
    )
