"""The manifests: valid for a real API server, with settings that load, and a Role of exactly what the picker calls."""

import argparse
import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.stack.kubernetes import KubernetesServer
from services.adapters.kubernetes.api import KubernetesApi
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.cli import endpoint_picker
from services.endpoint_picker.assembly_discovery import build_lease, build_sources
from services.endpoint_picker.discovery_settings import KubernetesAccess, KubernetesDiscovery
from services.endpoint_picker.settings import LeaseKind, PickerSettings
from services.wire.config.settings_source import load_settings
from tests.support.kubernetes import Namespace, install, make_namespace
from tests.support.wait import eventually

FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
NAMESPACE = "inference"
RBAC_API = "rbac.authorization.k8s.io/v1"


def documents() -> dict[tuple[str, str], dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for file in FILES:
        for document in yaml.safe_load_all(file.read_text()):
            found[document["kind"], document["metadata"]["name"]] = document
    return found


def one(kind: str) -> dict[str, Any]:
    [document] = [document for (found, _), document in documents().items() if found == kind]
    return document


def test_everything_is_in_the_namespace_that_the_role_is_bound_in() -> None:
    assert {document["metadata"]["namespace"] for document in documents().values()} == {NAMESPACE}
    binding, account = one("RoleBinding"), one("ServiceAccount")["metadata"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert binding["roleRef"]["name"] == one("Role")["metadata"]["name"]
    assert one("Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]


def test_the_picker_is_started_with_settings_that_load() -> None:
    [(name, text)] = one("ConfigMap")["data"].items()
    settings = load_settings(PickerSettings, text, name, {})
    assert settings.lease is LeaseKind.KUBERNETES
    assert settings.pools[0].discovery.kind == "kubernetes"
    role_names = [rule.get("resourceNames") for rule in one("Role")["rules"]]
    assert [settings.kubernetes.lease_name] in role_names
    pod = one("Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] * 1000 > settings.drain_ms
    [container] = pod["containers"]
    parser = argparse.ArgumentParser()
    endpoint_picker.add_parser(parser.add_subparsers())
    arguments = parser.parse_args(container["command"][1:])
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(arguments.config.parent) in mounts
    assert str(settings.hand_off_keys and settings.hand_off_keys.parent) in mounts
    assert pod["initContainers"][0]["command"][-1] == str(settings.hand_off_keys)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "http": settings.http.port,
        "grpc-ext-proc": settings.grpc.port,
        "grpc-health": settings.health and settings.health.port,
        "metrics": settings.metrics.port,
    }
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["grpc"]["port"] == ports["grpc-health"]
    assert {port["targetPort"] for port in one("Service")["spec"]["ports"]} <= ports.keys()
    assert one("Service")["spec"]["selector"] == one("Deployment")["spec"]["selector"]["matchLabels"]


@pytest.fixture
def namespace(kubernetes_server: KubernetesServer) -> Iterator[Namespace]:
    """The namespace of the manifests, with their account, role and binding."""
    install(kubernetes_server)
    with kubernetes_server.client() as client:
        made = make_namespace(kubernetes_server, NAMESPACE, client)
        for kind in ("ServiceAccount", "Role", "RoleBinding"):
            document = one(kind)
            path = made.path(document["apiVersion"], f"{kind.lower()}s")
            assert client.post(path, json=document).is_success
        yield made
        # Without controllers a namespace is never emptied; what the test made is.
        for kind in ("RoleBinding", "Role"):
            made.delete(RBAC_API, kind, one(kind)["metadata"]["name"])
        made.delete("v1", "ServiceAccount", one("ServiceAccount")["metadata"]["name"])


def picker_token(namespace: Namespace) -> str:
    path = namespace.path("v1", "serviceaccounts", f"{one('ServiceAccount')['metadata']['name']}/token")
    token: str = namespace.client.post(path, json={"spec": {}}).json()["status"]["token"]
    return token


@pytest.mark.parametrize("what", documents(), ids=" ".join)
def test_a_real_server_takes_each_manifest_in_every_field(
    kubernetes_server: KubernetesServer, what: tuple[str, str], fresh_name: str
) -> None:
    document = documents()[what]
    document["metadata"]["namespace"] = fresh_name
    with kubernetes_server.client() as client:
        namespace = make_namespace(kubernetes_server, fresh_name, client)
        path = namespace.path(document["apiVersion"], f"{what[0].lower()}s")
        answer = client.post(path, params={"dryRun": "All", "fieldValidation": "Strict"}, json=document)
        assert answer.is_success, answer.text


Call = tuple[str, str, str]
"""Verb, API group, resource with its subresource."""


def granted() -> set[Call]:
    return {
        (verb, group, resource)
        for rule in one("Role")["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def call_of(method: str, path: str, query: Sequence[tuple[str, str]]) -> Call:
    """What a request asks an authorizer for."""
    found = re.fullmatch(
        r"/(?:api/v1|apis/([^/]+)/[^/]+)/namespaces/[^/]+/([^/]+)(?:/([^/]+)(?:/(.+))?)?", path
    )
    assert found, path
    group, plural, name, sub = found.groups()
    verb = {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method)
    if verb is None:
        verb = "get" if name else "watch" if ("watch", "1") in query else "list"
    return verb, group or "", f"{plural}/{sub}" if sub else plural


async def test_the_role_grants_what_the_picker_calls_and_nothing_else(
    kubernetes_server: KubernetesServer, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: set[Call] = set()
    send = KubernetesApi._send

    async def noted(self: KubernetesApi, method: str, path: str, query: Any, *rest: Any) -> Any:
        calls.add(call_of(method, path, query))
        return await send(self, method, path, query, *rest)

    monkeypatch.setattr(KubernetesApi, "_send", noted)
    namespace.pool("chat")
    namespace.pod("a", "10.1.0.1")
    for api in ("llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2"):
        # The newer group's object of a name stands for both; each group needs one of its own.
        reference = {"poolRef": {"name": "chat"}}
        namespace.create(api, "InferenceObjective", api.split(".")[0], spec=reference)
        namespace.create(api, "InferenceModelRewrite", api.split(".")[0], spec={**reference, "rules": []})
    access = KubernetesAccess(
        kubeconfig=kubernetes_server.kubeconfig(picker_token(namespace)), namespace=NAMESPACE
    )
    clock, ids = SystemClock(), SystemIds()
    pools = [("chat", KubernetesDiscovery(kind="kubernetes", pool="chat"))]
    sources = build_sources(pools, access, clock, ids, lambda: True, elects=True)
    assert sources.api is not None
    lease = build_lease(sources.api, access, clock, ids)
    try:
        await lease.acquire()
        sets = sources.endpoints["chat"].sets()
        assert [endpoint.name for endpoint in await anext(sets)] == ["a"]
        await sets.aclose()

        async def read() -> None:
            async for _ in sources.objects[0].sets():
                pass

        reading = asyncio.get_running_loop().create_task(read())
        await eventually(lambda: granted() <= calls, what=f"never asked: {granted() - calls}")
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert sources.endpoints["chat"].trouble == sources.objects[0].trouble == ""
        assert lease.held()
        await lease.release()
        assert calls == granted()
    finally:
        await sources.close()
