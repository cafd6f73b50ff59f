"""A real API server as tests start it: who may do what, and what outlives a restart."""

from pathlib import Path

import pytest

from deploy.stack import kubernetes
from deploy.stack.errors import PartMissingError
from deploy.stack.kubernetes import KubernetesServer, build_programs, programs_directory
from tests.support.kubernetes import Namespace, install, make_namespace
from tests.support.stack import made_or_skipped


def test_the_shared_server_serves_and_knows_its_administrator(kubernetes_server: KubernetesServer) -> None:
    with kubernetes_server.client() as client, kubernetes_server.client("nobody") as stranger:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review)
        assert answer.json()["status"]["userInfo"]["username"] == "admin"
        assert stranger.get("/api/v1/namespaces").status_code == 401


def test_objects_and_their_kinds_outlive_a_restart(own_kubernetes: KubernetesServer) -> None:
    install(own_kubernetes, "inferencepools.inference.networking.k8s.io")
    with own_kubernetes.client() as client:
        make_namespace(own_kubernetes, "kept", client).pool()
    own_kubernetes.stop()
    own_kubernetes.start()
    with own_kubernetes.client() as client:
        pool = Namespace(own_kubernetes, "kept", client).get(
            "inference.networking.k8s.io/v1", "InferencePool", "pool"
        )
    assert pool["spec"]["targetPorts"] == [{"number": 8000}]


def test_what_is_not_built_is_missing_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kubernetes, "CACHE", tmp_path)
    with pytest.raises(PartMissingError, match=r"not in \.cache/kubernetes \(`make kubernetes` builds it\)"):
        KubernetesServer(tmp_path / "server")


def test_without_go_nothing_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kubernetes, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PartMissingError, match="go is not on PATH"):
        build_programs()


def test_a_build_that_cannot_have_its_modules_says_why_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kubernetes, "CACHE", tmp_path / "cache")
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'go: module lookup disabled' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(PartMissingError, match="go could not build etcd: go: module lookup disabled"):
        build_programs()
    assert [*(tmp_path / "cache").iterdir()] == []


def test_programs_that_are_built_are_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made_or_skipped("kubernetes", kubernetes._built_programs)
    monkeypatch.setenv("PATH", "")
    assert build_programs() == programs_directory()
