"""What a scorer is: parameters that are laid out over endpoints into a column of scores from 0 to 1.

Formulas are in the files beside this one, by what they look at; weights belong to the profile. A column that no
request changes is computed when the endpoints are laid out; the rest is a function of the arrival. Formulas and
defaults are the endpoint-picker field's (llm-d router); a signal that one endpoint lacks scores as the mean of
the others.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from services.core.scheduling.endpoints import Arrival, Endpoints

Column = Sequence[float]
Live = Callable[[Arrival], Column | None]
"""Scores that depend on the request or on what was sent; None when it tells nobody from anybody."""


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
    if not known:
        return [1.0] * len(values)
    highest = max(known)
    span = highest - min(known)
    if not span:
        return [1.0] * len(values)
    if len(known) == len(values):
        return [(highest - value) / span for value in known]
    mean = (highest - sum(known) / len(known)) / span
    return [mean if value is None else (highest - value) / span for value in values]


def scores_or_mean(scores: Sequence[float | None]) -> list[float]:
    """Return the scores with the mean of those known where one is unknown; 1 for all when none is known."""
    known = [score for score in scores if score is not None]
    mean = sum(known) / len(known) if known else 1.0
    return [mean if score is None else score for score in scores]
