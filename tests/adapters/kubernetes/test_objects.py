"""Objectives and rewrites from a real API server, in both groups, with the condition that is ours."""

import logging

import pytest

from services.adapters.kubernetes.api import KubernetesApi
from services.adapters.kubernetes.objects import KubernetesObjects
from services.adapters.kubernetes.watch import WatchRules
from services.adapters.ports import PoolObjects
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.core.inference import ModelName
from services.core.models.rewrites import RewriteRule, Target
from services.core.units import ms
from tests.adapters.kubernetes.test_discovery import Follow
from tests.support.kubernetes import NEW_API, OLD_API, Namespace
from tests.support.wait import eventually

QUICK = WatchRules(retry_first=ms(20), retry_most=ms(100))
POOL_REF = {"name": "pool"}
SPLIT = [
    {
        "matches": [{"model": {"value": "llama"}}],
        "targets": [{"weight": 9, "modelRewrite": "llama-v1"}, {"weight": 1, "modelRewrite": "llama-v2"}],
    }
]


def source(api: KubernetesApi, namespace: Namespace, *, writes: bool = False) -> KubernetesObjects:
    return KubernetesObjects(
        api, namespace.name, {"pool": "chat"}, SystemClock(), SystemIds(), QUICK, may_write=lambda: writes
    )


def objective(
    namespace: Namespace, name: str, priority: int, *, api: str = NEW_API, pool: str = "pool"
) -> None:
    spec = {"priority": priority, "poolRef": {"name": pool}}
    namespace.create(api, "InferenceObjective", name, spec=spec)


async def test_both_kinds_of_both_groups_are_read_and_the_newer_group_counts(
    api: KubernetesApi, namespace: Namespace, follow: Follow
) -> None:
    latest = follow(source(api, namespace))
    await eventually(lambda: latest.last == PoolObjects({}, ()))
    objective(namespace, "premium", 1, api=OLD_API)
    objective(namespace, "premium", 10)
    objective(namespace, "batch", -1, api=OLD_API)
    objective(namespace, "foreign", 5, pool="another")
    namespace.create(OLD_API, "InferenceModelRewrite", "canary", spec={"poolRef": POOL_REF, "rules": SPLIT})
    await eventually(lambda: latest.last.rewrites and len(latest.last.objectives["chat"].priorities) == 2)
    assert latest.last.objectives["chat"].priorities == {"premium": 10, "batch": -1}
    rewrite = latest.last.rewrites[0]
    assert (rewrite.name, rewrite.pool) == ("canary", "chat")
    assert rewrite.created_at_ms > 0
    llama, first, second = ModelName("llama"), ModelName("llama-v1"), ModelName("llama-v2")
    assert rewrite.rules == (RewriteRule((llama,), (Target(first, 9), Target(second, 1))),)
    namespace.delete(NEW_API, "InferenceObjective", "premium")
    await eventually(lambda: latest.last.objectives["chat"].priorities["premium"] == 1)


async def test_what_refers_to_our_pool_is_accepted_or_told_its_fault(
    api: KubernetesApi, namespace: Namespace, follow: Follow
) -> None:
    objective(namespace, "good", 1)
    objective(namespace, "foreign", 1, pool="another")
    broken = [{"targets": [{"modelRewrite": "two words"}]}]
    namespace.create(NEW_API, "InferenceModelRewrite", "broken", spec={"poolRef": POOL_REF, "rules": broken})
    latest = follow(source(api, namespace, writes=True))

    def conditions(kind: str, name: str) -> list[dict[str, str]]:
        status = namespace.get(NEW_API, kind, name).get("status") or {}
        found: list[dict[str, str]] = status.get("conditions", [])
        return found

    await eventually(lambda: conditions("InferenceModelRewrite", "broken"))
    [accepted] = conditions("InferenceObjective", "good")
    assert (accepted["type"], accepted["status"], accepted["reason"]) == ("Accepted", "True", "Accepted")
    [refused] = conditions("InferenceModelRewrite", "broken")
    assert (refused["status"], refused["reason"]) == ("False", "Invalid")
    assert "spec.rules[0].targets[0].modelRewrite" in refused["message"]
    assert conditions("InferenceObjective", "foreign") == []
    assert latest.last.rewrites == ()
    before = namespace.get(NEW_API, "InferenceObjective", "good")["metadata"]["resourceVersion"]
    fixed = {"spec": {"rules": [{"targets": [{"modelRewrite": "llama-v2"}]}]}}
    namespace.patch(NEW_API, "InferenceModelRewrite", "broken", fixed)
    await eventually(lambda: conditions("InferenceModelRewrite", "broken")[0]["status"] == "True")
    assert namespace.get(NEW_API, "InferenceObjective", "good")["metadata"]["resourceVersion"] == before


async def test_conditions_of_others_stay_and_a_replica_that_was_not_elected_writes_none(
    api: KubernetesApi, namespace: Namespace, follow: Follow
) -> None:
    objective(namespace, "good", 1)
    theirs = {
        "type": "Audited",
        "status": "True",
        "reason": "Yes",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    namespace.patch(NEW_API, "InferenceObjective", "good", {"status": {"conditions": [theirs]}}, "status")
    silent = follow(source(api, namespace))
    await eventually(lambda: silent.last and silent.last.objectives)
    assert namespace.get(NEW_API, "InferenceObjective", "good")["status"]["conditions"] == [theirs]
    follow(source(api, namespace, writes=True))
    await eventually(
        lambda: len(namespace.get(NEW_API, "InferenceObjective", "good")["status"]["conditions"]) == 2
    )
    assert theirs in namespace.get(NEW_API, "InferenceObjective", "good")["status"]["conditions"]


async def test_a_replica_that_is_elected_later_writes_then(
    api: KubernetesApi, namespace: Namespace, follow: Follow
) -> None:
    objective(namespace, "good", 1)
    elected: list[bool] = []
    late = KubernetesObjects(
        api,
        namespace.name,
        {"pool": "chat"},
        SystemClock(),
        SystemIds(),
        QUICK,
        may_write=lambda: bool(elected),
        review_every=ms(20),
    )
    latest = follow(late)
    await eventually(lambda: latest.last and latest.last.objectives)
    assert "status" not in namespace.get(NEW_API, "InferenceObjective", "good")
    elected.append(True)
    await eventually(lambda: "status" in namespace.get(NEW_API, "InferenceObjective", "good"))


async def test_kinds_that_are_not_installed_declare_nothing_and_trouble_nobody(
    own_kubernetes_api: KubernetesApi, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bare = KubernetesObjects(
        own_kubernetes_api, "default", {"pool": "chat"}, SystemClock(), SystemIds(), QUICK
    )
    latest = follow(bare)
    await eventually(lambda: latest.last == PoolObjects({}, ()))
    assert bare.trouble == ""
    assert caplog.records == []
