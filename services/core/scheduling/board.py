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
from services.core.scheduling.scorers.scorer import Column, Linear, Live, Sparse, dense

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
        columns: list[Sequence[float]] = []
        slopes: list[float] = []
        few: list[tuple[float, Sparse]] = []
        offset = 0.0
        for weight, live in self._live:
            scores = live(arrival)
            if scores is None:
                continue
            if type(scores) is Linear:
                columns.append(scores.values)
                slopes.append(weight * scores.slope)
                offset += weight * scores.offset
            elif type(scores) is dict:
                few.append((weight, scores))
            else:
                columns.append(scores)  # type: ignore[arg-type] # The two other forms are ruled out above.
                slopes.append(weight)
        totals = _summed(self._static, offset, columns, slopes)
        for weight, sparse in few:
            for place, score in sparse.items():
                totals[place] += weight * score
        return totals

    def parts(self, arrival: Arrival) -> list[tuple[tuple[str, float], ...]]:
        """Return each endpoint's score by each scorer that had something to say, unweighted, for explanations."""
        columns: list[tuple[str, Column]] = []
        for weighted, scores in self._lay_out():
            column = scores(arrival) if callable(scores) else scores
            if column is not None:
                columns.append((weighted.name, dense(column, len(self.endpoints))))
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


def _summed(
    start: Sequence[float], offset: float, columns: Sequence[Sequence[float]], slopes: Sequence[float]
) -> list[float]:
    """Return start + offset + sum of slope x column, four columns to a pass: a pass costs more than an addition.

    All have one length by construction; checking it again would cost a tenth of every pass.
    """
    totals = list(start)
    whole = len(columns) - len(columns) % 4
    for first in range(0, whole, 4):
        w, x, y, z = slopes[first : first + 4]
        totals = [
            total + offset + w * a + x * b + y * c + z * d
            for total, a, b, c, d in zip(totals, *columns[first : first + 4], strict=False)
        ]
        offset = 0.0
    for column, slope in zip(columns[whole:], slopes[whole:], strict=True):
        totals = [total + offset + slope * value for total, value in zip(totals, column, strict=False)]
        offset = 0.0
    return totals
