import copy
from collections.abc import Mapping
from typing import Any

import pytest

from services.core.inference import ModelName
from services.core.models.rewrites import Rewrite, RewriteRule, Target
from services.wire.config.inference_api import (
    INFERENCE_RULES,
    BrokenObjectError,
    InferenceModelRewrite,
    InferenceObjective,
    InferencePool,
    read_inference_object,
)

META = {"name": "llama", "namespace": "models"}
POOL: Mapping[str, Any] = {
    "apiVersion": "inference.networking.k8s.io/v1",
    "kind": "InferencePool",
    "metadata": META,
    "spec": {
        "selector": {"matchLabels": {"app": "vllm-llama", "example.org/role": ""}},
        "targetPorts": [{"number": 8000}, {"number": 8001}],
        "endpointPickerRef": {"name": "llama-picker", "port": {"number": 9002}},
    },
}
OBJECTIVE: Mapping[str, Any] = {
    "apiVersion": "llm-d.ai/v1alpha2",
    "kind": "InferenceObjective",
    "metadata": META,
    "spec": {"priority": -1, "poolRef": {"name": "llama"}},
}
REWRITE: Mapping[str, Any] = {
    "apiVersion": "llm-d.ai/v1alpha2",
    "kind": "InferenceModelRewrite",
    "metadata": {**META, "creationTimestamp": "2026-01-02T03:04:05Z"},
    "spec": {
        "poolRef": {"name": "llama"},
        "rules": [
            {
                "matches": [{"model": {"value": "llama"}}],
                "targets": [
                    {"weight": 90, "modelRewrite": "llama-v1"},
                    {"weight": 10, "modelRewrite": "llama-v2"},
                ],
            },
            {"targets": [{"modelRewrite": "llama-v1"}]},
        ],
    },
}


def changed(tree: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of `tree` with `value` at `path`, such as `spec.targetPorts.0.number`."""
    copied: Any = copy.deepcopy(dict(tree))
    at = copied
    *parents, last = path.split(".")
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[int(last) if isinstance(at, list) else last] = value
    return dict(copied)


def broken(tree: object, *, prune: bool = False) -> list[str]:
    with pytest.raises(BrokenObjectError) as refused:
        read_inference_object(tree, prune=prune)
    return [str(finding) for finding in refused.value.findings]


def test_objects_read_with_the_defaults_of_their_schemas() -> None:
    pool = read_inference_object(POOL, prune=False)
    assert isinstance(pool, InferencePool)
    assert pool.spec.app_protocol == "http"
    picker = pool.spec.endpoint_picker_ref
    assert picker is not None
    assert (picker.group, picker.kind, picker.failure_mode) == ("", "Service", "FailClose")
    objective = read_inference_object(OBJECTIVE, prune=False)
    assert isinstance(objective, InferenceObjective)
    assert objective.priority == -1
    assert objective.spec.pool_ref.kind == "InferencePool"
    unset = read_inference_object(changed(OBJECTIVE, "spec", {"poolRef": {"name": "llama"}}), prune=False)
    assert isinstance(unset, InferenceObjective)
    assert unset.priority == 0
    rewrite = read_inference_object(REWRITE, prune=False)
    assert isinstance(rewrite, InferenceModelRewrite)
    assert rewrite.spec.rules[0].matches[0].model.type == "Exact"
    assert rewrite.spec.rules[1].matches == ()
    assert rewrite.metadata.created_at_ms == 1_767_323_045_000


def test_a_rewrite_becomes_a_core_value() -> None:
    rewrite = read_inference_object(REWRITE, prune=False)
    assert isinstance(rewrite, InferenceModelRewrite)
    name = ModelName
    assert rewrite.to_core() == Rewrite(
        "llama",
        "llama",
        1_767_323_045_000,
        (
            RewriteRule((name("llama"),), (Target(name("llama-v1"), 90), Target(name("llama-v2"), 10))),
            RewriteRule((), (Target(name("llama-v1"), 0),)),
        ),
    )


@pytest.mark.parametrize("version", ["llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2"])
def test_both_groups_are_read(version: str) -> None:
    for tree in (OBJECTIVE, REWRITE):
        assert read_inference_object({**tree, "apiVersion": version}, prune=False).api_version == version


def test_a_pool_may_have_no_picker_but_not_an_empty_one() -> None:
    spec = {name: value for name, value in POOL["spec"].items() if name != "endpointPickerRef"}
    pool = read_inference_object({**POOL, "spec": spec}, prune=False)
    assert isinstance(pool, InferencePool)
    assert pool.spec.endpoint_picker_ref is None
    assert broken(changed(POOL, "spec.endpointPickerRef", None)) == [
        "spec.endpointPickerRef: null: must not be null; leave the field out instead"
    ]


def test_what_a_server_adds_is_left_out_and_what_is_read_of_it_is_kept() -> None:
    metadata: dict[str, Any] = {
        **META,
        "uid": "u",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": None,
        "managedFields": [{}],
        "ownerReferences": [],
    }
    pool = read_inference_object({**POOL, "metadata": metadata, "status": {"parents": []}}, prune=False)
    assert (pool.metadata.uid, pool.metadata.resource_version, pool.metadata.generation) == ("u", "7", 3)
    assert pool.metadata.created_at_ms == 0
    assert (
        read_inference_object({**POOL, "metadata": {"name": "a"}}, prune=False).metadata.namespace
        == "default"
    )


def test_an_unknown_field_is_refused_in_a_file_and_pruned_from_a_server() -> None:
    tree = changed(OBJECTIVE, "spec.targetModels", [{"name": "x"}])
    assert broken(tree) == ["spec.targetModels: a list of 1: is not a field of this kind"]
    assert read_inference_object(tree, prune=True) == read_inference_object(OBJECTIVE, prune=False)
    misspelt = changed(POOL, "metadata.namspace", "x")
    assert broken(misspelt) == ["metadata.namspace: 'x': is not a field of this kind"]


NO_PORT = {"name": "picker"}
BREAKS: list[tuple[str, Mapping[str, Any], str, Any, str]] = [
    ("object-name", POOL, "metadata.name", "Llama", "metadata.name: 'Llama'"),
    ("object-name", POOL, "metadata.name", "a" * 254, f"metadata.name: '{'a' * 79}..."),
    ("namespace", POOL, "metadata.namespace", "a.b", "metadata.namespace: 'a.b'"),
    ("timestamp", POOL, "metadata.creationTimestamp", "soon", "metadata.creationTimestamp: 'soon'"),
    (
        "timestamp",
        POOL,
        "metadata.creationTimestamp",
        "2026-01-01T00:00:00",
        "metadata.creationTimestamp: '2026-01-01T00:00:00'",
    ),
    ("group", OBJECTIVE, "spec.poolRef.group", "a_b", "spec.poolRef.group: 'a_b'"),
    ("kind-name", OBJECTIVE, "spec.poolRef.kind", "1st", "spec.poolRef.kind: '1st'"),
    ("label-key", POOL, "spec.selector.matchLabels", {"-a": ""}, "spec.selector.matchLabels.-a.[key]: '-a'"),
    ("label-value", POOL, "spec.selector.matchLabels.app", "a b", "spec.selector.matchLabels.app: 'a b'"),
    ("selector-size", POOL, "spec.selector.matchLabels", {}, "spec.selector.matchLabels: a mapping of 0"),
    (
        "selector-size",
        POOL,
        "spec.selector.matchLabels",
        {f"k{i}": "" for i in range(65)},
        "spec.selector.matchLabels: a mapping of 65",
    ),
    ("port-range", POOL, "spec.targetPorts.1.number", 0, "spec.targetPorts[1].number: 0"),
    ("port-range", POOL, "spec.targetPorts.1.number", 65536, "spec.targetPorts[1].number: 65536"),
    ("target-port-count", POOL, "spec.targetPorts", [], "spec.targetPorts: a list of 0"),
    (
        "target-port-count",
        POOL,
        "spec.targetPorts",
        [{"number": n} for n in range(1, 10)],
        "spec.targetPorts: a list of 9",
    ),
    ("target-ports-unique", POOL, "spec.targetPorts.1.number", 8000, "spec.targetPorts: a list of 2"),
    (
        "picker-port-required",
        POOL,
        "spec.endpointPickerRef",
        NO_PORT,
        "spec.endpointPickerRef: a mapping of 1",
    ),
    ("priority-int32", OBJECTIVE, "spec.priority", 1 << 31, f"spec.priority: {1 << 31}"),
    ("priority-int32", OBJECTIVE, "spec.priority", -(1 << 31) - 1, f"spec.priority: {-(1 << 31) - 1}"),
    (
        "match-value",
        REWRITE,
        "spec.rules.0.matches.0.model.value",
        "",
        "spec.rules[0].matches[0].model.value: ''",
    ),
    (
        "model-name",
        REWRITE,
        "spec.rules.0.targets.0.modelRewrite",
        " llama ",
        "spec.rules[0].targets[0].modelRewrite: ' llama '",
    ),
    (
        "weight-range",
        REWRITE,
        "spec.rules.0.targets.0.weight",
        0,
        "spec.rules[0].targets[0].weight: 0",
    ),
    (
        "weight-range",
        REWRITE,
        "spec.rules.0.targets.0.weight",
        1_000_001,
        "spec.rules[0].targets[0].weight: 1000001",
    ),
    ("targets-not-empty", REWRITE, "spec.rules.1.targets", [], "spec.rules[1].targets: a list of 0"),
]


@pytest.mark.parametrize(("name", "tree", "path", "value", "place"), BREAKS)
def test_a_broken_rule_is_named_with_path_and_value(
    name: str, tree: Mapping[str, Any], path: str, value: Any, place: str
) -> None:
    rule = next(rule for rule in INFERENCE_RULES if rule.name == name)
    assert broken(changed(tree, path, value)) == [f"{place}: {rule}"]
    assert broken(changed(tree, path, value), prune=True) == [f"{place}: {rule}"]


def test_every_rule_has_a_case_that_breaks_it() -> None:
    assert {name for name, *_ in BREAKS} == {rule.name for rule in INFERENCE_RULES}


def test_bounds_themselves_are_kept() -> None:
    kept: list[tuple[Mapping[str, Any], str, Any]] = [
        (POOL, "metadata.name", "a" * 253),
        (POOL, "spec.selector.matchLabels", {f"k{i}": "" for i in range(64)}),
        (POOL, "spec.targetPorts", [{"number": n} for n in (1, 2, 3, 4, 5, 6, 7, 65535)]),
        (POOL, "spec.endpointPickerRef", {"kind": "Picker", "group": "example.org", "name": "p"}),
        (OBJECTIVE, "spec.priority", (1 << 31) - 1),
        (OBJECTIVE, "spec.priority", -(1 << 31)),
        (REWRITE, "spec.rules.0.targets.0.weight", 1),
        (REWRITE, "spec.rules.0.targets.0.weight", 1_000_000),
        (REWRITE, "spec.rules.0", {"matches": []}),
    ]
    for tree, path, value in kept:
        read_inference_object(changed(tree, path, value), prune=False)


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ([], "(document): a list of 0: must be a mapping"),
        ({}, "kind: 'None None': must be one of inference.networking.k8s.io/v1 InferencePool, "),
        ({**POOL, "apiVersion": "v1"}, "kind: 'v1 InferencePool': must be one of "),
        ({**POOL, "kind": 7}, "kind: 'inference.networking.k8s.io/v1 7': must be one of "),
    ],
)
def test_what_is_no_such_object_is_refused(tree: object, line: str) -> None:
    (said,) = broken(tree)
    assert said.startswith(line)


@pytest.mark.parametrize(
    ("tree", "path", "value", "line"),
    [
        (
            POOL,
            "spec.targetPorts.0.number",
            "8000",
            "spec.targetPorts[0].number: '8000': must be a whole number",
        ),
        (POOL, "spec.targetPorts", {}, "spec.targetPorts: a mapping of 0: must be a list"),
        (POOL, "spec.selector", {}, "spec.selector.matchLabels: (missing): is required"),
        (POOL, "metadata", [], "metadata: a list of 0: must be a mapping"),
        (POOL, "spec.selector.matchLabels", [], "spec.selector.matchLabels: a list of 0: must be a mapping"),
        (POOL, "spec.appProtocol", "grpc", "spec.appProtocol: 'grpc': must be 'http' or 'kubernetes.io/h2c'"),
        (OBJECTIVE, "spec", {}, "spec.poolRef: (missing): is required"),
        (REWRITE, "spec.rules.0.matches.0", {}, "spec.rules[0].matches[0].model: (missing): is required"),
        (
            REWRITE,
            "spec.rules.0.matches.0.model.type",
            "Prefix",
            "spec.rules[0].matches[0].model.type: 'Prefix': must be 'Exact'",
        ),
    ],
)
def test_types_and_required_fields_are_checked(
    tree: Mapping[str, Any], path: str, value: Any, line: str
) -> None:
    assert broken(changed(tree, path, value)) == [line]
