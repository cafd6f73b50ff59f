"""The life of a request behind every door of a router: decide, attempt, answer, record.

Owns what requests share: the upstream pool, the hops, the retry budget, who is in flight where, and
the sweep that brings time to all of them. Doors translate; this module never reads a body. One
per worker; nothing here awaits.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from services.adapters.http.relay import ExchangeTimeouts
from services.adapters.http.responder import Responder
from services.adapters.http.upstream import UpstreamPool
from services.adapters.ports import Clock
from services.adapters.system.decision_log import RingDecisionLog
from services.core.failover import events as ev
from services.core.failover.attempts import Attempts
from services.core.failover.effects import Ending, OutcomeKind, RecordOutcome
from services.core.failover.plan import Plan, Replay
from services.core.failover.retry_budget import RetryBudget
from services.core.inference import InferenceRequest
from services.core.locality import ClusterId
from services.core.outcomes import Decision, DropReason, Rejected, Routed
from services.core.policy import FailoverPolicy, PolicySnapshot
from services.core.scheduling.decide import decide, explain
from services.core.units import NS_PER_MS, Instant
from services.global_router.back_pressure import BackPressure
from services.global_router.hops import Hops
from services.global_router.live_request import LiveRequest
from services.global_router.records import DecisionRecord
from services.global_router.view import View

# Enum members are reached through a descriptor, which costs more than the comparison they serve.
_ALWAYS: Final = Replay.ALWAYS
_NEVER: Final = Replay.NEVER

_LEFT_ALONE: Final = {
    OutcomeKind.BACK_PRESSURE: DropReason.SATURATED,
    OutcomeKind.UNABLE: DropReason.NO_HEALTHY_CLUSTER,
}
"""Answers after which a cluster gets no more of this model and band for a while, and why."""
SWEEP_MS: Final = 50
"""Resolution of deadlines and of parked requests' polls; a pass over 1,000 requests takes about 1 ms."""

ONE_ATTEMPT: Final = "one attempt: the body is too large to be kept for another"


@dataclass(slots=True)
class Tallies:
    """Plain counters of one worker, read by the metrics collector at scrape time."""

    requests: int = 0
    attempts: int = 0
    redispatches: int = 0
    endings: dict[Ending, int] = field(default_factory=lambda: dict.fromkeys(Ending, 0))
    rejected: dict[DropReason, int] = field(default_factory=lambda: dict.fromkeys(DropReason, 0))
    outcomes: dict[OutcomeKind, int] = field(default_factory=lambda: dict.fromkeys(OutcomeKind, 0))


class LifeCycle:
    """Requests of one worker. `region_key` is the newest (kid, secret) of the region's hand-off secret."""

    def __init__(
        self,
        clock: Clock,
        view: View,
        pool: UpstreamPool,
        log: RingDecisionLog[DecisionRecord],
        region_key: tuple[str, bytes],
    ) -> None:
        self.clock = clock
        self.view = view
        self.pool = pool
        self.log = log
        self.tallies = Tallies()
        self.live: set[LiveRequest] = set()
        self.replay_bytes = 0
        self._region_key = region_key
        self._back_pressure = BackPressure()
        self._failover = FailoverPolicy()
        self._budget = RetryBudget(self._failover)
        self._sweep_timer: asyncio.TimerHandle | None = None
        self.hops: Hops
        self.exchange_timeouts: ExchangeTimeouts
        self.use_policy(PolicySnapshot(1, view.policy_published_at_ms))

    # --- Policy and time ----------------------------------------------------------------------------

    def use_policy(self, policy: PolicySnapshot) -> None:
        """Serve under `policy` from now on; running requests keep the plan they have."""
        self.hops = Hops(policy, *self._region_key)
        if policy.failover != self._failover:
            self._failover = policy.failover
            self._budget = RetryBudget(policy.failover)
        timeouts = policy.failover.timeouts
        total_ms = timeouts.total // NS_PER_MS
        # The attempts machine keeps the first-byte and total limits; the exchange alone sees bytes pass.
        self.exchange_timeouts = ExchangeTimeouts(total_ms, timeouts.idle // NS_PER_MS, total_ms)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin sweeping."""
        self._sweep_timer = loop.call_later(SWEEP_MS / 1000, self._sweep, loop)

    def stop(self) -> None:
        """Stop sweeping; the doors have been drained."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self.clock.now()
        for live in list(self.live):
            live.tick(now)
        self._sweep_timer = loop.call_later(SWEEP_MS / 1000, self._sweep, loop)

    # --- Deciding -----------------------------------------------------------------------------------

    def decide(self, request: InferenceRequest, now: Instant) -> Decision:
        """Return where `request` goes, on the current snapshot."""
        view = self.view
        return decide(
            view.current,
            request,
            now,
            excluded=self._excluded_for(request, now) if self._back_pressure.any else view.excluded,
            may_try=view.may_try,
            policy_confirmed_at=view.policy_confirmed_at,
        )

    def explain(self, request: InferenceRequest, now: Instant) -> Decision:
        """Return what `decide` returns for the same arguments, with a verdict on every cluster."""
        view = self.view
        return explain(
            view.current,
            request,
            now,
            excluded=self._excluded_for(request, now),
            may_try=view.may_try,
            policy_confirmed_at=view.policy_confirmed_at,
        )

    def _excluded_for(self, request: InferenceRequest, now: Instant) -> Mapping[str, DropReason]:
        model = self.view.current.canonical(request.model)
        return self._back_pressure.merged(self.view.excluded, model, request.priority, now)

    # --- HTTP requests ------------------------------------------------------------------------------

    def serve(
        self,
        responder: Responder,
        request: InferenceRequest,
        routed: Routed,
        record: DecisionRecord,
        block: bytes,
        body: bytes,
        *,
        drop_usage: bool,
    ) -> None:
        """Carry a routed request to its end. `block`: rendered headers for the hop; `body`: as sent upstream."""
        self.tallies.requests += 1
        replay = self._replay(request, len(body))
        if replay is _NEVER:
            record.note = ONE_ATTEMPT
        plan = Plan(
            (routed.target, *routed.fallbacks),
            self.view.current.regions,
            request.traffic_class,
            request.stream,
            replay,
        )
        self.replay_bytes += len(body)
        attempts = Attempts(plan, self._failover, self._budget)
        live = LiveRequest(self, responder, request, attempts, record, block, body, drop_usage=drop_usage)
        self.live.add(live)
        live.start(record.received_at)

    def _replay(self, request: InferenceRequest, size_bytes: int) -> Replay:
        policy = self._failover
        if size_bytes > policy.replay_body_max_bytes:
            return Replay.NEVER
        if self.replay_bytes + size_bytes > policy.replay_total_max_bytes:
            return Replay.NEVER
        return _ALWAYS if request.replayable else Replay.BEFORE_BODY

    def cluster_lost(self, cluster: ClusterId) -> None:
        """The view lost a cluster: its attempts without a first byte go elsewhere at once."""
        now = self.clock.now()
        event = ev.ClusterLost(cluster)
        for live in [live for live in self.live if live.at == cluster]:
            live.cluster_lost(event, now)

    # --- What live requests tell --------------------------------------------------------------------

    def attempt_started(self, cluster: str, *, redispatch: bool) -> Instant | None:
        """Count an attempt; return which trial of its cluster it is, None for none."""
        self.tallies.attempts += 1
        if redispatch:
            self.tallies.redispatches += 1
        return self.view.attempt_started(cluster)

    def attempt_ended(self, live: LiveRequest, outcome: RecordOutcome, now: Instant) -> None:
        """Tell passive health how an attempt was answered; `BROKEN` may follow `ANSWERED`."""
        self.tallies.outcomes[outcome.kind] += 1
        reason = _LEFT_ALONE.get(outcome.kind)
        if reason is not None:
            request = live.inference
            model = self.view.current.canonical(request.model)
            self._back_pressure.note(
                outcome.cluster, model, request.priority, outcome.retry_after, now, reason
            )
        self.view.outcome(outcome.cluster, outcome.kind)

    @property
    def retries_denied(self) -> int:
        """Return how often the retry budget had nothing left."""
        return self._budget.denied

    def in_flight(self) -> Counter[str | None]:
        """Return this worker's requests at each cluster; counted when asked, as a request should not pay for it."""
        return Counter(live.at for live in self.live)

    def finished(self, live: LiveRequest, body_size: int, ending: Ending) -> None:
        """Forget a request and keep its record."""
        self.live.discard(live)
        self.replay_bytes -= body_size
        self.tallies.endings[ending] += 1
        self.log.append(live.record)

    def note_rejected(self, record: DecisionRecord, rejected: Rejected) -> None:
        """Record a request that was decided to go nowhere; the door answers it."""
        self.tallies.requests += 1
        self.tallies.rejected[rejected.reason] += 1
        record.drop_reason = rejected.reason.value
        record.ended_at = self.clock.now()
        self.log.append(record)

    def note_routed(self, record: DecisionRecord) -> None:
        """Record a decision whose request the caller sends itself."""
        self.tallies.requests += 1
        record.ended_at = self.clock.now()
        self.log.append(record)
