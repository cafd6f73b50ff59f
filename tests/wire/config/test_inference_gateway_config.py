from typing import Any

import pytest

from services.wire.config.documents import Source
from services.wire.config.inference_gateway_config import (
    SPEC_RULES,
    VALUE_RULES,
    InferenceGatewayConfig,
    duration_ms,
    duration_text,
    read_gateway_config,
    read_gateway_configs,
)
from services.wire.config.yaml_writer import write_yaml
from tests.wire.config.gateways import CONFIG, DROP, changed

FIRST = "spec.schedulers.0"
PROVIDER = "spec.auth.jwt.provider"


def read(tree: Any) -> InferenceGatewayConfig:
    found = read_gateway_config(tree)
    assert isinstance(found, InferenceGatewayConfig), found
    return found


def broken(tree: Any) -> list[str]:
    found = read_gateway_config(tree)
    assert isinstance(found, tuple)
    return [str(finding) for finding in found]


def test_defaults_are_those_of_the_crd() -> None:
    scheduler = {
        "name": "qwen",
        "modelName": "qwen",
        "modelSelector": {"matchLabels": {"app": "qwen"}},
        "weights": {},
    }
    spec = read(changed(CONFIG, ("spec", {"tls": {}, "schedulers": [scheduler]}))).spec
    bbr, (only,) = spec.bbr, spec.schedulers
    assert (bbr.enabled, bbr.replicas, bbr.default_backend, bbr.max_request_body_bytes) == (
        False,
        2,
        None,
        268435456,
    )
    assert (only.target_port, only.scheduler, only.replicas, only.app_protocol) == (8000, "llm-d", 2, "http")
    assert only.weights is not None
    assert dict(only.weights.by_scorer()) == {
        "queue-scorer": 2,
        "kv-cache-utilization-scorer": 2,
        "prefix-cache-scorer": 3,
    }
    assert spec.auth is None


LONG = "a" * 254
BREAKS: list[tuple[str, str, Any, str]] = [
    ("scheduler-count", "spec.schedulers", [], "spec.schedulers: a list of 0"),
    (
        "scheduler-count",
        "spec.schedulers",
        [{**CONFIG["spec"]["schedulers"][0], "name": f"s{i}", "modelName": f"m{i}"} for i in range(101)],
        "spec.schedulers: a list of 101",
    ),
    ("scheduler-name", f"{FIRST}.name", "Qwen", "spec.schedulers[0].name: 'Qwen'"),
    (
        "lora-adapter-count",
        f"{FIRST}.loraAdapters",
        [f"a{i}" for i in range(51)],
        "spec.schedulers[0].loraAdapters: a list of 51",
    ),
    ("replicas", f"{FIRST}.replicas", 0, "spec.schedulers[0].replicas: 0"),
    ("replicas", "spec.bbr.replicas", 0, "spec.bbr.replicas: 0"),
    ("acm-arn", "spec.tls.acmArn", "arn:aws:iam::1:user/x", "spec.tls.acmArn: 'arn:aws:iam::1:user/x'"),
    ("route-timeout", f"{FIRST}.routeTimeout", "1.5s", "spec.schedulers[0].routeTimeout: '1.5s'"),
    ("route-timeout", f"{FIRST}.routeTimeout", "0s", "spec.schedulers[0].routeTimeout: '0s'"),
    ("route-timeout", f"{FIRST}.routeTimeout", "61m", "spec.schedulers[0].routeTimeout: '61m'"),
    ("audience-count", f"{PROVIDER}.audiences", ["a"] * 9, "spec.auth.jwt.provider.audiences: a list of 9"),
    (
        "claim-count",
        f"{PROVIDER}.requiredClaims",
        [{"name": "n", "values": ["v"]}] * 17,
        "spec.auth.jwt.provider.requiredClaims: a list of 17",
    ),
    (
        "claim-name",
        f"{PROVIDER}.requiredClaims.0.name",
        "",
        "spec.auth.jwt.provider.requiredClaims[0].name: ''",
    ),
    (
        "claim-values",
        f"{PROVIDER}.requiredClaims.0.values",
        [],
        "spec.auth.jwt.provider.requiredClaims[0].values: a list of 0",
    ),
    (
        "claim-values",
        f"{PROVIDER}.requiredClaims.0.values",
        ["v"] * 129,
        "spec.auth.jwt.provider.requiredClaims[0].values: a list of 129",
    ),
    ("issuer", f"{PROVIDER}.issuer", "a b", "spec.auth.jwt.provider.issuer: 'a b'"),
    (
        "https-uri",
        f"{PROVIDER}.remoteJWKS.uri",
        "http://a/jwks",
        "spec.auth.jwt.provider.remoteJWKS.uri: 'http://a/jwks'",
    ),
    ("body-bytes-range", "spec.bbr.maxRequestBodyBytes", 0, "spec.bbr.maxRequestBodyBytes: 0"),
    (
        "body-bytes-range",
        "spec.bbr.maxRequestBodyBytes",
        268435457,
        "spec.bbr.maxRequestBodyBytes: 268435457",
    ),
    ("scorer-weight", f"{FIRST}.weights.queue", -1, "spec.schedulers[0].weights.queue: -1"),
    ("model-name", f"{FIRST}.modelName", " qwen", "spec.schedulers[0].modelName: ' qwen'"),
    ("model-name", f"{FIRST}.loraAdapters.1", "", "spec.schedulers[0].loraAdapters[1]: ''"),
    ("port-range", f"{FIRST}.targetPort", 0, "spec.schedulers[0].targetPort: 0"),
    (
        "selector-size",
        f"{FIRST}.modelSelector.matchLabels",
        {},
        "spec.schedulers[0].modelSelector.matchLabels: a mapping of 0",
    ),
    (
        "label-key",
        f"{FIRST}.modelSelector.matchLabels",
        {"a b": "c"},
        "spec.schedulers[0].modelSelector.matchLabels.a b.[key]: 'a b'",
    ),
    (
        "label-value",
        f"{FIRST}.modelSelector.matchLabels.app",
        "-",
        "spec.schedulers[0].modelSelector.matchLabels.app: '-'",
    ),
    ("object-name", "metadata.name", "De_mo", "metadata.name: 'De_mo'"),
    ("namespace", "metadata.namespace", "a.b", "metadata.namespace: 'a.b'"),
    ("scheduler-names-unique", "spec.schedulers.1.name", "qwen", "spec.schedulers[1].name: 'qwen'"),
    (
        "model-names-unique",
        "spec.schedulers.1.modelName",
        "Qwen/Qwen2.5-1.5B-Instruct",
        "spec.schedulers[1].modelName: 'Qwen/Qwen2.5-1.5B-Instruct'",
    ),
    (
        "model-names-unique",
        "spec.schedulers.1.loraAdapters",
        ["sql-lora"],
        "spec.schedulers[1].loraAdapters[0]: 'sql-lora'",
    ),
    ("bbr-required", "spec.bbr.enabled", False, "spec.bbr.enabled: false"),
    ("default-backend", "spec.bbr.defaultBackend", "gone", "spec.bbr.defaultBackend: 'gone'"),
    (
        "jwt-narrows",
        PROVIDER,
        {"name": "corp", "issuer": "i", "remoteJWKS": {"uri": "https://a/j"}},
        "spec.auth.jwt.provider.audiences: a list of 0",
    ),
    (
        "weights-or-config-map",
        f"{FIRST}.configMapRef",
        {"name": "plugins"},
        "spec.schedulers[0].configMapRef: 'plugins'",
    ),
    ("lru-needs-llm-d", f"{FIRST}.scheduler", "epp", "spec.schedulers[0].weights.lru: 1"),
]


@pytest.mark.parametrize(("name", "path", "value", "place"), BREAKS)
def test_a_broken_rule_is_named_with_path_and_value(name: str, path: str, value: Any, place: str) -> None:
    rule = next(rule for rule in (*VALUE_RULES, *SPEC_RULES) if rule.name == name)
    assert broken(changed(CONFIG, (path, value))) == [f"{place}: {rule}"]


def test_every_rule_has_a_case_that_breaks_it() -> None:
    assert {name for name, *_ in BREAKS} == {rule.name for rule in (*VALUE_RULES, *SPEC_RULES)}


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("spec.tls", DROP, "spec.tls: (missing): is required"),
        ("spec.tls", None, "spec.tls: null: must be a mapping"),
        ("spec.rateLimit", {}, "spec.rateLimit: a mapping of 0: is not a field of this kind"),
        (f"{FIRST}.engine", "vllm", "spec.schedulers[0].engine: 'vllm': is not a field of this kind"),
        (f"{FIRST}.weights.foo", 1, "spec.schedulers[0].weights.foo: 1: is not a field of this kind"),
        (f"{FIRST}.scheduler", "x", "spec.schedulers[0].scheduler: 'x': must be 'llm-d' or 'epp'"),
        (f"{FIRST}.engineType", "tgi", "spec.schedulers[0].engineType: 'tgi': must be 'vllm' or 'sglang'"),
        (f"{FIRST}.modelName", DROP, "spec.schedulers[0].modelName: (missing): is required"),
        (
            f"{PROVIDER}.requiredClaims.0.valueType",
            "Int",
            "spec.auth.jwt.provider.requiredClaims[0].valueType: 'Int': must be 'String' or 'StringArray'",
        ),
        ("apiVersion", "v1", "apiVersion: 'v1': must be inference.sagemaker.aws.amazon.com/v1alpha1"),
        ("kind", "Fleet", "kind: 'Fleet': must be InferenceGatewayConfig"),
    ],
)
def test_unknown_missing_and_mistyped_fields_are_refused(path: str, value: Any, line: str) -> None:
    assert broken(changed(CONFIG, (path, value))) == [line]


def test_bounds_themselves_are_kept() -> None:
    for path, value in (
        ("spec.bbr.maxRequestBodyBytes", 268435456),
        (f"{FIRST}.loraAdapters", [f"a{i}" for i in range(50)]),
        (f"{FIRST}.routeTimeout", "1h"),
        (f"{PROVIDER}.audiences", ["a"] * 8),
        (f"{PROVIDER}.audiences", []),
        (f"{PROVIDER}.requiredClaims", DROP),
        (f"{PROVIDER}.requiredClaims.0.values", ["v"] * 128),
    ):
        read(changed(CONFIG, (path, value)))


@pytest.mark.parametrize(
    ("text", "ms", "shortest"),
    [
        ("90s", 90_000, "1m30s"),
        ("1h", 3_600_000, "1h"),
        ("0h5m0s10ms", 300_010, "5m10ms"),
        ("500ms", 500, "500ms"),
        ("0s", 0, "0s"),
    ],
)
def test_durations_are_read_and_written(text: str, ms: int, shortest: str) -> None:
    assert (duration_ms(text), duration_text(ms)) == (ms, shortest)


def test_a_file_is_read_document_by_document() -> None:
    bad = changed(CONFIG, ("spec.bbr.enabled", False))
    found = read_gateway_configs(Source("igc.yaml", write_yaml([CONFIG, bad, {"kind": "x"}]).encode()))
    assert [(place, config.metadata.name) for place, config in found.configs] == [(0, "demo")]
    assert [str(problem) for problem in found.problems] == [
        "igc.yaml#2: spec.bbr.enabled: false: bbr-required: must be true with more than one scheduler",
        "igc.yaml#3: apiVersion: null: must be inference.sagemaker.aws.amazon.com/v1alpha1",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "f: (document): (empty): holds no document"),
        ("a: [", "f: line 2 column 1: (text): not YAML: did not find expected node content"),
        ("- a", "f: (document): a list of 1: must be a mapping"),
    ],
)
def test_what_is_no_document_is_one_problem(text: str, line: str) -> None:
    assert [str(problem) for problem in read_gateway_configs(Source("f", text.encode())).problems] == [line]
