from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.wire.config.gateway_import import KEPT, from_gateway_config, to_gateway_config
from services.wire.config.inference_gateway import InferenceGateway
from services.wire.config.inference_gateway_config import InferenceGatewayConfig, read_gateway_config
from services.wire.config.load import load
from services.wire.config.yaml_writer import plain_values, write_yaml
from tests.wire.config.gateways import CONFIG, DROP, GATEWAY, changed


def config(*changes: tuple[str, Any]) -> InferenceGatewayConfig:
    found = read_gateway_config(changed(CONFIG, *changes))
    assert isinstance(found, InferenceGatewayConfig), found
    return found


def gateway(*changes: tuple[str, Any]) -> InferenceGateway:
    return load(write_yaml([changed(GATEWAY, *changes)])).inference_gateways[0].value


def test_a_config_of_two_models_comes_back_as_it_was() -> None:
    original = config()
    written = write_yaml([plain_values(from_gateway_config(original).gateway)])
    documents = load(written)
    assert documents.problems == ()
    back = to_gateway_config(documents.inference_gateways[0].value)
    assert back == original
    rendered = plain_values(original)
    assert rendered["spec"].pop("schedulers")[0].pop("routeTimeout") == "1m30s"
    wanted = changed(CONFIG, ("spec.schedulers", DROP))["spec"]
    assert rendered["spec"] == wanted


def test_fields_mean_the_same_here() -> None:
    spec = from_gateway_config(config()).gateway.spec
    assert (spec.auth.mode, spec.body_routing.default_pool, spec.body_routing.max_body_bytes) == (
        "jwt",
        "qwen",
        1048576,
    )
    (listener,) = spec.listeners
    assert listener.tls is not None
    assert (listener.port, listener.load_balancer, listener.tls.certificate[:11]) == (
        443,
        "internal",
        "arn:aws:acm",
    )
    pool = spec.pools[0]
    assert (pool.name, pool.selector, pool.target_ports, pool.engine) == (
        "qwen",
        {"app": "vllm-qwen"},
        (8080,),
        "vllm",
    )
    assert pool.models[0].adapters == ("sql-lora", "chat-lora")
    assert pool.request_timeout_ms == 90_000
    assert pool.scheduling.weights is not None
    assert dict(pool.scheduling.weights.by_scorer()) == {
        "queue-scorer": 3,
        "prefix-cache-scorer": 5,
        "no-hit-lru-scorer": 1,
    }


def test_what_has_no_equivalent_is_said() -> None:
    assert [
        str(warning).partition(": has no equivalent")[0] for warning in from_gateway_config(config()).warnings
    ] == [
        "spec.bbr.replicas: 3",
        "spec.tls.acmArn: 'arn:aws:acm:us-west-2:123456789012:certificate/0a1b-2c'",
        "spec.observability.metrics.enabled: false",
        "spec.schedulers[1].scheduler: 'epp'",
        "spec.schedulers[1].replicas: 1",
        "spec.schedulers[1].configMapRef: 'plugins'",
    ]
    least = config(
        ("spec.bbr", {"enabled": True}),
        ("spec.tls", {}),
        ("spec.observability.metrics.enabled", True),
        ("spec.schedulers.1.scheduler", DROP),
        ("spec.schedulers.1.replicas", DROP),
        ("spec.schedulers.1.configMapRef", DROP),
    )
    assert [warning.path for warning in from_gateway_config(least).warnings] == ["spec.tls"]


def test_a_config_without_authentication_imports_and_is_refused_until_waived() -> None:
    bare = config(("spec.auth", DROP))
    refused = load(write_yaml([plain_values(from_gateway_config(bare).gateway)]))
    assert [problem.path for problem in refused.errors] == ["spec.auth.mode"]
    waived = from_gateway_config(bare, ["auth-none"]).gateway
    assert load(write_yaml([plain_values(waived)])).errors == ()
    assert to_gateway_config(waived) == bare


def test_annotations_travel_but_for_kubectls_copy() -> None:
    noted = config(
        ("metadata.annotations", {"a": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}"})
    )
    imported = from_gateway_config(noted).gateway
    assert {name for name in imported.metadata.annotations if name != KEPT} == {"a"}
    back = to_gateway_config(imported)
    assert isinstance(back, InferenceGatewayConfig)
    assert back.metadata.annotations == {"a": "b"}


labels = st.text("abc", min_size=1, max_size=3)
schedulers = st.fixed_dictionaries(
    {},
    optional={
        "targetPort": st.integers(1, 65535),
        "appProtocol": st.sampled_from(["http", "kubernetes.io/h2c"]),
        "scheduler": st.sampled_from(["llm-d", "epp"]),
        "engineType": st.sampled_from(["vllm", "sglang"]),
        "replicas": st.integers(1, 9),
        "weights": st.fixed_dictionaries(
            {}, optional={"queue": st.integers(0, 100), "prefix": st.integers(0, 9)}
        ),
        "routeTimeout": st.sampled_from(["1s", "61s", "1h", "1m1ms"]),
    },
)


@given(st.lists(schedulers, min_size=1, max_size=4), st.booleans(), st.booleans(), st.integers(1, 4))
def test_every_config_comes_back_as_it_was(
    each: list[dict[str, Any]], guarded: bool, watched: bool, replicas: int
) -> None:
    """Invariant: import, write, read and render back is the identity on sound configs."""
    tree = changed(
        CONFIG,
        ("spec.bbr", {"enabled": True, "replicas": replicas}),
        (
            "spec.schedulers",
            [
                {
                    "name": f"s{i}",
                    "modelName": f"m{i}",
                    "modelSelector": {"matchLabels": {"app": f"s{i}"}},
                    **fields,
                }
                for i, fields in enumerate(each)
            ],
        ),
        *([] if guarded else [("spec.auth", DROP)]),
        *([] if watched else [("spec.observability", DROP)]),
    )
    original = read_gateway_config(tree)
    assert isinstance(original, InferenceGatewayConfig)
    written = write_yaml([plain_values(from_gateway_config(original, ["auth-none"]).gateway)])
    documents = load(written)
    assert documents.errors == ()
    assert to_gateway_config(documents.inference_gateways[0].value) == original


PLAIN = (
    ("spec.objectives", DROP),
    ("spec.rewrites", DROP),
    ("spec.pools.0.models.0.aliases", DROP),
)


def test_a_plain_gateway_renders() -> None:
    back = to_gateway_config(gateway(*PLAIN))
    assert isinstance(back, InferenceGatewayConfig)
    assert [scheduler.model_name for scheduler in back.spec.schedulers] == ["llama-8b", "qwen-7b"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            ("spec.listeners", DROP),
            "spec.listeners: a list of 0: InferenceGatewayConfig has one internal listener",
        ),
        (
            ("spec.listeners.0.port", 8443),
            "spec.listeners: a list of 1: InferenceGatewayConfig has one internal",
        ),
        (
            ("spec.listeners.0.tls", DROP),
            "spec.listeners: a list of 1: InferenceGatewayConfig has one internal",
        ),
        (("spec.listeners.0.tls.certificate", "file"), "spec.tls.acmArn: 'file': acm-arn: must be"),
        (
            ("spec.objectives", [{"name": "a"}]),
            "spec.objectives: a list of 1: InferenceGatewayConfig has no such",
        ),
        (
            ("spec.rewrites", GATEWAY["spec"]["rewrites"]),
            "spec.rewrites: a list of 1: InferenceGatewayConfig has no",
        ),
        (
            ("spec.namespaceGrants", ["b"]),
            "spec.namespaceGrants: a list of 1: InferenceGatewayConfig has no such",
        ),
        (("spec.picker", {"name": "p"}), "spec.picker: 'p': InferenceGatewayConfig names its own picker"),
        (("spec.pools.0.name", "a.b"), "spec.schedulers[0].name: 'a.b': scheduler-name: must be"),
        (
            ("spec.pools.0.namespace", "b"),
            "spec.pools[0].namespace: 'b': InferenceGatewayConfig selects pods of",
        ),
        (
            ("spec.pools.0.targetPorts", [1, 2]),
            "spec.pools[0].targetPorts: a list of 2: InferenceGatewayConfig takes",
        ),
        (
            ("spec.pools.0.models.0.aliases", ["b"]),
            "spec.pools[0].models: a list of 1: InferenceGatewayConfig takes",
        ),
        (
            ("spec.pools.0.models.0.adapters", [f"a{i}" for i in range(51)]),
            "spec.schedulers[0].loraAdapters: a list of 51: lora-adapter-count: must list",
        ),
        (
            ("spec.pools.0.scheduling", {"strategy": "RANDOM"}),
            "spec.pools[0].scheduling.strategy: 'RANDOM': InferenceGatewayConfig has scorers only",
        ),
        (
            ("spec.pools.0.requestTimeoutMs", 3_600_001),
            "spec.schedulers[0].routeTimeout: '1h1ms': route-timeout:",
        ),
        (("spec.auth.jwt.audiences", []), "spec.auth.jwt.provider.audiences: a list of 0: jwt-narrows:"),
        (
            ("metadata.annotations", {KEPT: "{"}),
            f"metadata.annotations[{KEPT}]: '{{': Invalid JSON",
        ),
        (
            ("metadata.annotations", {KEPT: '{"bbr":{"replicas":0}}'}),
            "spec.bbr.replicas: 0: replicas: must be at least 1",
        ),
    ],
)
def test_what_the_other_system_cannot_say_is_refused(change: tuple[str, Any], line: str) -> None:
    removed = [each for each in PLAIN if not each[0].startswith(change[0])]
    if change[0] == "spec.pools.0.models.0.aliases":
        removed = list(PLAIN[:2])
    found = to_gateway_config(
        gateway(*removed, *([] if change[1] is DROP and change in removed else [change]))
    )
    assert isinstance(found, tuple)
    assert [str(finding)[: len(line)] for finding in found] == [line]
