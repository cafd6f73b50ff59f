"""One table of cases for the guardrails and contradictions of a gateway, by way of `load`."""

from typing import Any, get_args

import pytest

from services.wire.config.gateway_checks import PodLabels
from services.wire.config.inference_gateway import GatewayGuardrail
from services.wire.config.load import load
from services.wire.config.problems import Severity
from services.wire.config.yaml_writer import write_yaml
from tests.wire.config.gateways import DROP, GATEWAY, changed

PODS = (
    PodLabels("models", "llama-0", {"app": "llama", "tier": "gpu"}),
    PodLabels("models", "qwen-0", {"app": "qwen", "tier": "gpu"}),
    PodLabels("other", "odd-0", {"app": "odd"}),
)
Change = tuple[str, Any]


def said(*changes: Change, pods: tuple[PodLabels, ...] | None = PODS) -> list[str]:
    return [str(problem) for problem in load(write_yaml([changed(GATEWAY, *changes)]), pods).problems]


def test_a_sound_gateway_has_no_problem() -> None:
    assert said() == said(pods=None) == []


POOL = "spec.pools.1"
GUARDRAILS: list[tuple[GatewayGuardrail, tuple[Change, ...], str]] = [
    (
        "auth-none",
        (("spec.auth", {"mode": "none"}),),
        "spec.auth.mode: 'none': serves whoever reaches it",
    ),
    (
        "jwt-without-audience",
        (("spec.auth.jwt.audiences", []),),
        "spec.auth.jwt.audiences: a list of 0: accepts every token of the issuer, whomever it was made for",
    ),
    (
        "selector-matches-nothing",
        ((f"{POOL}.selector", {"app": "gone"}),),
        "spec.pools[1].selector: a mapping of 1: matches no pod of namespace models",
    ),
    (
        "selector-overlap",
        ((f"{POOL}.selector", {"tier": "gpu"}),),
        "spec.pools[1].selector: a mapping of 1: matches pod llama-0, which pool llama matches too",
    ),
    (
        "cross-namespace-selector",
        ((f"{POOL}.namespace", "other"), (f"{POOL}.selector", {"app": "odd"})),
        "spec.pools[1].namespace: 'other': selects pods outside models, and namespaceGrants does not name it",
    ),
    (
        "model-on-two-pools",
        ((f"{POOL}.models.0.aliases", ["sql-lora"]),),
        "spec.pools[1].models[0].aliases[0]: 'sql-lora': is served by pool llama too, which is asked",
    ),
    (
        "external-load-balancer",
        (("spec.listeners.0.loadBalancer", "external"),),
        "spec.listeners[0].loadBalancer: 'external': is reached from outside the network",
    ),
    (
        "listener-without-tls",
        (("spec.listeners.0.tls", DROP),),
        "spec.listeners[0].tls: null: sends tokens and prompts in plain text",
    ),
]


@pytest.mark.parametrize(("guardrail", "changes", "words"), GUARDRAILS, ids=[name for name, *_ in GUARDRAILS])
def test_a_guardrail_refuses_and_is_waived_by_name(
    guardrail: GatewayGuardrail, changes: tuple[Change, ...], words: str
) -> None:
    assert said(*changes) == [f"(text): {words}; if that is meant, add `waive: [{guardrail}]`"]
    waived = load(write_yaml([changed(GATEWAY, *changes, ("spec.waive", [guardrail]))]), PODS)
    place, _, rule = words.rpartition(": ")
    assert [str(problem) for problem in waived.problems] == [
        f"(text): {place}: warning: {rule} ({guardrail} is waived)"
    ]
    assert [problem.severity for problem in waived.problems] == [Severity.WARNING]
    others = [name for name, *_ in GUARDRAILS if name != guardrail]
    assert load(write_yaml([changed(GATEWAY, *changes, ("spec.waive", others))]), PODS).errors


def test_every_guardrail_has_a_case() -> None:
    assert {name for name, *_ in GUARDRAILS} == set(get_args(GatewayGuardrail))


def test_a_selector_within_another_overlaps_whatever_pods_there_are() -> None:
    for narrow in ({"app": "llama"}, {"app": "llama", "tier": "gpu"}):
        assert said((f"{POOL}.selector", narrow), pods=None) == [
            (
                f"(text): spec.pools[1].selector: a mapping of {len(narrow)}: selects the same pods as pool llama; "
                "if that is meant, add `waive: [selector-overlap]`"
            )
        ]
    elsewhere = ((f"{POOL}.selector", {"app": "llama"}), (f"{POOL}.namespace", "other"))
    assert said(*elsewhere, ("spec.namespaceGrants", ["other"]), pods=None) == []


CONTRADICTIONS: list[tuple[str, tuple[Change, ...], str]] = [
    (
        "pool",
        ((f"{POOL}.name", "llama"),),
        "spec.pools[1].name: 'llama': pool is declared twice; first in spec.pools[0].name",
    ),
    (
        "objective",
        (("spec.objectives", [{"name": "a"}, {"name": "a"}]),),
        "spec.objectives[1].name: 'a': objective is declared twice; first in spec.objectives[0].name",
    ),
    (
        "rewrite",
        (("spec.rewrites", [GATEWAY["spec"]["rewrites"][0]] * 2),),
        "spec.rewrites[1].name: 'canary': rewrite is declared twice; first in spec.rewrites[0].name",
    ),
    (
        "listener-port",
        (("spec.listeners", [{"name": "a", "tls": {}}, {"name": "b", "tls": {}}]),),
        "spec.listeners[1].port: 443: port is declared twice; first in spec.listeners[0].port",
    ),
    (
        "target-port",
        ((f"{POOL}.targetPorts", [8000, 8000]),),
        "spec.pools[1].targetPorts[1]: 8000: port is declared twice; first in spec.pools[1].targetPorts[0]",
    ),
    (
        "model",
        ((f"{POOL}.models.0.adapters", ["qwen-7b"]),),
        (
            "spec.pools[1].models[0].adapters[0]: 'qwen-7b': model, alias or adapter is declared twice; "
            "first in spec.pools[1].models[0].name"
        ),
    ),
    (
        "default-pool",
        (("spec.bodyRouting.defaultPool", "gone"),),
        "spec.bodyRouting.defaultPool: 'gone': is no pool of this gateway",
    ),
    (
        "rewrite-pool",
        (("spec.rewrites.0.pool", "gone"),),
        "spec.rewrites[0].pool: 'gone': is no pool of this gateway",
    ),
    (
        "jwt-missing",
        (("spec.auth", {"mode": "jwt"}),),
        "spec.auth.mode: 'jwt': `jwt` is given exactly when the mode is jwt",
    ),
    (
        "unrouted",
        (("spec.bodyRouting", {"enabled": False}),),
        "spec.bodyRouting.enabled: false: several pools need body routing",
    ),
    (
        "weights-and-config-map",
        ((f"{POOL}.scheduling", {"weights": {}, "configMapRef": {"name": "c"}}),),
        "spec.pools[1].scheduling.configMapRef: 'c': excludes weights",
    ),
    (
        "weights-of-a-baseline",
        ((f"{POOL}.scheduling", {"weights": {}, "strategy": "RANDOM"}),),
        "spec.pools[1].scheduling.strategy: 'RANDOM': takes no weights",
    ),
]


@pytest.mark.parametrize(
    ("changes", "line"), [case[1:] for case in CONTRADICTIONS], ids=[c[0] for c in CONTRADICTIONS]
)
def test_a_contradiction_refuses_and_cannot_be_waived(changes: tuple[Change, ...], line: str) -> None:
    everything = ("spec.waive", list(get_args(GatewayGuardrail)))
    assert said(*changes) == said(*changes, everything) == [f"(text): {line}"]


def test_a_gateway_is_declared_once_per_namespace() -> None:
    elsewhere = changed(GATEWAY, ("metadata.namespace", "other"))
    assert load(write_yaml([GATEWAY, elsewhere])).problems == ()
    (problem,) = load(write_yaml([GATEWAY, GATEWAY])).problems
    assert str(problem) == "(text)#2: metadata.name: 'demo': gateway is declared twice; first in (text)"
