"""The plugins an `EndpointPickerConfig` may name: their types, their parameters, and the core values they make.

Types are the llm-d router's, with our own short names beside them. A type that is known and not done here is
refused with a sentence that says so; nothing is ever ignored. How plugins are put together is `scheduling`.
"""

import enum
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from services.core.admission.detectors import ConcurrencyDetector, ConcurrencyMode, UtilizationDetector
from services.core.admission.settings import Fairness, Ordering
from services.core.admission.usage_limits import Domain, PriorityHoldback, SoftReflectiveCeiling, StaticLimit
from services.core.scheduling.endpoint_filters import (
    AttributeRange,
    LabelSelector,
    Operator,
    PrefixAffinity,
    Requirement,
    SessionPin,
    SloHeadroom,
    TopologyAffinity,
    Utilization,
)
from services.core.scheduling.profile import FALLBACKS_MOST, Picker
from services.core.scheduling.scorers.affinity import ColdSpread, Lora, Prefix, Session
from services.core.scheduling.scorers.fit import (
    CONTEXT_LENGTH_LABEL,
    Attribute,
    ContextLength,
    HeaderLabel,
    Topology,
)
from services.core.scheduling.scorers.latency import PEAK_PREFILL_TOKENS_PER_S, Headroom, Latency
from services.core.scheduling.scorers.load import (
    ActiveRequests,
    KvUse,
    LoadAware,
    Queue,
    Running,
    TokenLoad,
)
from services.wire.config.field_types import Kind, Many


class Role(enum.Enum):
    """What a plugin is for."""

    SCORER = "scorer"
    FILTER = "filter"
    PICKER = "picker"
    HANDLER = "profile handler"
    PARSER = "parser"
    DETECTOR = "saturation detector"
    FAIRNESS = "fairness policy"
    ORDERING = "ordering policy"
    USAGE_LIMIT = "usage limit policy"
    PREFIX = "prefix producer"
    SOURCE = "data source"
    EXTRACTOR = "extractor"


class Picking(NamedTuple):
    """A picker and how many endpoints it names, the target among them."""

    picker: Picker
    endpoints: int


class PrefixSource(NamedTuple):
    """Where prefix matches come from. None leaves a size to the index's own default or the engine's metric."""

    precise: bool
    block_tokens: int | None = None
    blocks_per_pod: int | None = None
    match_tokens: int | None = None


class Parameters(Kind):
    """Parameters of one plugin type; `build` makes the core value and may raise `ValueError` with the rule."""

    def build(self) -> object:
        """Return the value."""
        raise NotImplementedError


Positive = Annotated[float, Field(gt=0)]
PositiveInt = Annotated[int, Field(ge=1)]


def fixed(value: object) -> type[Parameters]:
    """Return the parameters of a type that has none."""

    class _NoParameters(Parameters):
        def build(self) -> object:
            return value

    return _NoParameters


class _PrefixScorer(Parameters):
    length_weight: float = 0.0
    scale_tokens: int = 8192
    prefix_match_info_producer_name: str | None = None

    def build(self) -> object:
        return Prefix(self.length_weight, self.scale_tokens)


class _LoadAware(Parameters):
    threshold: int = 128

    def build(self) -> object:
        return LoadAware(self.threshold)


class _ActiveRequests(Parameters):
    idle_threshold: int = 0
    max_busy_score: float = 1.0

    def build(self) -> object:
        return ActiveRequests(self.idle_threshold, self.max_busy_score)


class _TokenLoad(Parameters):
    max_tokens: int = 4_194_304

    def build(self) -> object:
        return TokenLoad(self.max_tokens)


class _ContextLength(Parameters):
    label: str = CONTEXT_LENGTH_LABEL

    def build(self) -> object:
        return ContextLength(self.label)


class _HeaderLabel(Parameters):
    header: Annotated[str, Field(min_length=1)]
    label: Annotated[str, Field(min_length=1)]

    def build(self) -> object:
        return HeaderLabel(self.header.lower(), self.label)


class _Topology(Parameters):
    here: dict[str, str]

    def build(self) -> object:
        return Topology(self.here)


class _Attribute(Parameters):
    attribute: Annotated[str, Field(min_length=1)]
    prefer: Literal["low", "high"] = "low"
    min: float | None = None
    max: float | None = None

    def build(self) -> object:
        if (self.min is None) is not (self.max is None):
            raise ValueError("min and max are given together, for a fixed range, or not at all")
        span = None if self.min is None or self.max is None else (self.min, self.max)
        return Attribute(self.attribute, self.prefer == "high", span)


class _Latency(Parameters):
    strategy: Literal["least", "most"] = "least"
    peak_prefill_throughput: float = PEAK_PREFILL_TOKENS_PER_S

    def build(self) -> object:
        return Latency(Headroom(self.strategy), self.peak_prefill_throughput)


class _MatchExpression(Kind):
    key: Annotated[str, Field(min_length=1)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Many[str] = ()


class _LabelSelector(Parameters):
    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: Many[_MatchExpression] = ()

    def build(self) -> object:
        equal = [Requirement(k, Operator.IN, frozenset({v})) for k, v in self.match_labels.items()]
        others = [
            Requirement(each.key, Operator(each.operator), frozenset(each.values))
            for each in self.match_expressions
        ]
        if not equal and not others:
            raise ValueError("matchLabels or matchExpressions must require something")
        return LabelSelector((*equal, *others))


class _PrefixAffinity(Parameters):
    affinity_threshold: float = 0.80
    max_ttft_penalty_ms: float = Field(18_000.0, alias="maxTTFTPenaltyMs")
    peak_prefill_throughput: float = PEAK_PREFILL_TOKENS_PER_S

    def build(self) -> object:
        return PrefixAffinity(self.affinity_threshold, self.max_ttft_penalty_ms, self.peak_prefill_throughput)


class _SloHeadroom(Parameters):
    epsilon: float = 0.01

    def build(self) -> object:
        return SloHeadroom(self.epsilon)


class _Utilization(Parameters):
    threshold: float = 1.0
    headroom: float = 0.0

    def build(self) -> object:
        return Utilization(self.threshold, self.headroom)


class _TopologyFilter(Parameters):
    here: dict[str, str]
    min_affinity: str = "host"

    def build(self) -> object:
        return TopologyAffinity(self.here, self.min_affinity)


class _AttributeFilter(Parameters):
    attribute: Annotated[str, Field(min_length=1)]
    min: float = float("-inf")
    max: float = float("inf")
    on_missing: Literal["Pass", "Drop"] = "Pass"
    fallback_on_empty: bool = False

    def build(self) -> object:
        return AttributeRange(
            self.attribute, self.min, self.max, self.on_missing == "Pass", self.fallback_on_empty
        )


def picking(picker: Picker) -> type[Parameters]:
    """Return the parameters of a picker's type."""

    class _Picking(Parameters):
        max_num_of_endpoints: Annotated[int, Field(ge=1, le=FALLBACKS_MOST + 1)] = 1

        def build(self) -> object:
            return Picking(picker, self.max_num_of_endpoints)

    return _Picking


NoHeadroom = Annotated[float, Field(ge=0, le=0)]
"""A detector filters no pods here: the field's headroom is the `utilization-filter`'s."""


class _UtilizationDetector(Parameters):
    queue_depth_threshold: Positive = 5
    kv_cache_util_threshold: Positive = 0.8
    headroom: NoHeadroom = 0.0

    def build(self) -> object:
        return UtilizationDetector(self.queue_depth_threshold, self.kv_cache_util_threshold)


class _ConcurrencyDetector(Parameters):
    mode: Literal["requests", "tokens", "hybrid"] = "requests"
    max_concurrency: PositiveInt = 100
    max_token_concurrency: PositiveInt = 1_000_000
    headroom: NoHeadroom = 0.0

    def build(self) -> object:
        return ConcurrencyDetector(
            ConcurrencyMode(self.mode), self.max_concurrency, self.max_token_concurrency
        )


class _StaticLimit(Parameters):
    threshold: float = 1.0

    def build(self) -> object:
        return StaticLimit(self.threshold)


class _Holdback(Parameters):
    min_ceiling: float
    max_ceiling: float = 1.0
    domain: Literal["rank", "value"] = "rank"

    def build(self) -> object:
        return PriorityHoldback(self.min_ceiling, self.max_ceiling, Domain(self.domain))


class _ApproximatePrefix(Parameters):
    auto_tune: bool = True
    block_size_tokens: PositiveInt = 64
    lru_capacity_per_server: PositiveInt = 31_250
    max_prefix_tokens_to_match: PositiveInt = 131_072

    def build(self) -> object:
        if self.auto_tune:
            return PrefixSource(precise=False, match_tokens=self.max_prefix_tokens_to_match)
        return PrefixSource(
            precise=False,
            block_tokens=self.block_size_tokens,
            blocks_per_pod=self.lru_capacity_per_server,
            match_tokens=self.max_prefix_tokens_to_match,
        )


class PluginType(NamedTuple):
    """A type's role and the model of its parameters."""

    role: Role
    parameters: type[Parameters]


def _spelt(role: Role, parameters: type[Parameters], *names: str) -> dict[str, PluginType]:
    return dict.fromkeys(names, PluginType(role, parameters))


def _named(role: Role, values: type[Fairness] | type[Ordering]) -> dict[str, PluginType]:
    return {each.value: PluginType(role, fixed(each)) for each in values}


PLUGINS: Mapping[str, PluginType] = {
    **_spelt(Role.SCORER, fixed(Queue()), "queue-scorer", "queue"),
    **_spelt(Role.SCORER, fixed(Running()), "running-requests-size-scorer", "running"),
    **_spelt(Role.SCORER, fixed(KvUse()), "kv-cache-utilization-scorer", "kv_use"),
    **_spelt(Role.SCORER, fixed(Lora()), "lora-affinity-scorer", "lora"),
    **_spelt(Role.SCORER, _PrefixScorer, "prefix-cache-scorer", "prefix"),
    **_spelt(Role.SCORER, _LoadAware, "load-aware-scorer", "load_aware"),
    **_spelt(Role.SCORER, _ActiveRequests, "active-request-scorer", "active_requests"),
    **_spelt(Role.SCORER, _TokenLoad, "token-load-scorer", "token_load"),
    **_spelt(Role.SCORER, _ContextLength, "context-length-aware", "context_length"),
    **_spelt(Role.SCORER, fixed(Session()), "session-affinity-scorer", "session"),
    **_spelt(Role.SCORER, _HeaderLabel, "header-label-affinity-scorer", "header_label"),
    **_spelt(Role.SCORER, fixed(ColdSpread()), "no-hit-lru-scorer", "cold_spread"),
    **_spelt(Role.SCORER, _Topology, "topology-affinity-scorer", "topology"),
    **_spelt(Role.SCORER, _Attribute, "endpoint-attribute-scorer", "attribute"),
    **_spelt(Role.SCORER, _Latency, "latency-scorer", "latency"),
    **_spelt(Role.FILTER, _LabelSelector, "label-selector-filter", "by-label-selector"),
    **_spelt(Role.FILTER, _PrefixAffinity, "prefix-cache-affinity-filter"),
    **_spelt(Role.FILTER, _SloHeadroom, "slo-headroom-tier-filter"),
    **_spelt(Role.FILTER, fixed(SessionPin()), "session-affinity-filter"),
    **_spelt(Role.FILTER, _Utilization, "utilization-filter"),
    **_spelt(Role.FILTER, _TopologyFilter, "topology-affinity-filter"),
    **_spelt(Role.FILTER, _AttributeFilter, "endpoint-attribute-filter"),
    **_spelt(Role.PICKER, picking(Picker.MAX_SCORE), "max-score-picker"),
    **_spelt(Role.PICKER, picking(Picker.RANDOM), "random-picker"),
    **_spelt(Role.PICKER, picking(Picker.WEIGHTED_RANDOM), "weighted-random-picker"),
    **_spelt(Role.PICKER, picking(Picker.ROUND_ROBIN), "round-robin-picker"),
    **_spelt(Role.PICKER, picking(Picker.LEAST_OUTSTANDING), "least-outstanding-picker"),
    **_spelt(Role.HANDLER, fixed(None), "single-profile-handler"),
    **{name: PluginType(Role.PARSER, fixed(name)) for name in ("openai-parser", "passthrough-parser")},
    **_spelt(Role.DETECTOR, _UtilizationDetector, "utilization-detector"),
    **_spelt(Role.DETECTOR, _ConcurrencyDetector, "concurrency-detector"),
    **_named(Role.FAIRNESS, Fairness),
    **_named(Role.ORDERING, Ordering),
    **_spelt(Role.USAGE_LIMIT, _StaticLimit, "static-usage-limit-policy"),
    **_spelt(Role.USAGE_LIMIT, _Holdback, "priority-holdback-policy"),
    **_spelt(Role.USAGE_LIMIT, fixed(SoftReflectiveCeiling()), "soft-reflective-ceiling-policy"),
    **_spelt(Role.PREFIX, _ApproximatePrefix, "approx-prefix-cache-producer"),
    **_spelt(Role.PREFIX, fixed(PrefixSource(precise=True)), "precise-prefix-cache-producer"),
    **_spelt(Role.SOURCE, fixed(None), "metrics-data-source"),
    **_spelt(Role.EXTRACTOR, fixed(None), "core-metrics-extractor"),
}

_DISAGGREGATION = "one pod does prefill and decode here; disaggregated serving is not done"
NOT_DONE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "disagg-profile-handler",
            "pd-profile-handler",
            "decode-filter",
            "prefill-filter",
            "encode-filter",
            "prefill-header-handler",
        ),
        _DISAGGREGATION,
    ),
    "data-parallel-profile-handler": "data-parallel ranks are endpoints of their own here and need no handler",
    "header-profile-handler": "there is one scheduling profile here; a header cannot select another",
    "mm-embeddings-cache-scorer": "caches of encoders are not observed here",
    "precise-prefix-cache-scorer": "deprecated; use precise-prefix-cache-producer with prefix-cache-scorer",
    "program-aware-fairness": "programs are not told apart here; fairness is between tenants",
    "probabilistic-admitter": "shedding by chance is a setting of flow control here",
    "latency-slo-admitter": "no request is refused for a prediction here; use slo-headroom-tier-filter",
    **dict.fromkeys(
        ("anthropic-parser", "vllmhttp-parser", "vllmgrpc-parser", "sglanghttp-parser", "vertexai-parser"),
        "requests are read in OpenAI's form here, or passed through",
    ),
    **dict.fromkeys(
        ("file-discovery", "multicluster-file-discovery"), "discovery is a setting of the pool here"
    ),
}
"""Types that the field has and this picker has not, each with what to know instead."""
