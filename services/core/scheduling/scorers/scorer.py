"""What a scorer is: parameters that are laid out over endpoints into a column of scores from 0 to 1.

Formulas are in the files beside this one, by what they look at; weights belong to the profile. A column that no
request changes is computed when the endpoints are laid out; the rest is a function of the arrival. Formulas and
defaults are the endpoint-picker field's (llm-d router); a signal that one endpoint lacks scores as the mean of
the others.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from services.core.scheduling.endpoints import Arrival, Endpoints

Column = Sequence[float]
Sparse = dict[int, float]
"""Scores by position where few endpoints have one; the others score 0."""


class Linear(NamedTuple):
    """Scores slope x value + offset: a board adds such values without making the scores first."""

    values: Sequence[float]
    slope: float
    offset: float


Scores = Column | Sparse | Linear
Live = Callable[[Arrival], Scores | None]
"""Scores that depend on the request or on what was sent; None when it tells nobody from anybody."""


def dense(scores: Scores, size: int) -> Column:
    """Return the scores of `size` endpoints one by one."""
    if isinstance(scores, dict):
        return [scores.get(place, 0.0) for place in range(size)]
    if isinstance(scores, Linear):
        return [scores.slope * value + scores.offset for value in scores.values]
    return scores


class Scorer(Protocol):
    """Parameters of one formula."""

    @property
    def name(self) -> str:
        """The name in explanations."""

    def over(self, endpoints: Endpoints) -> Column | Live:
        """Lay the scorer out over `endpoints`."""


def fewest(values: Sequence[float | None]) -> list[float]:
    """Return (max - v) / (max - min) for each value; 1 for all when all are equal or none is known."""
    known = [value for value in values if value is not None]
    highest = max(known, default=0.0)
    span = highest - min(known, default=0.0)
    if not span:
        return [1.0] * len(values)
    mean = (highest - sum(known) / len(known)) / span
    return [mean if value is None else (highest - value) / span for value in values]


def fewest_known(values: Sequence[float]) -> Linear:
    """Return `fewest` of values that are all known, at least one."""
    highest = max(values)
    span = highest - min(values)
    return Linear(values, -1.0 / span, highest / span) if span else Linear(values, 0.0, 1.0)


def scores_or_mean(scores: Sequence[float | None]) -> list[float]:
    """Return the scores with the mean of those known where one is unknown; 1 for all when none is known."""
    known = [score for score in scores if score is not None]
    mean = sum(known) / len(known) if known else 1.0
    return [mean if score is None else score for score in scores]
