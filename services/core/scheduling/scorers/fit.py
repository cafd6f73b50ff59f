"""Scorers of fit: how well an endpoint suits the request by what is declared of it.

Formulas of the llm-d router (context-length-aware, header-label-affinity-scorer, topology-affinity-scorer,
endpoint-attribute-scorer). Labels say what an endpoint is for and where it stands; attributes are numbers, from
a label or from the load.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from services.core.fleet import LoadReport
from services.core.scheduling.endpoints import Arrival, Endpoints
from services.core.scheduling.scorers.scorer import Column, Live, fewest, scores_or_mean

CONTEXT_LENGTH_LABEL = "llm-d.ai/context-length-range"
UNLABELLED = 0.5

_RANGE = re.compile(r"(\d{1,12})-(\d{1,12})\Z")


@dataclass(frozen=True, slots=True)
class ContextLength:
    """How well the prompt's length lies in the range `min-max` (tokens) of the endpoint's label.

    Inside: 0.3 + 0.7 (0.7 / (1 + width / 10000) + 0.3 headroom / width); outside: 0.3 / (1 + distance / 1000);
    without a readable label 0.5. Narrow ranges win over wide ones.
    """

    label: str = CONTEXT_LENGTH_LABEL
    name: str = "context_length"

    def over(self, endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        ranges = [context_range(value) for value in endpoints.labels(self.label)]
        distinct = tuple(dict.fromkeys(ranges))
        kinds = [distinct.index(found) for found in ranges]

        def live(arrival: Arrival) -> Column | None:
            tokens = arrival.signals.prompt_tokens
            if tokens is None or distinct == (None,):
                return None
            scores = [context_score(found, tokens) for found in distinct]
            return [scores[kind] for kind in kinds]

        return live


def context_range(value: str | None) -> tuple[int, int] | None:
    """Return (min, max) tokens of a label's value; None when it is not such a range."""
    match = _RANGE.match(value) if value is not None else None
    if match is None:
        return None
    low, high = int(match[1]), int(match[2])
    return (low, high) if low < high else None


def context_score(span: tuple[int, int] | None, tokens: int) -> float:
    """Return the field's score of a prompt of `tokens` against a range."""
    if span is None:
        return UNLABELLED
    low, high = span
    if low <= tokens <= high:
        width = high - low
        return 0.3 + 0.7 * (0.7 / (1 + width / 10_000) + 0.3 * (high - tokens) / width)
    return 0.3 / (1 + (low - tokens if tokens < low else tokens - high) / 1000)


@dataclass(frozen=True, slots=True)
class HeaderLabel:
    """1 where the endpoint's `label` equals the request's `header` (lower case), else 0."""

    header: str
    label: str
    name: str = "header_label"

    def over(self, endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        values = endpoints.labels(self.label)

        def live(arrival: Arrival) -> Column | None:
            wanted = arrival.signals.headers.get(self.header)
            return None if wanted is None else [1.0 if value == wanted else 0.0 for value in values]

        return live


LEVELS: Mapping[str, tuple[str, float]] = {
    "host": ("kubernetes.io/hostname", 1.0),
    "rack": ("topology.kubernetes.io/rack", 0.2),
    "zone": ("topology.kubernetes.io/zone", 0.05),
    "region": ("topology.kubernetes.io/region", 0.02),
}
"""Levels of topology from near to far: the label that names the place, and the score for sharing it."""


@dataclass(frozen=True, slots=True)
class Topology:
    """How near an endpoint stands to `here`, a mapping of level (host, rack, zone, region) to place."""

    here: Mapping[str, str] = field(default_factory=dict, hash=False)
    name: str = "topology"

    def __post_init__(self) -> None:
        check_levels(self.here)

    def over(self, endpoints: Endpoints) -> Column:
        """Return the score of the nearest level shared, 0 for none."""
        return [0.0 if level is None else LEVELS[level][1] for level in shared_levels(endpoints, self.here)]


def check_levels(levels: Sequence[str] | Mapping[str, str]) -> None:
    """Raise `ValueError` for a level that does not exist."""
    for level in levels:
        if level not in LEVELS:
            raise ValueError(f"topology level {level!r}: must be one of {', '.join(LEVELS)}")


def shared_levels(endpoints: Endpoints, here: Mapping[str, str]) -> list[str | None]:
    """Return for each endpoint the nearest level at which it stands where `here` does; None for none."""
    return [
        next(
            (
                level
                for level, (label, _) in LEVELS.items()
                if level in here and labels.get(label) == here[level]
            ),
            None,
        )
        for labels in (candidate.labels for candidate in endpoints.candidates)
    ]


_MEASURED: Mapping[str, Callable[[LoadReport], float | None]] = {
    "waiting": lambda load: load.waiting,
    "running": lambda load: load.running,
    "kv_use": lambda load: load.kv_use,
    "saturation": lambda load: load.saturation,
    "ttft_ms": lambda load: load.ttft_ms,
    "capacity": lambda load: load.capacity_requests,
}
ATTRIBUTES = tuple(_MEASURED)
"""Attributes that are measured; every other name is a label with a number in it."""


def attribute_values(endpoints: Endpoints, attribute: str) -> list[float | None]:
    """Return the attribute of each endpoint as a number; None where it is absent or no number."""
    measured = _MEASURED.get(attribute)
    if measured is not None:
        return [measured(load) for load in endpoints.loads]
    return [_number(value) for value in endpoints.labels(attribute)]


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


@dataclass(frozen=True, slots=True)
class Attribute:
    """Linear in `attribute` between the least and the largest value: of the endpoints, or of the fixed `span`.

    `prefer_high` says which end is best.
    """

    attribute: str
    prefer_high: bool = False
    span: tuple[float, float] | None = None
    name: str = "attribute"

    def __post_init__(self) -> None:
        if self.span is not None and not self.span[0] < self.span[1]:
            raise ValueError("span: the least value must lie below the largest")

    def over(self, endpoints: Endpoints) -> Column:
        """Return the scores."""
        values = attribute_values(endpoints, self.attribute)
        if self.span is None:
            return fewest([None if v is None else -v for v in values] if self.prefer_high else values)
        low, high = self.span
        shares = [None if v is None else min(1.0, max(0.0, (v - low) / (high - low))) for v in values]
        return scores_or_mean(
            shares if self.prefer_high else [None if share is None else 1.0 - share for share in shares]
        )
