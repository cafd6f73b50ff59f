"""Plugins: every type's parameters make the core value that the field's figures mean."""

from typing import Any

import pytest
from pydantic import ValidationError

from services.core.admission.detectors import ConcurrencyDetector, ConcurrencyMode, UtilizationDetector
from services.core.admission.usage_limits import Domain, PriorityHoldback, StaticLimit
from services.core.scheduling.endpoint_filters import (
    AttributeRange,
    LabelSelector,
    Operator,
    PrefixAffinity,
    Requirement,
    SloHeadroom,
    TopologyAffinity,
    Utilization,
)
from services.core.scheduling.profile import Picker
from services.core.scheduling.scorers.affinity import Prefix
from services.core.scheduling.scorers.fit import Attribute, ContextLength, HeaderLabel, Topology
from services.core.scheduling.scorers.latency import Headroom, Latency
from services.core.scheduling.scorers.load import ActiveRequests, LoadAware, TokenLoad
from services.wire.config.scheduling_plugins import (
    NOT_DONE,
    PLUGINS,
    Parameters,
    Picking,
    PrefixSource,
    Role,
)


def build(name: str, **parameters: Any) -> object:
    return PLUGINS[name].parameters.model_validate(parameters, by_alias=True, by_name=False).build()


CASES: list[tuple[str, dict[str, Any], object]] = [
    ("prefix-cache-scorer", {"lengthWeight": 0.5, "scaleTokens": 4096}, Prefix(0.5, 4096)),
    ("load-aware-scorer", {"threshold": 64}, LoadAware(64)),
    ("active-request-scorer", {"idleThreshold": 2, "maxBusyScore": 0.5}, ActiveRequests(2, 0.5)),
    ("token-load-scorer", {"maxTokens": 9}, TokenLoad(9)),
    ("context-length-aware", {"label": "l"}, ContextLength("l")),
    ("header-label-affinity-scorer", {"header": "X-Tier", "label": "t"}, HeaderLabel("x-tier", "t")),
    ("topology-affinity-scorer", {"here": {"zone": "z"}}, Topology({"zone": "z"})),
    ("endpoint-attribute-scorer", {"attribute": "w", "prefer": "high"}, Attribute("w", prefer_high=True)),
    (
        "endpoint-attribute-scorer",
        {"attribute": "w", "min": 0.0, "max": 1.0},
        Attribute("w", span=(0.0, 1.0)),
    ),
    ("latency-scorer", {"strategy": "most", "peakPrefillThroughput": 10.0}, Latency(Headroom.MOST, 10.0)),
    (
        "label-selector-filter",
        {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]},
        LabelSelector(
            (Requirement("a", Operator.IN, frozenset("1")), Requirement("b", Operator.EXISTS)),
        ),
    ),
    (
        "prefix-cache-affinity-filter",
        {"affinityThreshold": 0.5, "maxTTFTPenaltyMs": 1.0, "peakPrefillThroughput": 2.0},
        PrefixAffinity(0.5, 1.0, 2.0),
    ),
    ("slo-headroom-tier-filter", {"epsilon": 0.1}, SloHeadroom(0.1)),
    ("utilization-filter", {"threshold": 0.9, "headroom": 0.1}, Utilization(0.9, 0.1)),
    (
        "topology-affinity-filter",
        {"here": {"zone": "z"}, "minAffinity": "zone"},
        TopologyAffinity({"zone": "z"}, "zone"),
    ),
    (
        "endpoint-attribute-filter",
        {"attribute": "w", "max": 3.0, "onMissing": "Drop", "fallbackOnEmpty": True},
        AttributeRange("w", high=3.0, keep_missing=False, keep_all_when_empty=True),
    ),
    ("round-robin-picker", {"maxNumOfEndpoints": 2}, Picking(Picker.ROUND_ROBIN, 2)),
    (
        "utilization-detector",
        {"queueDepthThreshold": 7.0, "kvCacheUtilThreshold": 0.5, "headroom": 0.0},
        UtilizationDetector(7.0, 0.5),
    ),
    (
        "concurrency-detector",
        {"mode": "tokens", "maxTokenConcurrency": 9},
        ConcurrencyDetector(ConcurrencyMode.TOKENS, 100, 9),
    ),
    ("static-usage-limit-policy", {"threshold": 0.5}, StaticLimit(0.5)),
    (
        "priority-holdback-policy",
        {"minCeiling": 0.5, "domain": "value"},
        PriorityHoldback(0.5, 1.0, Domain.VALUE),
    ),
    ("approx-prefix-cache-producer", {}, PrefixSource(precise=False, match_tokens=131_072)),
]


@pytest.mark.parametrize(("name", "parameters", "expected"), CASES)
def test_parameters_make_the_core_value(name: str, parameters: dict[str, Any], expected: object) -> None:
    assert build(name, **parameters) == expected


@pytest.mark.parametrize("name", PLUGINS)
def test_every_type_refuses_a_parameter_it_does_not_know(name: str) -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        build(name, warp=1)


NEEDED: dict[str, dict[str, Any]] = {
    "header-label-affinity-scorer": {"header": "h", "label": "l"},
    "topology-affinity-scorer": {"here": {}},
    "topology-affinity-filter": {"here": {}},
    "endpoint-attribute-scorer": {"attribute": "w"},
    "endpoint-attribute-filter": {"attribute": "w"},
    "label-selector-filter": {"matchLabels": {"a": "b"}},
    "by-label-selector": {"matchLabels": {"a": "b"}},
    "priority-holdback-policy": {"minCeiling": 0.5},
    "header_label": {"header": "h", "label": "l"},
    "topology": {"here": {}},
    "attribute": {"attribute": "w"},
}


@pytest.mark.parametrize("name", [name for name, found in PLUGINS.items() if found.role is Role.SCORER])
def test_our_own_spelling_is_the_scorers_name(name: str) -> None:
    scorer: Any = build(name, **NEEDED.get(name, {}))
    assert scorer.name in PLUGINS


@pytest.mark.parametrize(
    ("name", "parameters", "rule"),
    [
        ("endpoint-attribute-scorer", {"attribute": "w", "min": 1.0}, "min and max are given together"),
        ("label-selector-filter", {}, "must require something"),
        ("utilization-detector", {"headroom": 0.1}, "less than or equal to 0"),
        ("concurrency-detector", {"headroom": 0.1}, "less than or equal to 0"),
        ("priority-holdback-policy", {"minCeiling": 2.0}, "needs 0 < minCeiling <= maxCeiling"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(name: str, parameters: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        build(name, **parameters)


def test_nothing_is_both_done_and_not_done() -> None:
    assert not set(PLUGINS) & set(NOT_DONE)
    with pytest.raises(NotImplementedError):
        Parameters().build()
