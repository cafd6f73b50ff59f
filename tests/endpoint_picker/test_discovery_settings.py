"""What settings may say about discovery, and each refusal by its rule."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from services.endpoint_picker.discovery_settings import (
    Discovery,
    DnsDiscovery,
    FileDiscovery,
    KubernetesAccess,
    KubernetesDiscovery,
    StaticDiscovery,
)
from services.endpoint_picker.pool_settings import PoolSettings

READ: TypeAdapter[Any] = TypeAdapter(Discovery)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"kind": "static"}, StaticDiscovery()),
        ({"kind": "file", "file": "pods.yaml"}, FileDiscovery(kind="file", file=Path("pods.yaml"))),
        (
            {"kind": "dns", "host": "pods.example", "ports": [8000, 8001]},
            DnsDiscovery(kind="dns", host="pods.example", ports=(8000, 8001)),
        ),
        ({"kind": "kubernetes", "pool": "chat"}, KubernetesDiscovery(kind="kubernetes", pool="chat")),
    ],
)
def test_each_kind_has_its_own_fields(given: dict[str, Any], meant: object) -> None:
    assert READ.validate_python(given) == meant


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"kind": "consul"}, "does not match any of the expected tags"),
        ({"kind": "file"}, "Field required"),
        ({"kind": "dns", "host": "pods.example:80", "ports": [1]}, "endpoint-address"),
        ({"kind": "dns", "host": "pods.example", "ports": []}, "endpoint-ports"),
        ({"kind": "dns", "host": "pods.example", "ports": [1, 1]}, "endpoint-ports"),
        ({"kind": "dns", "host": "pods.example", "ports": [0]}, "greater than or equal to 1"),
        ({"kind": "kubernetes", "pool": "Chat"}, "object-name"),
        ({"kind": "kubernetes", "pool": "chat", "namespace": "a.b"}, "namespace"),
        ({"kind": "static", "file": "x"}, "Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        READ.validate_python(given)


def test_only_a_static_pool_lists_its_endpoints() -> None:
    fields = {"name": "chat", "models": ["m"], "endpoints": [{"id": "a", "address": "10.0.0.1:1"}]}
    assert PoolSettings.model_validate(fields).discovery == StaticDiscovery()
    with pytest.raises(ValidationError, match="endpoints: only with discovery of kind static, not file"):
        PoolSettings.model_validate(fields | {"discovery": {"kind": "file", "file": "pods.yaml"}})


def test_a_lease_has_the_name_that_the_manifests_grant() -> None:
    assert KubernetesAccess().lease_name == "gir-endpoint-picker"
