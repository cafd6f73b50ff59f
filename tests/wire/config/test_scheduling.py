"""`EndpointPickerConfig`: what a document makes, and every refusal of the field's loader by its own words."""

import json
import re
from typing import Any

import pytest

from services.core.admission.detectors import ConcurrencyDetector
from services.core.admission.settings import Fairness
from services.core.scheduling.profile import ENDPOINTS, Picker
from services.wire.config.scheduling import (
    API_VERSIONS,
    DEFAULT,
    DEFAULT_PARSERS,
    PickerConfig,
    PickerConfigError,
    read_picker_config,
)
from services.wire.config.scheduling_plugins import NOT_DONE, PrefixSource

FILE = "picker.yaml"


def document(**fields: Any) -> bytes:
    return json.dumps({"apiVersion": API_VERSIONS[0], "kind": "EndpointPickerConfig"} | fields).encode()


def read(**fields: Any) -> PickerConfig:
    return read_picker_config(document(**fields), FILE)


def refusal(data: bytes) -> tuple[str, str]:
    """Return the path and the rule of the first problem."""
    with pytest.raises(PickerConfigError) as caught:
        read_picker_config(data, FILE)
    problem = caught.value.problems[0]
    assert problem.file == FILE
    assert str(caught.value).startswith(f"{FILE}: ")
    return problem.path, problem.rule


def plugins(*types: str) -> list[dict[str, Any]]:
    return [{"type": each} for each in types]


def profile(*references: str, name: str = "default") -> dict[str, Any]:
    return {"name": name, "plugins": [{"pluginRef": each} for each in references]}


@pytest.mark.parametrize("version", API_VERSIONS)
def test_an_empty_configuration_is_the_default(version: str) -> None:
    config = read(apiVersion=version)
    assert config == DEFAULT
    assert config.profile is ENDPOINTS
    assert config.parsers == DEFAULT_PARSERS


HERMETIC = """
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: lora-affinity-scorer
- type: metrics-data-source
- type: core-metrics-extractor
- {type: session-affinity-filter, name: pin}
- {type: max-score-picker, name: best, parameters: {maxNumOfEndpoints: 3}}
- {type: approx-prefix-cache-producer, parameters: {autoTune: false, blockSizeTokens: 128, lruCapacityPerServer: 9}}
- type: single-profile-handler
- type: openai-parser
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: pin}
  - {pluginRef: queue-scorer}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2.5}
  - {pluginRef: prefix-cache-scorer}
  - {pluginRef: lora-affinity-scorer, weight: 0}
  - {pluginRef: best}
dataLayer:
  sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]
requestHandler:
  parsers: [{pluginRef: openai-parser}]
"""


def test_a_whole_configuration_is_read() -> None:
    config = read_picker_config(HERMETIC.encode(), FILE)
    assert [(each.name, each.weight) for each in config.profile.scorers] == [
        ("queue", 1.0),
        ("kv_use", 2.5),
        ("prefix", 1.0),
        ("lora", 0.0),
    ]
    assert [each.name for each in config.profile.filters] == ["session"]
    assert (config.profile.picker, config.profile.fallbacks) == (Picker.MAX_SCORE, 2)
    assert config.profile.words is ENDPOINTS.words
    assert config.prefix == PrefixSource(
        precise=False, block_tokens=128, blocks_per_pod=9, match_tokens=131_072
    )
    assert config.parsers == ("openai-parser",)
    assert config.flow_control is None


def test_a_picker_names_one_endpoint_unless_told_otherwise() -> None:
    assert read(plugins=plugins("queue-scorer")).profile.fallbacks == 0


def test_plugins_without_a_profile_are_all_of_the_one_profile() -> None:
    config = read(plugins=plugins("running", "utilization-filter", "random-picker", "openai-parser"))
    assert [each.name for each in config.profile.scorers] == ["running"]
    assert [each.name for each in config.profile.filters] == ["utilization"]
    assert config.profile.picker is Picker.RANDOM
    assert read(plugins=plugins("openai-parser")).profile is ENDPOINTS


def test_prefix_matches_are_looked_up_only_where_something_reads_them() -> None:
    assert read(plugins=plugins("queue")).prefix is None
    assert read(plugins=plugins("prefix")).prefix == PrefixSource(precise=False)
    precise = read(plugins=plugins("prefix", "precise-prefix-cache-producer"))
    assert precise.prefix == PrefixSource(precise=True)


def test_the_deprecated_parser_is_still_read() -> None:
    config = read(plugins=plugins("passthrough-parser"), parser={"pluginRef": "passthrough-parser"})
    assert config.parsers == ("passthrough-parser",)


def test_flow_control_is_read_behind_its_gate() -> None:
    flow = {"maxRequests": 7, "saturationDetector": {"pluginRef": "concurrency-detector"}}
    config = read(
        featureGates=["flowControl", "dataLayer"], plugins=plugins("concurrency-detector"), flowControl=flow
    )
    assert config.flow_control is not None
    assert config.flow_control.max_requests == 7
    assert config.flow_control.saturation_detector == ConcurrencyDetector()
    assert config.flow_control.default_priority_band.fairness is Fairness.MAX_MIN
    opened = read(
        featureGates=["flowControl=true"],
        plugins=plugins("concurrency-detector"),
        saturationDetector={"pluginRef": "concurrency-detector"},
    )
    assert opened.flow_control is not None
    assert opened.flow_control.saturation_detector == ConcurrencyDetector()
    assert read(featureGates=["flowControl=false"]).flow_control is None


DECODE = "failed to decode configuration JSON/YAML"
BAND_REF = {"priorityBands": [{"priority": 1, "fairnessPolicyRef": "nobody"}]}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "plugin is missing a type": ({"plugins": [{"name": "x"}]}, "plugin 'x' is missing a type"),
    "duplicate plugin name": (
        {"plugins": plugins("queue-scorer") * 2},
        "duplicate plugin name 'queue-scorer'",
    ),
    "plugin type is not registered": ({"plugins": plugins("luck")}, "plugin type 'luck' is not registered"),
    "feature gate is unknown or unregistered": (
        {"featureGates": ["warp=true"]},
        "feature gate 'warp' is unknown or unregistered",
    ),
    "not a valid value for the feature gate": (
        {"featureGates": ["flowControl=maybe"]},
        "maybe is not a valid value for the feature gate flowControl",
    ),
    "a gate that is always on": (
        {"featureGates": ["dataLayer=false"]},
        "dataLayer is always on here and cannot be shut",
    ),
    "schedulingProfiles is missing a name": (
        {"schedulingProfiles": [{"plugins": []}]},
        "schedulingProfiles[0] is missing a name",
    ),
    "schedulingProfiles has duplicate name": (
        {"schedulingProfiles": [profile(), profile()]},
        "schedulingProfiles[1] has duplicate name 'default'",
    ),
    "is missing a pluginRef": (
        {"schedulingProfiles": [{"name": "p", "plugins": [{"weight": 1}]}]},
        "schedulingProfiles[p].plugins[0] is missing a 'pluginRef'",
    ),
    "schedulingProfiles references undefined plugin": (
        {"schedulingProfiles": [profile("nobody")]},
        "schedulingProfiles[default] references undefined plugin 'nobody'",
    ),
    "saturation detector plugin reference is empty": (
        {"saturationDetector": {"pluginRef": ""}},
        "saturation detector plugin reference is empty",
    ),
    "saturation detector references undefined plugin": (
        {"saturationDetector": {"pluginRef": "nobody"}},
        "saturation detector references undefined plugin 'nobody'",
    ),
    "plugin is not a fwkfc.SaturationDetector": (
        {"plugins": plugins("queue"), "saturationDetector": {"pluginRef": "queue"}},
        "plugin 'queue' is not a fwkfc.SaturationDetector",
    ),
    "parser references undefined plugin": (
        {"requestHandler": {"parsers": [{"pluginRef": "nobody"}]}},
        "parser references undefined plugin 'nobody'",
    ),
    "the plugin is not a parser plugin": (
        {"plugins": plugins("queue"), "parser": {"pluginRef": "queue"}},
        'the plugin "queue" is not a parser plugin',
    ),
    "multiple profile handlers found": (
        {"plugins": [{"type": "single-profile-handler", "name": name} for name in "ab"]},
        "multiple profile handlers found ('a', 'b'); only one is allowed",
    ),
    "no profile handler configured": (
        {"schedulingProfiles": [profile(name="a"), profile(name="b")]},
        "no profile handler configured",
    ),
    "SingleProfileHandler cannot support multiple scheduling profiles": (
        {
            "plugins": plugins("single-profile-handler"),
            "schedulingProfiles": [profile(name="a"), profile(name="b")],
        },
        "SingleProfileHandler cannot support multiple scheduling profiles",
    ),
    "no parsers configured": ({"requestHandler": {"parsers": []}}, "no parsers configured"),
    "a plugin has a dependency on the unregistered plugin": (
        {"plugins": [{"type": "prefix", "parameters": {"prefixMatchInfoProducerName": "nobody"}}]},
        "a plugin has a dependency on the unregistered plugin nobody",
    ),
    "failed to decode: unknown field": ({"warp": 1}, f"{DECODE}: is not a field of this kind"),
    "failed to decode: unknown kind": ({"kind": "Pod"}, f"{DECODE}: must be 'EndpointPickerConfig'"),
    "failed to decode: unknown version": (
        {"apiVersion": "v1"},
        f"{DECODE}: must be one of {', '.join(API_VERSIONS)}",
    ),
    "failed to decode: unknown parameter": (
        {"plugins": [{"type": "queue-scorer", "parameters": {"speed": 1}}]},
        f"{DECODE}: is not a field of this kind",
    ),
    "required attribute with no producer": (
        {"plugins": plugins("prefix-cache-scorer"), "dataLayer": {"injectDefaults": False}},
        "required attribute PrefixCacheMatchInfo has no producer, and injectDefaults is false",
    ),
    "a parameter beyond its bounds": (
        {"plugins": [{"type": "load-aware-scorer", "parameters": {"threshold": 0}}]},
        "threshold: must be at least 1",
    ),
    "a weight that inverts": (
        {
            "plugins": plugins("queue"),
            "schedulingProfiles": [{"name": "p", "plugins": [{"pluginRef": "queue", "weight": -1.0}]}],
        },
        "weight of scorer 'queue': must be a finite number, not negative",
    ),
    "a weight of no scorer": (
        {
            "plugins": plugins("random-picker"),
            "schedulingProfiles": [{"name": "p", "plugins": [{"pluginRef": "random-picker", "weight": 1.0}]}],
        },
        "only a scorer has a weight",
    ),
    "a parser in a profile": (
        {"plugins": plugins("openai-parser"), "schedulingProfiles": [profile("openai-parser")]},
        "a parser has no place in a profile",
    ),
    "two pickers": ({"plugins": plugins("random-picker", "max-score-picker")}, "a profile has one picker"),
    "two prefix producers": (
        {"plugins": plugins("approx-prefix-cache-producer", "precise-prefix-cache-producer")},
        (
            "prefix matches come from one producer here, not from 'approx-prefix-cache-producer' and "
            "'precise-prefix-cache-producer'"
        ),
    ),
    "a source that is none": (
        {"plugins": plugins("queue"), "dataLayer": {"sources": [{"pluginRef": "queue"}]}},
        "plugin 'queue' is not a data source",
    ),
    "flow control without its gate": ({"flowControl": {}}, "needs the feature gate flowControl"),
    "a detector without the gate": (
        {
            "plugins": plugins("utilization-detector"),
            "saturationDetector": {"pluginRef": "utilization-detector"},
        },
        "needs the feature gate flowControl",
    ),
    "flow control that makes no sense": (
        {"featureGates": ["flowControl"], "flowControl": {"maxRequests": 0}},
        "flowControl.maxRequests must be at least 1",
    ),
    "a policy that nobody declared": (
        {"featureGates": ["flowControl"], "flowControl": BAND_REF},
        "fairness policy references undefined plugin 'nobody'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    fields, rule = REFUSED[case]
    path, found = refusal(document(**fields))
    assert found == rule
    assert path


def test_a_refusal_names_file_path_and_value() -> None:
    with pytest.raises(
        PickerConfigError, match=re.escape("picker.yaml: plugins[0].type: 'luck': plugin type")
    ):
        read(plugins=plugins("luck"))
    assert refusal(document(plugins=[{"type": "queue", "parameters": {"speed": 1}}]))[0] == (
        "plugins[0].parameters.speed"
    )


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"a: [", f"{DECODE}: not YAML"),
        (b"", f"{DECODE}: must hold one document"),
        (document() + b"\n---\n" + document(), f"{DECODE}: must hold one document"),
        (b"- a", f"{DECODE}: must be a"),
    ],
)
def test_failed_to_decode_configuration_json_yaml(data: bytes, rule: str) -> None:
    assert refusal(data)[1].startswith(rule)


@pytest.mark.parametrize("name", NOT_DONE)
def test_what_is_known_and_not_done_is_refused_with_a_sentence(name: str) -> None:
    assert refusal(document(plugins=plugins(name))) == ("plugins[0].type", NOT_DONE[name])
