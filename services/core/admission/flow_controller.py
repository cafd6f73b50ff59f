"""The flow controller: who is sent now, who waits, who is refused, and who makes room.

Laws. A ticket is dispatched or dropped exactly once; one that was dispatched may be evicted once. Within a pool a
lower priority is never sent while a higher one waits; pools do not know each other, so a saturated one blocks
nobody else's requests (the field stops at the first blocked band of all). Within a priority `fairness` says who is
next. What waits is bounded in number, bytes and time. Saturation comes in as a number, None for a pool without
endpoints; what happened goes out as effects, at most one dispatch a call, because the number changes with each.
"""

from collections.abc import Iterable

from services.core.admission.drain_rate import DrainRate, Promises, retry_after
from services.core.admission.fairness import FairQueue
from services.core.admission.figures import FlowFigures, figures
from services.core.admission.flow_queue import OrderedQueue, by_deadline
from services.core.admission.lanes import BandRow, Lane, PoolRow, Usage
from services.core.admission.refusals import CONTENDED, MESSAGES, Cause, reason_of
from services.core.admission.settings import FlowControlSettings
from services.core.admission.tickets import Dispatch, Drop, Effect, Evict, Stage, Ticket
from services.core.admission.usage_limits import Rung, StaticLimit
from services.core.outcomes import DropReason
from services.core.units import Duration, Instant, after, seconds

LANE_IDLE = seconds(600)
"""A priority that nobody has used for so long is forgotten with its counts (the field's band collection)."""
# Enum members are looked up by name; every request meets these.
_QUEUED, _DISPATCHED = Stage.QUEUED, Stage.DISPATCHED


class FlowController:
    """Flow control of one picker over all its pools. `queued` is how many wait."""

    def __init__(self, settings: FlowControlSettings) -> None:
        self._settings = settings
        self._limit = settings.usage_limit
        self._ceiling = self._limit.threshold if isinstance(self._limit, StaticLimit) else None
        self._bands: dict[int, BandRow] = {}
        self._pools: dict[str, PoolRow] = {}
        self._deadlines = OrderedQueue(by_deadline)
        self._usage = Usage()
        self._sequence = 0
        self._closing = False

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return self._usage.requests

    def waiting_pools(self) -> list[str]:
        """Return the pools that somebody waits for."""
        return [name for name, pool in self._pools.items() if pool.waiting]

    def waits(self, pool: str) -> bool:
        """Whether anybody waits for `pool`."""
        row = self._pools.get(pool)
        return row is not None and bool(row.waiting)

    # --- Coming in ---------------------------------------------------------------------------------

    def passes(self, ticket: Ticket, saturation: float | None, now: Instant) -> bool:
        """Dispatch at once if nobody is ahead and the pool is open, and say whether; changes nothing otherwise.

        The common case: no effect, no queue. `saturation` may be an upper bound.
        """
        pool = self._pools.get(ticket.pool)
        lane = None if pool is None else pool.lanes.get(ticket.priority)
        if pool is None or lane is None:
            pool, lane = self._open_lane(ticket, now)
        band = lane.band
        ttl = band.ttl if ticket.ttl is None else min(band.ttl, ticket.ttl)
        ticket.deadline = after(ticket.received_at, ttl)
        if (
            saturation is None
            or self._closing
            or ticket.deadline <= now
            or saturation >= (self._ceiling or self._limit.ceiling(band.rung, saturation))
            or (pool.waiting and pool.waits_at_or_above(ticket.priority))
        ):
            return False
        self._sequence += 1
        ticket.sequence = self._sequence
        self._dispatch(pool, lane, ticket, now)
        return True

    def offer(self, ticket: Ticket, saturation: float | None, now: Instant) -> list[Effect]:
        """Take a request in; if it is neither dispatched nor dropped among the effects, it waits."""
        if self.passes(ticket, saturation, now):
            return [Dispatch(ticket)]
        pool, lane = self._row(ticket)
        self._sequence += 1
        ticket.sequence = self._sequence
        _note(pool, saturation, now)
        if self._closing:
            return [self._drop(ticket, Cause.CLOSING, now)]
        if ticket.deadline <= now:
            return [self._drop(ticket, Cause.EXPIRED, now)]
        if saturation is None and not self._settings.no_endpoint_request_ttl:
            return [self._drop(ticket, Cause.NOBODY_THERE, now)]
        if (
            saturation is not None
            and not pool.waits_at_or_above(ticket.priority)
            and self._open(lane, saturation)
        ):
            self._dispatch(pool, lane, ticket, now)
            return [Dispatch(ticket)]
        effects = self._expire(now)
        victims = self._victims(lane, ticket)
        if victims is None:
            return [*effects, self._drop(ticket, Cause.FULL, now)]
        effects += [self._drop(victim, Cause.PUSHED_OUT, now) for victim in victims]
        self._enqueue(pool, lane, ticket, now)
        if saturation is not None:
            effects += self._reclaim(pool, ticket.priority, now)
        return effects

    def refuse(self, ticket: Ticket, saturation: float | None, now: Instant) -> Drop:
        """Drop a new request that an admitter in front of the queue does not let in."""
        pool, _ = self._open_lane(ticket, now)
        _note(pool, saturation, now)
        return self._drop(ticket, Cause.SHED, now)

    # --- Time and events ---------------------------------------------------------------------------

    def advance(self, pool: str, saturation: float | None, now: Instant) -> list[Effect]:
        """Let the next waiting request of a pool go if it may; repeat with a new saturation until empty."""
        row = self._pools.get(pool)
        if row is None:
            return []
        _note(row, saturation, now)
        effects = self._expire(now)
        if saturation is None:
            return effects + self._expire_unserved(row, now)
        for priority, lane in row.order:
            ticket = lane.queue.first()
            if ticket is None:
                continue
            if self._open(lane, saturation):
                self._dispatch(row, lane, ticket, now)
                effects.append(Dispatch(ticket))
            else:
                effects += self._reclaim(row, priority, now)
            break
        return effects

    def committed(self, ticket: Ticket) -> None:
        """The answer has begun: from now on the request is not evicted."""
        self._pools[ticket.pool].revocations.kept(ticket)

    def completed(self, ticket: Ticket, now: Instant) -> Duration | None:
        """A dispatched request has ended; returns how long it took after its revocation, if it was revoked.

        A second call, and one for a request that was never dispatched, change nothing.
        """
        if ticket.stage is not _DISPATCHED and ticket.stage is not Stage.REVOKED:
            return None
        ticket.stage = Stage.ENDED
        if ticket.priority >= 0:
            return None
        return self._pools[ticket.pool].revocations.ended(ticket, now)

    def cancel(self, ticket: Ticket, now: Instant) -> Drop | None:
        """The caller of a waiting request is gone; None if it does not wait."""
        return self._drop(ticket, Cause.GONE, now) if ticket.stage is _QUEUED else None

    def tick(self, now: Instant) -> list[Effect]:
        """Let time act on what waits, whatever its pool's saturation: `advance` each waiting pool afterwards."""
        return self._expire(now)

    def close(self) -> None:
        """Take nothing new from now on; what waits may still be sent."""
        self._closing = True

    def shut_down(self, now: Instant) -> list[Effect]:
        """Take nothing new and drop everything that waits."""
        self._closing = True
        waiting = [ticket for pool in self._pools.values() for ticket in pool.waiting.values()]
        return [self._drop(ticket, Cause.CLOSED, now) for ticket in waiting]

    def next_deadline(self, now: Instant) -> Instant | None:
        """Return when time alone changes something next; None when nobody waits."""
        first = self._deadlines.first()
        if first is None:
            return None
        earliest = first.deadline
        for pool in self._pools.values():
            if not pool.waiting:
                continue
            if pool.empty_since is not None:
                oldest = next(iter(pool.waiting.values()))
                earliest = min(earliest, self._unserved_until(pool.empty_since, oldest))
            reclaim = pool.revocations.next_deadline(now)
            if reclaim is not None:
                earliest = min(earliest, reclaim)
        return earliest

    def figures(self) -> FlowFigures:
        """Return what metrics show."""
        return figures(self._settings, self._pools, self._bands, self._usage)

    # --- Parts -------------------------------------------------------------------------------------

    def _row(self, ticket: Ticket) -> tuple[PoolRow, Lane]:
        pool = self._pools[ticket.pool]
        return pool, pool.lanes[ticket.priority]

    def _open(self, lane: Lane, saturation: float) -> bool:
        """Whether a lane may send at this saturation; above a soft ceiling its turns are counted."""
        if saturation < self._limit.ceiling(lane.band.rung, saturation):
            return True
        period = self._limit.period(saturation)
        if period is None:
            return False
        lane.turns += 1
        return lane.turns % period == 0

    def _dispatch(self, pool: PoolRow, lane: Lane, ticket: Ticket, now: Instant) -> None:
        waited = ticket.stage is _QUEUED
        ticket.stage = _DISPATCHED
        if waited:
            lane.queue.served(ticket)
            self._unqueue(pool, lane, ticket)
        lane.rate.add(now)
        lane.dispatched += 1
        lane.used_at = now
        if ticket.priority < 0 and self._settings.enable_eviction:
            pool.revocations.sent(ticket)

    def _drop(self, ticket: Ticket, cause: Cause, now: Instant) -> Drop:
        pool, lane = self._row(ticket)
        waited = ticket.stage is _QUEUED
        ticket.stage = Stage.ENDED
        if waited:
            lane.queue.left(ticket)
            self._unqueue(pool, lane, ticket)
        lane.dropped[cause] += 1
        reason = reason_of(cause, endpoints=pool.empty_since is None)
        return Drop(
            ticket, cause, reason, MESSAGES[reason], _retry_after(pool, lane, ticket.priority, reason, now)
        )

    def _enqueue(self, pool: PoolRow, lane: Lane, ticket: Ticket, now: Instant) -> None:
        ticket.stage = _QUEUED
        ticket.enqueued_at = now
        lane.used_at = now
        lane.queue.push(ticket)
        lane.band.usage.add(ticket)
        lane.band.waiting[ticket.sequence] = ticket
        pool.waiting[ticket.sequence] = ticket
        self._usage.add(ticket)
        self._deadlines.push(ticket)

    def _unqueue(self, pool: PoolRow, lane: Lane, ticket: Ticket) -> None:
        """Take a ticket, which has left its lane's queue, out of every other account."""
        lane.band.usage.take(ticket)
        del lane.band.waiting[ticket.sequence]
        del pool.waiting[ticket.sequence]
        self._usage.take(ticket)
        self._deadlines.left()

    def _expire(self, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        while (ticket := self._deadlines.first()) is not None and ticket.deadline <= now:
            effects.append(self._drop(ticket, Cause.EXPIRED, now))
        return effects

    def _expire_unserved(self, pool: PoolRow, now: Instant) -> list[Effect]:
        """Drop who has waited too long for a pool without endpoints; arrival order is the order of their ends."""
        since = pool.empty_since if pool.empty_since is not None else now
        late: list[Ticket] = []
        for ticket in pool.waiting.values():
            if self._unserved_until(since, ticket) > now:
                break
            late.append(ticket)
        return [self._drop(ticket, Cause.NOBODY_CAME, now) for ticket in late]

    def _unserved_until(self, empty_since: Instant, ticket: Ticket) -> Instant:
        return after(max(empty_since, ticket.enqueued_at), self._settings.no_endpoint_request_ttl)

    def _victims(self, lane: Lane, ticket: Ticket) -> list[Ticket] | None:
        """Return who must leave so that `ticket` fits the common bounds; None when it cannot be made to fit.

        Lower priorities only, the lowest first, the newest of it first: the least waiting is lost.
        """
        if lane.band.full(ticket):
            return None
        requests, size = self._usage.requests, self._usage.size_bytes + ticket.size_bytes
        victims: list[Ticket] = []
        for victim in self._lower(ticket.priority):
            if self._fits(requests, size):
                return victims
            victims.append(victim)
            requests -= 1
            size -= victim.size_bytes
        return victims if self._fits(requests, size) else None

    def _fits(self, requests: int, size_bytes: int) -> bool:
        most, largest = self._settings.max_requests, self._settings.max_bytes
        return (most is None or requests < most) and (largest is None or size_bytes <= largest)

    def _lower(self, priority: int) -> Iterable[Ticket]:
        for lower in sorted(known for known in self._bands if known < priority):
            yield from reversed(self._bands[lower].waiting.values())

    def _reclaim(self, pool: PoolRow, priority: int, now: Instant) -> list[Effect]:
        """Take sheddable requests back for a blocked one of `priority`."""
        if priority < 0 or not self._settings.enable_eviction:
            return []
        effects: list[Effect] = []
        for ticket in pool.revocations.revoke(pool.waits_at_or_above(0), now):
            ticket.stage = Stage.REVOKED
            _, lane = self._open_lane(ticket, now)  # It may have been forgotten while the request ran.
            lane.dropped[Cause.REVOKED] += 1
            reason = reason_of(Cause.REVOKED, endpoints=True)
            wait = _retry_after(pool, lane, ticket.priority, reason, now)
            effects.append(Evict(ticket, MESSAGES[reason], wait))
        return effects

    def _open_lane(self, ticket: Ticket, now: Instant) -> tuple[PoolRow, Lane]:
        """Return a ticket's lane, made if it is new; making one is when unused ones are forgotten."""
        pool = self._pools.setdefault(ticket.pool, PoolRow())
        lane = pool.lanes.get(ticket.priority)
        if lane is None:
            self._forget_idle(now)
            band = self._bands.get(ticket.priority)
            if band is None:
                settings = self._settings
                priority = ticket.priority
                band = BandRow(settings.band(priority), settings.ttl(priority), Rung(priority, 0, 1, 0, 0))
                self._bands[priority] = band
                self._rank()
            queue = FairQueue(band.settings.fairness, band.settings.ordering)
            lane = Lane(band, queue, DrainRate(now), Promises(now), now)
            pool.insert(ticket.priority, lane)
        return pool, lane

    def _rank(self) -> None:
        known = sorted({*self._bands, *self._settings.priority_bands}, reverse=True)
        for rank, priority in enumerate(known):
            if priority in self._bands:
                self._bands[priority].rung = Rung(priority, rank, len(known), known[0], known[-1])

    def _forget_idle(self, now: Instant) -> None:
        used: set[int] = set()
        for pool in self._pools.values():
            for priority, lane in list(pool.order):
                if not lane.queue and now - lane.used_at >= LANE_IDLE:
                    pool.remove(priority)
                else:
                    used.add(priority)
        self._bands = {priority: band for priority, band in self._bands.items() if priority in used}
        self._rank()


def _note(pool: PoolRow, saturation: float | None, now: Instant) -> None:
    """Remember since when a pool has no endpoints."""
    if saturation is not None:
        pool.empty_since = None
    elif pool.empty_since is None:
        pool.empty_since = now


def _retry_after(
    pool: PoolRow, lane: Lane, priority: int, reason: DropReason, now: Instant
) -> Duration | None:
    """Return when to come back: what waits in the lane over the rate at which the lane drains.

    The lane's own rate already leaves out what higher priorities take. Nobody waiting in a lane that sent nothing
    says nothing of it; then all who are ahead in the pool count, and all that the pool sends.
    """
    if reason not in CONTENDED:
        return None
    ahead, rate = len(lane.queue), lane.rate.per_second(now)
    if not rate and not ahead:
        ahead, rate = pool.waits_at_or_above(priority), pool.per_second(now)
    return retry_after(ahead, rate, lane.promises, now)
