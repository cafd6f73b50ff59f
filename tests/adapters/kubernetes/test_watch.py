"""List and watch against a real API server: resuming, forgotten versions, lists by the page, refusals."""

from collections.abc import Mapping
from typing import Any

import pytest

from deploy.stack.kubernetes import KubernetesServer
from services.adapters.kubernetes import api as api_module
from services.adapters.kubernetes.api import ApiStatusError, KubernetesApi, Resource, own_namespace
from services.adapters.kubernetes.watch import ObjectWatch, WatchRules
from services.adapters.ports import UnreachableError
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.core.units import ms, seconds
from tests.adapters.kubernetes.test_discovery import Follow
from tests.support.kubernetes import Namespace, make_namespace
from tests.support.wait import eventually


def watch(api: KubernetesApi, namespace: Namespace, **rules: Any) -> ObjectWatch:
    quick = WatchRules(**({"retry_first": ms(20), "retry_most": ms(100)} | rules))
    return ObjectWatch(api, Resource("", "v1", "pods", namespace.name), SystemClock(), SystemIds(), quick)


def names(objects: tuple[Mapping[str, Any], ...] | None) -> list[str]:
    return [each["metadata"]["name"] for each in objects or ()]


async def test_a_watch_that_ends_is_resumed_and_misses_nothing(
    api: KubernetesApi, namespace: Namespace, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists: list[Resource] = []
    listed = KubernetesApi.list

    async def counted(self: KubernetesApi, resource: Resource) -> Any:
        lists.append(resource)
        return await listed(self, resource)

    monkeypatch.setattr(KubernetesApi, "list", counted)
    watches: list[str] = []
    watched = KubernetesApi.watch

    def noted(self: KubernetesApi, resource: Resource, version: str, span_s: int, silence_s: float) -> Any:
        watches.append(version)
        return watched(self, resource, version, span_s, silence_s)

    monkeypatch.setattr(KubernetesApi, "watch", noted)
    latest = follow(watch(api, namespace, span=seconds(1)))
    await eventually(lambda: latest.last == ())
    await eventually(lambda: len(watches) >= 2)
    namespace.pod("a")
    await eventually(lambda: names(latest.last) == ["a"])
    assert len(lists) == 1


async def test_a_forgotten_version_brings_a_new_list(
    own_kubernetes: KubernetesServer, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first list is one from before the server's restart, which forgot it: with a pod since gone."""
    with own_kubernetes.client() as client:
        namespace = make_namespace(own_kubernetes, "forgotten", client)
        namespace.pod("a")
    own_kubernetes.stop()
    own_kubernetes.start()
    api = KubernetesApi(own_kubernetes.kubeconfig())
    listed = KubernetesApi.list
    stale = [([{"metadata": {"name": "ghost"}}], "1")]

    async def list_once_stale(self: KubernetesApi, resource: Resource) -> Any:
        return stale.pop() if stale else await listed(self, resource)

    monkeypatch.setattr(KubernetesApi, "list", list_once_stale)
    source = watch(api, namespace)
    latest = follow(source)
    await eventually(lambda: [names(each) for each in latest.sets] == [["ghost"], ["a"]])
    assert source.trouble == ""
    await api.close()


async def test_f152_an_event_that_never_came_misleads_until_the_next_list_at_most(
    api: KubernetesApi, namespace: Namespace, follow: Follow
) -> None:
    namespace.pod("a")
    source = watch(api, namespace, span=seconds(1), relist_every=seconds(1))
    latest = follow(source)
    await eventually(lambda: names(latest.last) == ["a"])
    source._mirror._objects["ghost"] = {"metadata": {"name": "ghost"}}
    told = len(latest.sets)
    await eventually(lambda: len(latest.sets) > told)
    assert names(latest.last) == ["a"]


async def test_long_lists_come_by_the_page(
    api: KubernetesApi, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "PAGE", 2)
    for name in "abcde":
        namespace.pod(name)
    items, version = await api.list(Resource("", "v1", "pods", namespace.name))
    assert names(tuple(items)) == [*"abcde"]
    assert version
    only = await api.list(Resource("", "v1", "pods", namespace.name, fields="metadata.name=c"))
    assert names(tuple(only[0])) == ["c"]


async def test_a_refusal_is_said_and_ends_when_it_is_lifted(
    kubernetes_server: KubernetesServer, namespace: Namespace, follow: Follow
) -> None:
    account = namespace.create("v1", "ServiceAccount", "weak")
    path = namespace.path("v1", "serviceaccounts", f"{account['metadata']['name']}/token")
    token = namespace.client.post(path, json={"spec": {}}).json()["status"]["token"]
    weak = KubernetesApi(kubernetes_server.kubeconfig(token))
    try:
        source = watch(weak, namespace)
        latest = follow(source)
        await eventually(lambda: "403" in source.trouble)
        assert latest.sets == []
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
        namespace.create("rbac.authorization.k8s.io/v1", "Role", "reader", rules=rules)
        namespace.create(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "reader",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            subjects=[{"kind": "ServiceAccount", "name": "weak", "namespace": namespace.name}],
        )
        await eventually(lambda: latest.last == ())
        assert source.trouble == ""
    finally:
        await weak.close()


async def test_calls_tell_a_refusal_from_a_server_that_is_away(
    api: KubernetesApi, namespace: Namespace, kubernetes_server: KubernetesServer, tmp_path: Any
) -> None:
    with pytest.raises(ApiStatusError, match="not found") as refused:
        await api.get(namespace.path("v1", "pods", "nobody"))
    assert refused.value.code == 404
    config = tmp_path / "nowhere"
    config.write_text(
        kubernetes_server.kubeconfig().read_text().replace(kubernetes_server.url, "https://127.0.0.1:1")
    )
    nowhere = KubernetesApi(config)
    try:
        with pytest.raises(UnreachableError, match="/api/v1/namespaces"):
            await nowhere.get("/api/v1/namespaces")
    finally:
        await nowhere.close()
    with pytest.raises(UnreachableError, match="no access to Kubernetes"):
        await KubernetesApi(tmp_path / "absent").open()
    with pytest.raises(UnreachableError, match="no access to Kubernetes"):
        await KubernetesApi().open()
    assert own_namespace() == ""
