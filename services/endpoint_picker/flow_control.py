"""Flow control at work: asks the controller, performs its effects, wakes up when time alone has changed something.

Doors' requests come in through `admit` and are called back. A queue moves when a request ends, when a reading
arrives and at deadlines; nothing polls. Decisions are `core/admission`, saturation is `saturation`; which pod a
request then gets is the scheduler's.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from services.adapters.ports import Clock
from services.adapters.telemetry.histogram import LATENCY_SECONDS, Histogram
from services.core.admission.figures import FlowFigures
from services.core.admission.flow_controller import FlowController
from services.core.admission.settings import FlowControlSettings
from services.core.admission.shedding import ProbabilisticAdmitter, legacy_admits
from services.core.admission.tickets import Dispatch, Drop, Effect, Stage, Ticket
from services.core.outcomes import DropReason
from services.core.units import NS_PER_S, Duration, Instant, after, seconds

RECHECK_EVERY = seconds(1)
"""While requests wait: what changes a saturation without an event (a reading grown old) is seen within this."""
_SENT = "Dispatched"
# Enum members are looked up by name; every request meets these.
_QUEUED, _DISPATCHED, _REVOKED = Stage.QUEUED, Stage.DISPATCHED, Stage.REVOKED

Dispatched = Callable[[], None]
Dropped = Callable[[DropReason, str, Duration | None], None]
Left = Callable[[Ticket, str, Duration], None]
"""Told of every request that leaves a queue: the ticket, the field's outcome word, how long it waited."""


class Gauge(Protocol):
    """The saturation of one pool; None while it has no endpoint. See `saturation.PoolGauge`."""

    def bound(self, now: Instant) -> float | None:
        """Return a number that the saturation does not exceed, at no cost."""

    def exact(self, now: Instant) -> float | None:
        """Return the saturation as of now."""

    def admitted(self, tokens: int) -> None:
        """A request was sent."""

    def ended(self) -> None:
        """A request has ended."""


def _nobody(_ticket: Ticket, _outcome: str, _waited: Duration) -> None:
    """Listen to nothing."""


@dataclass(slots=True, eq=False)
class FlowControl:
    """Flow control of one picker. `settings` None: no queue, the field's legacy admission.

    `gauge` makes the gauge of a pool. Callbacks must not raise; they may call back in here.
    """

    settings: FlowControlSettings | None
    gauge: Callable[[str], Gauge]
    clock: Clock
    admitter: ProbabilisticAdmitter | None = None
    left: Left = _nobody
    revocation_seconds: Histogram = field(init=False)
    controller: FlowController = field(init=False)
    _gauges: dict[str, Gauge] = field(default_factory=dict, init=False)
    _waiters: dict[int, tuple[Dispatched, Dropped]] = field(default_factory=dict, init=False)
    _pumping: set[str] = field(default_factory=set, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _timer_at: Instant = field(default=Instant(0), init=False)
    _evicts: bool = field(init=False)

    def __post_init__(self) -> None:
        """Make the controller; without flow control it only counts."""
        self.controller = FlowController(self.settings or FlowControlSettings())
        self.revocation_seconds = Histogram(LATENCY_SECONDS)
        self._evicts = self.settings is not None and self.settings.enable_eviction

    def start(self) -> None:
        """Wake up at deadlines on the running loop; without it somebody else calls `tick`."""
        self._loop = asyncio.get_running_loop()

    def admit(self, ticket: Ticket, now: Instant, dispatched: Dispatched, dropped: Dropped) -> bool:
        """Whether the request may be sent at once, and then neither callback is called for that.

        Otherwise exactly one of them is, now or later, unless `ended` comes first. A request that was sent may be
        evicted: then `dropped` is called once, and `ended` is due as ever.
        """
        gauge = self._gauge(ticket.pool)
        if self.settings is None or self.admitter is not None:
            refused = self._shed(ticket, gauge, now)
            if refused is not None:
                dropped(refused.reason, refused.message, refused.retry_after)
                return False
        controller = self.controller
        if controller.passes(ticket, 0.0 if self.settings is None else gauge.bound(now), now):
            gauge.admitted(ticket.tokens)
            if self._evictable(ticket):
                self._waiters[ticket.sequence] = (dispatched, dropped)
            return True
        effects = controller.offer(ticket, 0.0 if self.settings is None else gauge.exact(now), now)
        self._waiters[ticket.sequence] = (dispatched, dropped)
        if len(effects) == 1 and isinstance(effects[0], Dispatch):
            gauge.admitted(ticket.tokens)
            if not self._evictable(ticket):
                del self._waiters[ticket.sequence]
            return True
        self._perform(effects, now)
        self._arm(now)
        return False

    def committed(self, ticket: Ticket) -> None:
        """The answer has begun to reach the caller: the request is not evicted any more."""
        if self._evictable(ticket):
            self.controller.committed(ticket)
            self._waiters.pop(ticket.sequence, None)

    def ended(self, ticket: Ticket, now: Instant) -> None:
        """The request is over: answered, failed or left by its caller, waiting or sent; again changes nothing."""
        stage = ticket.stage
        if stage is _QUEUED:
            drop = self.controller.cancel(ticket, now)
            self._waiters.pop(ticket.sequence, None)
            if drop is not None:
                self.left(ticket, drop.cause.value, Duration(now - ticket.enqueued_at))
        elif stage is _DISPATCHED or stage is _REVOKED:
            took = self.controller.completed(ticket, now)
            if took is not None:
                self.revocation_seconds.observe(took / NS_PER_S)
            self._waiters.pop(ticket.sequence, None)
            self._gauge(ticket.pool).ended()
        if self.controller.waits(ticket.pool):
            self._pump(ticket.pool, now)

    def refresh(self, now: Instant) -> None:
        """Readings came in, or pods came or went."""
        for pool in self.controller.waiting_pools():
            self._pump(pool, now)

    def tick(self, now: Instant) -> None:
        """Let time act on what waits."""
        self._perform(self.controller.tick(now), now)
        self.refresh(now)
        self._arm(now)

    def next_deadline(self, now: Instant) -> Instant | None:
        """Return when `tick` is due; None while nobody waits."""
        deadline = self.controller.next_deadline(now)
        return None if deadline is None else min(deadline, after(now, RECHECK_EVERY))

    def drain(self) -> None:
        """Refuse what is new; what waits is still sent."""
        self.controller.close()

    def shut_down(self, now: Instant) -> None:
        """Refuse what is new and what waits, and stop waking up."""
        self._perform(self.controller.shut_down(now), now)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop = None

    def figures(self) -> FlowFigures:
        """Return what metrics show."""
        return self.controller.figures()

    def saturations(self, now: Instant) -> dict[str, float | None]:
        """Return the saturation of every pool that was asked for."""
        return {pool: gauge.exact(now) for pool, gauge in self._gauges.items()}

    def _gauge(self, pool: str) -> Gauge:
        gauge = self._gauges.get(pool)
        if gauge is None:
            gauge = self._gauges[pool] = self.gauge(pool)
        return gauge

    def _shed(self, ticket: Ticket, gauge: Gauge, now: Instant) -> Drop | None:
        """Return the refusal of whoever stands in front of the queue; both shed negative priorities only."""
        if ticket.priority >= 0:
            return None
        saturation = gauge.exact(now)
        admitted = self.settings is not None or legacy_admits(ticket.priority, saturation)
        if admitted and self.admitter is not None:
            admitted = self.admitter.admits(ticket.request_id, ticket.priority, saturation)
        return None if admitted else self.controller.refuse(ticket, saturation, now)

    def _pump(self, pool: str, now: Instant) -> None:
        """Send what may be sent of a pool; a call from within a callback is left to the loop that made it."""
        if pool in self._pumping:
            return
        self._pumping.add(pool)
        try:
            gauge = self._gauge(pool)
            while effects := self.controller.advance(pool, gauge.exact(now), now):
                self._perform(effects, now)
        finally:
            self._pumping.discard(pool)

    def _perform(self, effects: Iterable[Effect], now: Instant) -> None:
        for effect in effects:
            ticket = effect.ticket
            waiter = self._waiters.pop(ticket.sequence, None)
            if waiter is None:
                continue  # A callback of an effect before this one ended the request.
            dispatched, dropped = waiter
            if isinstance(effect, Dispatch):
                self._gauge(ticket.pool).admitted(ticket.tokens)
                if self._evictable(ticket):
                    self._waiters[ticket.sequence] = waiter
                self.left(ticket, _SENT, Duration(now - ticket.enqueued_at))
                dispatched()
            elif isinstance(effect, Drop):
                waited = now - ticket.enqueued_at if ticket.enqueued_at else 0
                self.left(ticket, effect.cause.value, Duration(waited))
                dropped(effect.reason, effect.message, effect.retry_after)
            else:
                dropped(DropReason.EVICTED, effect.message, effect.retry_after)

    def _evictable(self, ticket: Ticket) -> bool:
        return self._evicts and ticket.priority < 0

    def _arm(self, now: Instant) -> None:
        """Make sure that a timer goes off no later than the next deadline; an earlier one arms again."""
        when = self.next_deadline(now)
        if self._loop is None or when is None or (self._timer is not None and self._timer_at <= when):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_later(max(0, when - now) / NS_PER_S, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = self.clock.now()
        try:
            self.tick(now)
        finally:
            # Whatever went wrong with one request, the others still have their deadlines.
            self._arm(now)
