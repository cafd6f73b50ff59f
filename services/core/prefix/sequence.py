"""The order of one publisher's event batches: gaps, replays, and publishers that began anew.

Laws. A batch is applied at most once and in the order of its number. A number above the next one is a gap: a
replay is asked for and what comes meanwhile waits, bounded; where a replay may not be asked for yet, or brought
less than was missing, the gap is accepted and counted. A live number that is not above every live number before
it means that the publisher began anew: all that is known of it is cleared. Time is an argument.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from services.core.units import Duration, Instant, seconds

HELD_BATCHES = 1024
"""Batches that wait for a replay (the window of the field's simulator); beyond it the oldest are given up."""
REPLAY_COOLDOWN = seconds(30)
"""Least time between the ends and beginnings of two replays of one publisher: a lossy link must not replay for ever."""

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Apply(Generic[B]):
    """Take this batch into the index."""

    batch: B


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget all that this publisher said."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Ask the publisher for its batches from `start` on; answer with `replayed` and `replay_ended`."""

    start: int


Step = Apply[B] | Clear | Replay


@dataclass(slots=True)
class EventSequence(Generic[B]):
    """One publisher's numbers. `lost` counts batches that nobody will bring any more."""

    cooldown: Duration = REPLAY_COOLDOWN
    held_batches: int = HELD_BATCHES
    lost: int = 0
    restarts: int = 0
    _next: int | None = None
    _last_live: int = -1
    _replaying: bool = False
    _quiet_until: Instant | None = None
    _held: deque[tuple[int, B]] = field(default_factory=deque)

    @property
    def replaying(self) -> bool:
        """Whether a replay was asked for and has not ended."""
        return self._replaying

    def live(self, number: int, batch: B, now: Instant) -> list[Step[B]]:
        """A batch came by subscription."""
        steps: list[Step[B]] = []
        if number <= self._last_live:
            self.restarts += 1
            self._next = None
            self._held.clear()
            # A replay that is under way answers for the former publisher, or for this one from its beginning.
            steps.append(Clear())
        self._last_live = number
        if self._replaying:
            self._hold(number, batch)
            return steps
        due = 0 if self._next is None else self._next
        if number < due:
            return steps
        if number > due and self._may_replay(now):
            self._replaying = True
            self._hold(number, batch)
            steps.append(Replay(due))
            return steps
        steps.append(self._take(number, batch, due))
        return steps

    def replayed(self, number: int, batch: B) -> list[Step[B]]:
        """A batch came by replay."""
        due = 0 if self._next is None else self._next
        if not self._replaying or number < due:
            return []
        return [self._take(number, batch, due)]

    def replay_ended(self, now: Instant) -> list[Step[B]]:
        """The replay is over, complete or not: what waited follows."""
        self._replaying = False
        self._quiet_until = Instant(now + self.cooldown)
        steps: list[Step[B]] = []
        while self._held:
            number, batch = self._held.popleft()
            due = 0 if self._next is None else self._next
            if number >= due:
                steps.append(self._take(number, batch, due))
        return steps

    def _take(self, number: int, batch: B, due: int) -> Step[B]:
        self.lost += number - due
        self._next = number + 1
        return Apply(batch)

    def _hold(self, number: int, batch: B) -> None:
        if len(self._held) >= self.held_batches:
            self._held.popleft()
        self._held.append((number, batch))

    def _may_replay(self, now: Instant) -> bool:
        return self._quiet_until is None or now >= self._quiet_until
