"""Scorers of load: how much each endpoint has to do already.

Formulas of the llm-d router (queue-scorer, running-requests-size-scorer, kv-cache-utilization-scorer,
load-aware-scorer, active-request-scorer, token-load-scorer). Every count includes what this process has sent
since the scrape, so that picks within one interval spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

from services.core.scheduling.endpoints import Arrival, Endpoints, not_below_none, or_mean
from services.core.scheduling.scorers.scorer import (
    Column,
    Linear,
    Live,
    Scores,
    fewest,
    fewest_known,
    scores_or_mean,
)


@dataclass(frozen=True, slots=True)
class Queue:
    """Waiting requests, fewest best."""

    name: str = "queue"

    def over(self, endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        return _fewest_with_own([load.waiting for load in endpoints.loads])


@dataclass(frozen=True, slots=True)
class Running:
    """Running requests, fewest best."""

    name: str = "running"

    def over(self, endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        return _fewest_with_own([load.running for load in endpoints.loads])


@dataclass(frozen=True, slots=True)
class OwnRequests:
    """Own requests alone, fewest best: what is left to go by when every metric is old."""

    name: str = "own_in_flight"

    def over(self, _endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        return lambda arrival: fewest_known(arrival.own)


@dataclass(frozen=True, slots=True)
class KvUse:
    """The free share of the KV cache."""

    name: str = "kv_use"

    def over(self, endpoints: Endpoints) -> Column:
        """Return 1 - use, within 0..1."""
        uses = [load.kv_use for load in endpoints.loads]
        return scores_or_mean([None if use is None else 1.0 - min(1.0, max(0.0, use)) for use in uses])


@dataclass(frozen=True, slots=True)
class LoadAware:
    """0.5 (1 - min(q, threshold) / threshold): half a point for an empty queue, nothing from `threshold` on."""

    threshold: int = 128
    name: str = "load_aware"

    def __post_init__(self) -> None:
        if self.threshold < 1:
            raise ValueError("threshold: must be at least 1")

    def over(self, endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        waiting = [load.waiting for load in endpoints.loads]
        known = or_mean(waiting)
        unknown = [place for place, count in enumerate(waiting) if count is None]
        most, slope = self.threshold, 0.5 / self.threshold

        def live(arrival: Arrival) -> Column:
            scores = [
                (0.5 - count * slope if count < most else 0.0) if count > 0 else 0.5
                for count in map(add, known, arrival.own)
            ]
            if unknown and len(unknown) < len(scores):
                told = sum(scores) - sum(scores[place] for place in unknown)
                for place in unknown:
                    scores[place] = told / (len(scores) - len(unknown))
            return scores

        return live


@dataclass(frozen=True, slots=True)
class ActiveRequests:
    """Requests in flight c: 1 up to `idle`, above it (max - c) / max of `busy_score`."""

    idle: int = 0
    busy_score: float = 1.0
    name: str = "active_requests"

    def __post_init__(self) -> None:
        if self.idle < 0 or not 0 <= self.busy_score <= 1:
            raise ValueError("idle: must not be negative; busy_score: must lie in 0..1")

    def over(self, _endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        idle, busy_score = self.idle, self.busy_score

        def live(arrival: Arrival) -> Scores:
            counts = arrival.outstanding
            highest = max(counts)
            if highest <= idle:
                return [1.0] * len(counts)
            share = busy_score / highest
            if not idle and busy_score == 1.0:
                # An idle endpoint scores 1 by either rule, so one straight line has them all.
                return Linear(counts, -share, 1.0)
            return [1.0 if count <= idle else (highest - count) * share for count in counts]

        return live


@dataclass(frozen=True, slots=True)
class TokenLoad:
    """1 - min(1, own prompt tokens in flight / `full_tokens`)."""

    full_tokens: int = 4_194_304
    name: str = "token_load"

    def __post_init__(self) -> None:
        if self.full_tokens < 1:
            raise ValueError("full_tokens: must be at least 1")

    def over(self, _endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        full = self.full_tokens

        def live(arrival: Arrival) -> Scores:
            tokens = arrival.tokens
            if max(tokens) <= full:
                return Linear(tokens, -1.0 / full, 1.0)
            return [1.0 - count / full if count < full else 0.0 for count in tokens]

        return live


def _fewest_with_own(counts: Sequence[float | None]) -> Live:
    known = [count for count in counts if count is not None]
    if len(known) == len(counts):
        return lambda arrival: fewest_known(not_below_none(list(map(add, known, arrival.own))))
    if not known:
        # Nobody tells: the counts are equal as far as anybody knows, and own requests make the difference.
        return lambda arrival: fewest_known(arrival.own)
    return lambda arrival: fewest(
        [
            None if count is None else max(0.0, count + sent)
            for count, sent in zip(counts, arrival.own, strict=True)
        ]
    )
