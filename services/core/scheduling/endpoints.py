"""Endpoints side by side, and one request arriving before them: what scorers and filters of tier 1 look at.

`Endpoints` is laid out once per plan, `Arrival` is made per pick. Loads are as scraped, corrected by what this
process has itself sent since. The bound on affinity is here because every scorer that rewards warmth shares it:
without one, the pod that is warm draws all traffic that made it warm.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from operator import add

from services.core.fleet import LoadReport
from services.core.scheduling.filters import Member
from services.core.scheduling.signals import NO_SIGNALS, Signals

InFlight = Mapping[str, int]
"""Requests this process sent to a candidate since its load was last scraped and that still run, less those that
ended; or the prompt tokens of all that still run."""

NOTHING: InFlight = {}

AFFINITY_BOUND = 1.2
"""Consistent hashing with bounded loads (Mirrokni et al. 2018), c = 1.2: above it a warm cache no longer pays
for the wait. Rounding up is the slack that lets a nearly idle pool have any affinity at all."""


class Endpoints:
    """The candidates of one plan as columns; a position is the same in all of them.

    `outstanding` are waiting and running requests as scraped; one that does not tell counts as the mean of the
    others, and when nobody tells all count as 0.
    """

    __slots__ = ("candidates", "ids", "index", "loads", "members", "outstanding", "zeros")

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self.candidates = tuple(member.candidate for member in members)
        self.ids = tuple(candidate.id for candidate in self.candidates)
        self.index = {name: place for place, name in enumerate(self.ids)}
        self.loads = tuple(member.load for member in members)
        self.zeros: Sequence[int] = (0,) * len(self.ids)
        self.outstanding = or_mean([_outstanding(load) for load in self.loads])

    def __len__(self) -> int:
        return len(self.ids)

    def labels(self, name: str) -> list[str | None]:
        """Return the value of a label for each endpoint."""
        return [candidate.labels.get(name) for candidate in self.candidates]


class Arrival:
    """One request before `endpoints`.

    `own`: requests sent since the scrape; `point`: the request's own
    point in [0, 1); `cold`: when each endpoint last got a request that no cache knew, in any ascending unit.
    """

    __slots__ = ("_bound", "_outstanding", "_sent", "_tokens", "cold", "endpoints", "own", "point", "signals")

    def __init__(
        self,
        endpoints: Endpoints,
        signals: Signals = NO_SIGNALS,
        in_flight: InFlight = NOTHING,
        in_flight_tokens: InFlight = NOTHING,
        cold: Mapping[str, int] = NOTHING,
        point: float = 0.0,
    ) -> None:
        self.endpoints = endpoints
        self.signals = signals
        self._sent = in_flight
        self.own = list(map(in_flight.get, endpoints.ids, endpoints.zeros)) if in_flight else endpoints.zeros
        self.cold = cold
        self.point = point
        self._tokens = in_flight_tokens
        self._outstanding: list[float] | None = None
        self._bound: float | None = None

    def before(self, endpoints: Endpoints) -> "Arrival":
        """Return the same request before other endpoints."""
        return Arrival(endpoints, self.signals, self._sent, self._tokens, self.cold, self.point)

    @property
    def tokens(self) -> list[int]:
        """Own prompt tokens in flight at each endpoint."""
        return list(map(self._tokens.get, self.endpoints.ids, self.endpoints.zeros))

    @property
    def outstanding(self) -> list[float]:
        """Requests at each endpoint now: as scraped, and own ones since."""
        found = self._outstanding
        if found is None:
            found = self._outstanding = not_below_none(list(map(add, self.endpoints.outstanding, self.own)))
        return found

    @property
    def bound(self) -> float:
        """The number of requests up to which an endpoint may still be chosen for what it holds."""
        found = self._bound
        if found is None:
            loads = self.outstanding
            found = self._bound = ceil(AFFINITY_BOUND * (sum(loads) + 1) / len(loads))
        return found

    def warm(self) -> list[tuple[int, int]]:
        """Return (position, matched blocks) of the endpoints that hold a part of the prompt, within the bound."""
        index, loads, most = self.endpoints.index.get, self.outstanding, self.bound - 1
        found = []
        for name, blocks in self.signals.matched.items():
            place = index(name)
            if place is not None and loads[place] <= most:
                found.append((place, blocks))
        return found


def or_mean(values: Sequence[float | None]) -> list[float]:
    """Return the values with the mean of those known where one is unknown; 0 when none is known."""
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else 0.0
    return [mean if value is None else value for value in values]


def not_below_none(counts: list[float]) -> list[float]:
    """Return the counts with 0 for what is below.

    A request that the server had finished before it was scraped, and that ended here after the scrape was read,
    is taken off a load that it was no part of. Below an idle endpoint there is nothing: uncorrected, one such
    request makes its endpoint the emptiest of an idle pool, and the bound on affinity one that nobody keeps.
    """
    return [count if count > 0 else 0.0 for count in counts] if min(counts) < 0 else counts


def _outstanding(load: LoadReport) -> float | None:
    if load.waiting is None and load.running is None:
        return None
    return (load.waiting or 0.0) + (load.running or 0.0)
