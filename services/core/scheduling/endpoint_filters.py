"""Filters of tier 1: which endpoints a profile leaves for the picker, beside the stages that every tier has.

Each is laid out over the endpoints and then asked per request; it answers with the positions that stay, or None
for all. What is about the request's wishes (session, prefix, latency, load) never empties the choice; a label
that nobody bears does. Formulas and defaults are the llm-d router's.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.core.outcomes import DropReason
from services.core.scheduling.endpoints import Arrival, Endpoints
from services.core.scheduling.scorers.fit import LEVELS, attribute_values, check_levels, shared_levels
from services.core.scheduling.scorers.latency import MS_PER_S, PEAK_PREFILL_TOKENS_PER_S, predict_ttft_ms

Places = Sequence[int]
Keep = Callable[[Arrival], Places | None]


class EndpointFilter(Protocol):
    """Parameters of one condition."""

    @property
    def name(self) -> str:
        """The name in explanations."""

    @property
    def reason(self) -> DropReason:
        """Why a request is refused when nobody stays."""

    @property
    def binding(self) -> bool:
        """Whether fallbacks are bound by it as the target is."""

    def over(self, endpoints: Endpoints) -> Keep:
        """Lay the filter out over `endpoints`."""


class Operator(enum.Enum):
    """How a label is required (Kubernetes label selectors)."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label. An endpoint without the label satisfies NOT_IN, as in Kubernetes."""

    label: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if bool(self.values) is not (self.operator in {Operator.IN, Operator.NOT_IN}):
            raise ValueError(f"label {self.label!r}: In and NotIn need values, the others have none")

    def met_by(self, labels: Mapping[str, str]) -> bool:
        """Whether an endpoint with `labels` satisfies it."""
        value = labels.get(self.label)
        if self.operator is Operator.IN:
            return value in self.values
        if self.operator is Operator.NOT_IN:
            return value not in self.values
        return (value is not None) is (self.operator is Operator.EXISTS)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Endpoints whose labels meet every requirement. Nobody left is a refusal."""

    requirements: tuple[Requirement, ...]
    reason: DropReason = DropReason.NO_HEALTHY_CLUSTER
    name: str = "labels"
    binding: bool = True

    def over(self, endpoints: Endpoints) -> Keep:
        """Return the filter."""
        kept = [
            place
            for place, candidate in enumerate(endpoints.candidates)
            if all(requirement.met_by(candidate.labels) for requirement in self.requirements)
        ]
        return lambda _arrival: kept


@dataclass(frozen=True, slots=True)
class SessionPin:
    """The endpoint of the session alone while it is a candidate, everybody once it is none."""

    reason: DropReason = DropReason.NO_HEALTHY_CLUSTER
    name: str = "session"
    binding: bool = False

    def over(self, endpoints: Endpoints) -> Keep:
        """Return the filter."""

        def keep(arrival: Arrival) -> Places | None:
            session = arrival.signals.session
            place = None if session is None else endpoints.index.get(session)
            return None if place is None else (place,)

        return keep


@dataclass(frozen=True, slots=True)
class PrefixAffinity:
    """Endpoints that hold at least `threshold` of the prompt, while that costs no more than `penalty_ms`.

    The cost is the predicted time to first token of the best of them beyond that of the best of all; where
    none was measured, own tokens in flight and the uncached prompt at `peak_tokens_per_s` stand in. Endpoints
    above the bound on affinity do not count as holders.
    """

    threshold: float = 0.80
    penalty_ms: float = 18_000.0
    peak_tokens_per_s: float = PEAK_PREFILL_TOKENS_PER_S
    reason: DropReason = DropReason.NO_HEALTHY_CLUSTER
    name: str = "prefix"
    binding: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1 or self.penalty_ms < 0 or self.peak_tokens_per_s <= 0:
            raise ValueError(
                "threshold: must lie above 0, at most 1; penalty_ms: not negative; peak_tokens_per_s: above 0"
            )

    def over(self, endpoints: Endpoints) -> Keep:
        """Return the filter."""
        predict = predict_ttft_ms(endpoints, self.peak_tokens_per_s)

        def keep(arrival: Arrival) -> Places | None:
            needed = arrival.signals.total_blocks * self.threshold
            holders = [place for place, blocks in arrival.warm() if blocks >= needed > 0]
            if not holders:
                return None
            times = [
                guess if time is None else time
                for time, guess in zip(predict(arrival), self._guesses(arrival), strict=True)
            ]
            penalty = min(times[place] for place in holders) - min(times)
            return sorted(holders) if penalty <= self.penalty_ms else None

        return keep

    def _guesses(self, arrival: Arrival) -> list[float]:
        """Return the milliseconds of prefill ahead of the first token, by this process's own tokens alone."""
        signals = arrival.signals
        prompt = signals.prompt_tokens or signals.total_blocks * signals.block_tokens
        matched, per_token = signals.matched.get, MS_PER_S / self.peak_tokens_per_s
        return [
            (tokens + max(0, prompt - matched(name, 0) * signals.block_tokens)) * per_token
            for name, tokens in zip(arrival.endpoints.ids, arrival.tokens, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class SloHeadroom:
    """Endpoints predicted to meet the request's target; for a share `epsilon` of requests those that miss it.

    The exception keeps measurements of busy endpoints coming. An endpoint without a prediction stays.
    """

    epsilon: float = 0.01
    peak_tokens_per_s: float = PEAK_PREFILL_TOKENS_PER_S
    reason: DropReason = DropReason.NO_HEALTHY_CLUSTER
    name: str = "slo_headroom"
    binding: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1 or self.peak_tokens_per_s <= 0:
            raise ValueError("epsilon: must lie in 0..1; peak_tokens_per_s: must be above 0")

    def over(self, endpoints: Endpoints) -> Keep:
        """Return the filter."""
        predict = predict_ttft_ms(endpoints, self.peak_tokens_per_s)

        def keep(arrival: Arrival) -> Places | None:
            target = arrival.signals.ttft_slo_ms
            if target is None:
                return None
            times = predict(arrival)
            meet = [place for place, time in enumerate(times) if time is None or time <= target]
            miss = [place for place, time in enumerate(times) if time is not None and time > target]
            return (miss or meet) if arrival.point < self.epsilon else (meet or miss)

        return keep


@dataclass(frozen=True, slots=True)
class Utilization:
    """Endpoints whose saturation does not exceed `threshold` x (1 + `headroom`); everybody when all exceed it."""

    threshold: float = 1.0
    headroom: float = 0.0
    reason: DropReason = DropReason.SATURATED
    name: str = "utilization"
    binding: bool = False

    def __post_init__(self) -> None:
        if self.threshold <= 0 or self.headroom < 0:
            raise ValueError("threshold: must be above 0; headroom: must not be negative")

    def over(self, endpoints: Endpoints) -> Keep:
        """Return the filter."""
        limit = self.threshold * (1.0 + self.headroom)
        loads = endpoints.loads
        kept = [p for p, load in enumerate(loads) if load.saturation is None or load.saturation <= limit]
        answer = kept if 0 < len(kept) < len(loads) else None
        return lambda _arrival: answer


@dataclass(frozen=True, slots=True)
class TopologyAffinity:
    """Endpoints that stand at least as near to `here` as `level`. Nobody left is a refusal."""

    here: Mapping[str, str] = field(default_factory=dict, hash=False)
    level: str = "host"
    reason: DropReason = DropReason.NO_HEALTHY_CLUSTER
    name: str = "topology"
    binding: bool = True

    def __post_init__(self) -> None:
        check_levels((*self.here, self.level))

    def over(self, endpoints: Endpoints) -> Keep:
        """Return the filter."""
        names = tuple(LEVELS)
        near = frozenset(names[: names.index(self.level) + 1])
        kept = [place for place, level in enumerate(shared_levels(endpoints, self.here)) if level in near]
        return lambda _arrival: kept


@dataclass(frozen=True, slots=True)
class AttributeRange:
    """Endpoints whose `attribute` lies in `low`..`high`; `keep_missing`: those without it stay.

    `keep_all_when_empty`: everybody when nobody is left; otherwise nobody left is back-pressure.
    """

    attribute: str
    low: float = float("-inf")
    high: float = float("inf")
    keep_missing: bool = True
    keep_all_when_empty: bool = False
    reason: DropReason = DropReason.SATURATED
    name: str = "attribute"
    binding: bool = True

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low: must not exceed high")

    def over(self, endpoints: Endpoints) -> Keep:
        """Return the filter."""
        values = attribute_values(endpoints, self.attribute)
        kept = [
            place
            for place, value in enumerate(values)
            if (self.keep_missing if value is None else self.low <= value <= self.high)
        ]
        answer = None if not kept and self.keep_all_when_empty else kept
        return lambda _arrival: answer
