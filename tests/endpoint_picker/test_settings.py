"""A picker's settings: what is read, what is refused, and in which words."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from services.core.locality import Jurisdiction, Locality, Region
from services.core.pods.report import PoolSpec
from services.endpoint_picker.settings import Accept, LeaseKind, PickerSettings
from services.wire.config.settings_source import SettingsError, load_settings

LEAST: dict[str, Any] = {
    "cluster": "eu-west-1",
    "region": "eu-west",
    "jurisdiction": "eu",
    "pools": [{"name": "chat", "models": ["llama"], "endpoints": [{"id": "a", "address": "10.0.0.1:8000"}]}],
}


def load(environment: dict[str, str] | None = None, **changes: Any) -> PickerSettings:
    return load_settings(PickerSettings, yaml.safe_dump(LEAST | changes), "picker.yaml", environment or {})


def refused(**changes: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load(**changes)
    return str(caught.value)


def pool(*endpoints: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"name": "chat", "models": ["llama"], "endpoints": list(endpoints)} | changes


def test_the_least_settings_have_the_documented_defaults() -> None:
    settings = load()
    assert (settings.http.port, settings.grpc.port, settings.metrics.port) == (8000, 9002, 9090)
    assert settings.http.accept is Accept.ROUTER
    assert settings.lease is LeaseKind.STATIC
    assert (settings.scrape.interval_ms, settings.scrape.timeout_ms, settings.scrape.max_bytes) == (
        200,
        1000,
        4 << 20,
    )
    assert settings.place == Locality(Region("eu-west"), Jurisdiction("eu"))
    assert settings.pool_specs == (PoolSpec("chat", ("llama",)),)  # type: ignore[arg-type] # names are plain text here
    assert settings.cluster_id == "eu-west-1"


def test_variables_override_the_file() -> None:
    settings = load({"GIR_HTTP__PORT": "8123", "GIR_HTTP__ACCEPT": "direct", "GIR_CLUSTER": "eu-west-2"})
    assert (settings.http.port, settings.http.accept, settings.cluster) == (8123, Accept.DIRECT, "eu-west-2")


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ({"id": "a", "address": "10.0.0.1:8000"}, "10.0.0.1:8000"),
        ({"id": "a", "address": "fd00::1", "port": 8000}, "[fd00::1]:8000"),
        ({"id": "a", "address": "[fd00::1]", "port": 8000}, "[fd00::1]:8000"),
        ({"id": "a", "address": "[fd00::1]:8000"}, "[fd00::1]:8000"),
    ],
)
def test_f013_addresses_have_one_spelling(endpoint: dict[str, Any], address: str) -> None:
    assert load(pools=[pool(endpoint)]).pools[0].endpoints[0].address == address


@pytest.mark.parametrize(("path", "normal"), [("/metrics ", "/metrics"), ("metrics", "/metrics")])
def test_f011_the_metrics_path_is_normalised(path: str, normal: str) -> None:
    assert load(scrape={"metrics_path": path}).scrape.metrics_path == normal


A = {"id": "a", "address": "10.0.0.1:8000"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unknown": 1}, "unknown: unknown setting"),
        ({"http": {"prot": 1}}, "http.prot: unknown setting"),
        ({"cluster": "EU West"}, "cluster: 'EU West'"),
        ({"jurisdiction": "E"}, "jurisdiction: 'E'"),
        ({"pools": []}, "pools"),
        ({"pools": [pool(A, models=[])]}, "pools.0.models"),
        ({"pools": [pool(A, A)]}, "endpoint id 'a' is declared twice"),
        ({"pools": [pool(A), pool(name="chat", models=["x"])]}, "pool 'chat' is declared twice"),
        ({"pools": [pool(A), pool(name="more")]}, "one name must lead to one pool"),
        ({"pools": [pool(models=[f"m{n}" for n in range(129)])]}, "must not exceed 128"),
        ({"pools": [pool({"id": "a", "address": "fd00::1:8000"})]}, "must stand in brackets"),
        ({"pools": [pool({"id": "a/b", "address": "h:1"})]}, "pools.0.endpoints.0.id"),
        ({"scrape": {"metrics_path": "/met rics"}}, "scrape.metrics_path"),
        ({"lease": "file"}, "lease: file needs lease_file"),
        ({"http": {"host": "0.0.0.0"}}, "needs insecure_bind: true"),
        ({"http": {"accept": "anybody"}}, "http.accept: 'anybody'"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(changes: dict[str, Any], words: str) -> None:
    message = refused(**changes)
    assert message.startswith("picker.yaml: ")
    assert words in message


def test_pools_leave_their_models_to_a_gateways_document() -> None:
    bare = {"name": "chat", "endpoints": [A]}
    settings = load(pools=[bare], gateway="gateway.yaml")
    assert (settings.gateway, settings.pools[0].models) == (Path("gateway.yaml"), ())
    assert "pools.0.models: required unless gateway is given" in refused(pools=[bare])
    assert "pools.0.models: the gateway's document says them" in refused(gateway="gateway.yaml")


def test_listening_beyond_loopback_is_explicit() -> None:
    assert load(http={"host": "0.0.0.0"}, insecure_bind=True).http.host == "0.0.0.0"
