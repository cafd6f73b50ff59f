"""A namespace of a real API server for one test: its pool, pods in any state, objectives, and who may do what.

There is no kubelet: a pod's status is what the test writes. The custom resources' schemas are the least that the
server needs to store and prune them; the field's own are installed by their owners in a real cluster.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from deploy.stack.kubernetes import KubernetesServer
from deploy.stack.process import wait_until

WAIT_S = 20.0
GROUPS = {
    "inferencepools.inference.networking.k8s.io": ("InferencePool", "v1"),
    "inferenceobjectives.llm-d.ai": ("InferenceObjective", "v1alpha2"),
    "inferencemodelrewrites.llm-d.ai": ("InferenceModelRewrite", "v1alpha2"),
    "inferenceobjectives.inference.networking.x-k8s.io": ("InferenceObjective", "v1alpha2"),
    "inferencemodelrewrites.inference.networking.x-k8s.io": ("InferenceModelRewrite", "v1alpha2"),
}
POOL_API = "inference.networking.k8s.io/v1"
NEW_API = "llm-d.ai/v1alpha2"
OLD_API = "inference.networking.x-k8s.io/v1alpha2"


def resource_definition(name: str) -> dict[str, Any]:
    """A CustomResourceDefinition with a status subresource and an open schema."""
    kind, version = GROUPS[name]
    plural, group = name.split(".", 1)
    open_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": name,
            # The server asks for a note of approval on groups under k8s.io.
            "annotations": {"api-approved.kubernetes.io": "unapproved, test schema"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": open_object, "status": open_object},
                        }
                    },
                }
            ],
        },
    }


def install(server: KubernetesServer, *names: str) -> None:
    """Install resource definitions unless they are there, and wait until they are served."""
    with server.client() as client:
        for name in names or GROUPS:
            answer = client.post(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=resource_definition(name)
            )
            assert answer.status_code in {201, 409}, answer.text
            plural, group = name.split(".", 1)
            path = f"/apis/{group}/{GROUPS[name][1]}/namespaces/default/{plural}"
            assert wait_until(lambda path=path: client.get(path).status_code == 200, WAIT_S), path  # type: ignore[misc]  # A bound default.


def stamp(seconds_ago: float = 0.0) -> str:
    """A time of the API, whole seconds."""
    return (datetime.now(UTC) - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def ready_status(address: str, *, ready: bool = True, started_ago: float = 60) -> dict[str, Any]:
    """The status of a running pod; one that is not ready has not been since its start."""
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(started_ago + 10)},
            {
                "type": "Ready",
                "status": "True" if ready else "False",
                "lastTransitionTime": stamp(0 if ready else started_ago + 10),
            },
        ],
        "containerStatuses": [
            {
                "name": "server",
                "image": "server",
                "imageID": "",
                "ready": ready,
                "restartCount": 0,
                "state": {"running": {"startedAt": stamp(started_ago)}},
            }
        ],
    }


@dataclass
class Namespace:
    """One test's namespace."""

    server: KubernetesServer
    name: str
    client: httpx.Client

    def path(self, api: str, plural: str, name: str = "") -> str:
        root = f"/apis/{api}" if "/" in api else f"/api/{api}"
        return f"{root}/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    def create(self, api: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        metadata = {"name": name, "namespace": self.name, **fields.pop("metadata", {})}
        body = {"apiVersion": api, "kind": kind, "metadata": metadata, **fields}
        return self._said(self.client.post(self.path(api, _plural(kind)), json=body))

    def patch(self, api: str, kind: str, name: str, body: Mapping[str, Any], sub: str = "") -> dict[str, Any]:
        path = self.path(api, _plural(kind), name) + (f"/{sub}" if sub else "")
        headers = {"content-type": "application/merge-patch+json"}
        return self._said(self.client.request("PATCH", path, json=body, headers=headers))

    def get(self, api: str, kind: str, name: str) -> dict[str, Any]:
        return self._said(self.client.get(self.path(api, _plural(kind), name)))

    def delete(self, api: str, kind: str, name: str, grace_s: int = 0) -> None:
        path = self.path(api, _plural(kind), name)
        self._said(self.client.request("DELETE", path, json={"gracePeriodSeconds": grace_s}))

    def pool(self, name: str = "pool", *, ports: tuple[int, ...] = (8000,), **labels: str) -> None:
        """Create an InferencePool, or change the one of that name."""
        spec = {
            "selector": {"matchLabels": labels or {"app": "server"}},
            "targetPorts": [{"number": port} for port in ports],
            "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
        }
        if self.client.get(self.path(POOL_API, "inferencepools", name)).status_code == 200:
            # A merge would keep labels that are gone.
            old = self.get(POOL_API, "InferencePool", name)
            self._said(
                self.client.put(self.path(POOL_API, "inferencepools", name), json={**old, "spec": spec})
            )
        else:
            self.create(POOL_API, "InferencePool", name, spec=spec)

    def pod(
        self, name: str, address: str = "", *, ready: bool = True, labels: Mapping[str, str] | None = None
    ) -> None:
        """Create a pod on a node that does not exist; with an address it runs."""
        metadata = {"labels": labels or {"app": "server"}}
        spec = {"nodeName": "node", "containers": [{"name": "server", "image": "server"}]}
        self.create("v1", "Pod", name, metadata=metadata, spec=spec)
        if address:
            self.pod_status(name, ready_status(address, ready=ready))

    def pod_status(self, name: str, status: Mapping[str, Any]) -> None:
        self.patch("v1", "Pod", name, {"status": status}, "status")

    @staticmethod
    def _said(answer: httpx.Response) -> dict[str, Any]:
        assert answer.is_success, answer.text
        document: dict[str, Any] = answer.json()
        return document


def _plural(kind: str) -> str:
    return f"{kind.lower()}s"


def make_namespace(server: KubernetesServer, name: str, client: httpx.Client) -> Namespace:
    """Create the namespace; right after its start a server may still refuse to."""
    deadline = time.monotonic() + WAIT_S
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    while (answer := client.post("/api/v1/namespaces", json=body)).status_code >= 500:
        assert time.monotonic() < deadline, answer.text
    assert answer.is_success, answer.text
    return Namespace(server, name, client)
