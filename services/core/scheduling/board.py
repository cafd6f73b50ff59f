"""The score board: a profile's scorers and filters laid out over one set of endpoints.

Made once per plan; what no request changes is summed then, so that a pick adds only the columns that depend on
the request or on what was sent. A narrower board is made for a subset, because scores compare the candidates
that are left, and kept while the plan lives: data planes send the same few subsets again and again.
"""

from collections.abc import Sequence

from services.core.scheduling.endpoint_filters import Keep, Places
from services.core.scheduling.endpoints import Arrival, Endpoints
from services.core.scheduling.filters import Member
from services.core.scheduling.profile import SchedulingProfile, Weighted
from services.core.scheduling.scorers.load import OwnRequests
from services.core.scheduling.scorers.scorer import Column, Live

NARROWER_MAX = 32
"""Narrower boards kept by one board. Session pins and prefixes name any pod; memory must not follow them."""

_OWN = (Weighted(OwnRequests()),)


class Board:
    """Endpoints with their columns. `degraded`: every metric is old, so only own requests are scored."""

    __slots__ = ("_degraded", "_filters", "_live", "_narrower", "_profile", "_scores", "_static", "endpoints")

    def __init__(self, members: Sequence[Member], profile: SchedulingProfile, *, degraded: bool) -> None:
        self.endpoints = Endpoints(members)
        self._profile = profile
        self._degraded = degraded
        self._filters: tuple[Keep, ...] | None = None
        self._static: list[float] = []
        self._live: list[tuple[float, Live]] = []
        self._scores: list[tuple[Weighted, Column | Live]] | None = None
        self._narrower: dict[tuple[int, ...], Board] = {}

    @property
    def filters(self) -> Sequence[Keep]:
        """The profile's filters over these endpoints, in its order."""
        found = self._filters
        if found is None:
            found = self._filters = tuple(each.over(self.endpoints) for each in self._profile.filters)
        return found

    def narrow(self, places: Places) -> "Board":
        """Return the board of the endpoints at `places`, ascending."""
        key = tuple(places)
        if len(key) == len(self.endpoints):
            return self
        board = self._narrower.get(key)
        if board is None:
            if len(self._narrower) >= NARROWER_MAX:
                self._narrower.clear()
            members = [self.endpoints.members[place] for place in key]
            board = self._narrower[key] = Board(members, self._profile, degraded=self._degraded)
        return board

    def totals(self, arrival: Arrival) -> list[float]:
        """Return the weighted sum of all scores for each endpoint."""
        self._lay_out()
        totals = self._static
        for weight, live in self._live:
            column = live(arrival)
            if column is not None:
                totals = [total + weight * score for total, score in zip(totals, column, strict=True)]
        return totals

    def parts(self, arrival: Arrival) -> list[tuple[tuple[str, float], ...]]:
        """Return each endpoint's score by each scorer that had something to say, unweighted, for explanations."""
        columns: list[tuple[str, Column]] = []
        for weighted, scores in self._lay_out():
            column = scores(arrival) if callable(scores) else scores
            if column is not None:
                columns.append((weighted.name, column))
        return [
            tuple((name, column[place]) for name, column in columns) for place in range(len(self.endpoints))
        ]

    def _lay_out(self) -> Sequence[tuple[Weighted, Column | Live]]:
        laid_out = self._scores
        if laid_out is None:
            laid_out = self._scores = []
            self._static = [0.0] * len(self.endpoints)
            for weighted in _OWN if self._degraded else self._profile.scorers:
                scores = weighted.scorer.over(self.endpoints)
                laid_out.append((weighted, scores))
                if callable(scores):
                    self._live.append((weighted.weight, scores))
                else:
                    weight = weighted.weight
                    self._static = [t + weight * s for t, s in zip(self._static, scores, strict=True)]
        return laid_out
