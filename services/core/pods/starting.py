"""How long starts take: measured durations of each start-up phase, and the time that one start still needs.

Arithmetic over what this process saw; who starts and when is the table's. The estimate is the median of those
earlier phases that lasted at least as long as this one already has, so that a start that overruns is not promised for
ever as about to end. Unknown is None, never 0.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import dropwhile
from statistics import median

from services.core.pods.discovered import StartPhase
from services.core.units import Duration

ORDER = (StartPhase.SCHEDULED, StartPhase.PULLING, StartPhase.LOADING)
"""The phases that take time, in order."""
REMEMBERED = 32
"""Starts of one pool that count: enough for a median, few enough to follow a new image or model."""


def _empty() -> dict[StartPhase, deque[Duration]]:
    return {phase: deque(maxlen=REMEMBERED) for phase in ORDER}


@dataclass(slots=True)
class StartTimes:
    """The latest durations of each phase of one pool."""

    _taken: dict[StartPhase, deque[Duration]] = field(default_factory=_empty)

    def advanced(self, before: StartPhase, after: StartPhase | None, took: Duration) -> None:
        """Take in that a start went from `before`, which lasted `took`, to `after`.

        Phases passed over took no time. A step back, or out of sight, is a start begun anew: nothing is learnt.
        """
        later = tuple(dropwhile(lambda phase: phase is not before, ORDER))[1:]
        if before not in ORDER or not (after is StartPhase.READY or after in later):
            return
        self._taken[before].append(Duration(max(took, 0)))
        for phase in later:
            if phase is after:
                return
            self._taken[phase].append(Duration(0))

    def remaining(self, phase: StartPhase, lasted: Duration) -> Duration | None:
        """Return how long until a start that has been in `phase` for `lasted` is over; None when unknown."""
        here = [taken for taken in self._taken[phase] if taken >= lasted]
        if not here:
            return None
        total = median(here) - lasted
        for later in tuple(dropwhile(lambda other: other is not phase, ORDER))[1:]:
            if not self._taken[later]:
                return None
            total += median(self._taken[later])
        return Duration(round(total))
