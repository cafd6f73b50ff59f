"""What is rendered keeps the rules of the schemas it is for: pools by our own reader, the rest as written down here."""

import re
from typing import Any

import pytest

from services.wire.config.inference_api import InferencePool, read_inference_object
from services.wire.config.inference_gateway import InferenceGateway
from services.wire.config.load import load
from services.wire.config.render_envoy_gateway import Rendered, render_envoy_gateway
from services.wire.config.yaml_reader import read_yaml
from services.wire.config.yaml_writer import write_yaml
from tests.wire.config.gateways import DROP, GATEWAY, changed

DURATION = re.compile(r"([0-9]{1,5}(h|m|s|ms)){1,4}\Z")
BODY_MODES = {"Streamed", "Buffered", "BufferedPartial", "FullDuplexStreamed"}


def gateway(*changes: tuple[str, Any]) -> InferenceGateway:
    return load(write_yaml([changed(GATEWAY, *changes)])).inference_gateways[0].value


def rendered(*changes: tuple[str, Any]) -> Rendered:
    found = render_envoy_gateway(gateway(*changes))
    assert isinstance(found, Rendered)
    for document in found.documents:
        KEEPS[document["kind"]](document)
    names = [(d["kind"], d["metadata"]["namespace"], d["metadata"]["name"]) for d in found.documents]
    assert len(set(names)) == len(names)
    return found


def of_kind(found: Rendered, kind: str) -> list[dict[str, Any]]:
    return [document for document in found.documents if document["kind"] == kind]


def keeps_pool(document: dict[str, Any]) -> None:
    assert isinstance(read_inference_object(document, prune=False), InferencePool)


def keeps_route(document: dict[str, Any]) -> None:
    """Gateway API v1: at most 16 rules, 64 matches in each, header values of 1 to 4096 characters."""
    assert document["apiVersion"] == "gateway.networking.k8s.io/v1"
    spec = document["spec"]
    assert set(spec) == {"parentRefs", "rules"}
    assert all(set(ref) == {"group", "kind", "name", "namespace"} for ref in spec["parentRefs"])
    assert 1 <= len(spec["rules"]) <= 16
    for rule in spec["rules"]:
        assert set(rule) <= {"matches", "backendRefs", "timeouts"}
        assert 1 <= len(rule.get("matches", [None])) <= 64
        for match in rule.get("matches", []):
            (header,) = match["headers"]
            assert set(header) == {"type", "name", "value"}
            assert header["type"] == "Exact"
            assert 1 <= len(header["value"]) <= 4096
        (backend,) = rule["backendRefs"]
        assert (backend["group"], backend["kind"]) == ("inference.networking.k8s.io", "InferencePool")
        if "timeouts" in rule:
            assert DURATION.match(rule["timeouts"]["request"])


def keeps_targets(document: dict[str, Any]) -> None:
    assert document["apiVersion"] == "gateway.envoyproxy.io/v1alpha1"
    for ref in document["spec"]["targetRefs"]:
        assert set(ref) == {"group", "kind", "name"}
        assert (ref["group"], ref["kind"]) == ("gateway.networking.k8s.io", "Gateway")


def keeps_extension(document: dict[str, Any]) -> None:
    """Envoy Gateway v1alpha1: the fields of ExtProc, one Service, and no fail-open in full duplex."""
    keeps_targets(document)
    assert set(document["spec"]) == {"targetRefs", "extProc"}
    (ext_proc,) = document["spec"]["extProc"]
    assert set(ext_proc) == {"backendRefs", "messageTimeout", "failOpen", "processingMode", "metadata"}
    (backend,) = ext_proc["backendRefs"]
    assert set(backend) == {"group", "kind", "name", "port"}
    assert (backend["group"], backend["kind"]) == ("", "Service")
    assert DURATION.match(ext_proc["messageTimeout"])
    assert set(ext_proc["processingMode"]) == {"request", "response"}
    modes = {side["body"] for side in ext_proc["processingMode"].values()}
    assert modes <= BODY_MODES
    assert ext_proc["failOpen"] is False or "FullDuplexStreamed" not in modes
    assert set(ext_proc["metadata"]) == {"accessibleNamespaces", "writableNamespaces"}


def keeps_security(document: dict[str, Any]) -> None:
    """Envoy Gateway v1alpha1: JWT providers, and an authorization that names one of them."""
    keeps_targets(document)
    assert set(document["spec"]) <= {"targetRefs", "jwt", "authorization"}
    (provider,) = document["spec"]["jwt"]["providers"]
    assert set(provider) <= {"name", "issuer", "audiences", "remoteJWKS"}
    for rule in document["spec"].get("authorization", {"rules": []})["rules"]:
        assert rule["principal"]["jwt"]["provider"] == provider["name"]


KEEPS = {
    "InferencePool": keeps_pool,
    "HTTPRoute": keeps_route,
    "EnvoyExtensionPolicy": keeps_extension,
    "SecurityPolicy": keeps_security,
}


def test_each_pool_has_its_routes_and_the_gateway_its_policies() -> None:
    found = rendered()
    assert found.warnings == ()
    assert [(d["kind"], d["metadata"]["name"]) for d in found.documents] == [
        ("InferencePool", "llama"),
        ("HTTPRoute", "demo-llama"),
        ("HTTPRoute", "demo-llama-2"),
        ("InferencePool", "qwen"),
        ("HTTPRoute", "demo-qwen"),
        ("EnvoyExtensionPolicy", "demo-picker"),
        ("SecurityPolicy", "demo-jwt"),
    ]
    assert {d["metadata"]["namespace"] for d in found.documents} == {"models"}


def test_a_pool_refers_to_the_picker() -> None:
    found = rendered(
        ("spec.picker", {"name": "epp", "port": 9443, "failureMode": "FailOpen"}),
        ("spec.pools.1.targetPorts", [8000, 8001]),
        ("spec.pools.1.appProtocol", "kubernetes.io/h2c"),
    )
    assert of_kind(found, "InferencePool")[1]["spec"] == {
        "selector": {"matchLabels": {"app": "qwen"}},
        "targetPorts": [{"number": 8000}, {"number": 8001}],
        "appProtocol": "kubernetes.io/h2c",
        "endpointPickerRef": {
            "group": "",
            "kind": "Service",
            "name": "epp",
            "port": {"number": 9443},
            "failureMode": "FailOpen",
        },
    }
    (policy,) = of_kind(found, "EnvoyExtensionPolicy")
    assert policy["spec"]["extProc"][0]["backendRefs"] == [
        {"group": "", "kind": "Service", "name": "epp", "port": 9443}
    ]
    assert [str(warning) for warning in found.warnings] == [
        (
            "spec.picker.failureMode: 'FailOpen': is rendered for the pools only: "
            "ext_proc in mode FullDuplexStreamed fails closed"
        )
    ]


def routed(found: Rendered) -> dict[str, list[str] | None]:
    """Return the base models that each route takes; None for all that nobody else takes."""
    routes = {}
    for route in of_kind(found, "HTTPRoute"):
        (rule,) = route["spec"]["rules"]
        matches = rule.get("matches")
        routes[route["metadata"]["name"]] = matches and [match["headers"][0]["value"] for match in matches]
    return routes


def test_routes_follow_the_base_model_and_the_default_pool_takes_the_rest() -> None:
    assert routed(rendered()) == {"demo-llama": ["llama-8b"], "demo-llama-2": None, "demo-qwen": ["qwen-7b"]}
    assert "demo-llama-2" not in routed(rendered(("spec.bodyRouting", DROP)))


def test_a_pool_of_many_models_has_several_routes() -> None:
    models = [{"name": f"m{i}"} for i in range(130)]
    found = routed(rendered(("spec.pools.1.models", models)))
    sizes = {name: len(names or ()) for name, names in found.items() if name.startswith("demo-qwen")}
    assert sizes == {"demo-qwen": 64, "demo-qwen-2": 64, "demo-qwen-3": 2}


def test_a_target_that_the_picker_gives_as_its_own_base_is_routed() -> None:
    models = [{"name": "qwen-7b", "adapters": ["q-lora"]}, {"name": "qwen-14b"}]
    rule = {"targets": [{"model": "v2"}, {"model": "q-lora"}, {"model": "v2"}]}
    rewrites = [
        {"name": "a", "pool": "qwen", "rules": [rule]},
        {"name": "b", "pool": "llama", "rules": [rule]},
    ]
    changes = [("spec.rewrites", rewrites), ("spec.pools.1.models", models)]
    spec = gateway(*changes).spec
    resolved = spec.model_table().resolve("qwen-14b", "r")
    assert routed(rendered(*changes))["demo-qwen"] == ["qwen-7b", "qwen-14b", "v2"]
    assert routed(rendered(*changes))["demo-llama"] == ["llama-8b"]
    assert getattr(resolved, "base_model", None) in {"qwen-7b", "v2"}


def test_without_body_routing_the_one_pool_takes_everything() -> None:
    one = (("spec.bodyRouting", {"enabled": False}), ("spec.pools", GATEWAY["spec"]["pools"][:1]))
    assert routed(rendered(*one)) == {"demo-llama": None}


def test_a_timeout_is_the_routes() -> None:
    route = of_kind(rendered(("spec.pools.1.requestTimeoutMs", 90_000)), "HTTPRoute")[-1]
    assert route["spec"]["rules"][0]["timeouts"] == {"request": "1m30s"}


def test_authentication_is_rendered_and_claims_deny_by_default() -> None:
    claims = [{"name": "team", "values": ["ml"]}]
    changes = (("spec.auth.jwt.audiences", DROP), ("spec.auth.jwt.requiredClaims", claims))
    (policy,) = of_kind(rendered(*changes), "SecurityPolicy")
    assert policy["spec"]["jwt"]["providers"] == [
        {
            "name": "corp",
            "issuer": "https://issuer.example",
            "remoteJWKS": {"uri": "https://issuer.example/jwks"},
        }
    ]
    assert policy["spec"]["authorization"] == {
        "defaultAction": "Deny",
        "rules": [
            {
                "action": "Allow",
                "principal": {
                    "jwt": {
                        "provider": "corp",
                        "claims": [{"name": "team", "valueType": "String", "values": ["ml"]}],
                    }
                },
            }
        ],
    }
    (policy,) = of_kind(rendered(), "SecurityPolicy")
    assert policy["spec"]["jwt"]["providers"][0]["audiences"] == ["gateway"]
    assert "authorization" not in policy["spec"]
    assert of_kind(rendered(("spec.auth", {"mode": "none"})), "SecurityPolicy") == []


def test_a_pool_elsewhere_is_rendered_there_and_says_what_it_needs() -> None:
    found = rendered(("spec.pools.1.namespace", "other"), ("spec.namespaceGrants", ["other"]))
    assert [d["kind"] for d in found.documents if d["metadata"]["namespace"] == "other"] == [
        "InferencePool",
        "HTTPRoute",
    ]
    assert of_kind(found, "HTTPRoute")[-1]["spec"]["parentRefs"][0]["namespace"] == "models"
    assert [str(warning) for warning in found.warnings] == [
        (
            "spec.pools[1].namespace: 'other': needs a Service gir-endpoint-picker in other, "
            "and a Gateway that allows routes from there"
        )
    ]


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ([("metadata.name", "a" * 247)], ["metadata.name"]),
        ([("spec.pools.1.name", "a" * 249)], ["spec.pools[1].name"]),
        (
            [("spec.pools.0.name", "a" * 247), ("spec.bodyRouting.defaultPool", "a" * 247)],
            ["spec.pools[0].name"],
        ),
    ],
)
def test_names_that_would_be_too_long_are_refused(changes: list[tuple[str, Any]], paths: list[str]) -> None:
    found = render_envoy_gateway(gateway(*changes))
    assert isinstance(found, tuple)
    assert [finding.path for finding in found][-1:] == paths


def test_the_same_gateway_renders_to_the_same_text() -> None:
    text = write_yaml(rendered().documents)
    backwards = changed(GATEWAY, ("spec.pools.0.selector", {"b": "c", "app": "llama"}))
    forwards = changed(GATEWAY, ("spec.pools.0.selector", {"app": "llama", "b": "c"}))
    texts = {write_yaml(rendered(("spec", tree["spec"])).documents) for tree in (backwards, forwards)}
    assert len(texts) == 1
    assert write_yaml(rendered().documents) == text
    assert read_yaml(text.encode()) == list(rendered().documents)
