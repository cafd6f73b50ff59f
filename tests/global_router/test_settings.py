"""Settings of router and projector: what cannot work is refused as a sentence, before anything is built."""

from pathlib import Path

import pytest

from services.core.locality import Jurisdiction, Locality, Region
from services.core.units import seconds
from services.global_router.settings import ProjectorSettings, RouterSettings
from services.wire.config.settings_source import SettingsError, load_settings

ROUTER = """
fleet: f
region: eu-west
jurisdiction: eu
state_dir: state
hand_off_secret: secret
"""
PROJECTOR = """
fleet: f
region: eu-west
kafka: {bootstrap: "a:9092,[::1]:9092"}
redis: {url: "redis://:pw@localhost:6379/0"}
"""


def router(more: str = "") -> RouterSettings:
    return load_settings(RouterSettings, ROUTER + more, "r.yaml", {})


def projector(text: str = PROJECTOR) -> ProjectorSettings:
    return load_settings(ProjectorSettings, text, "p.yaml", {})


def test_defaults_are_the_published_ports_on_loopback_without_a_store() -> None:
    settings = router()
    assert (settings.http.port, settings.grpc.port, settings.metrics.port) == (8080, 7000, 9090)
    assert {settings.http.host, settings.grpc.host, settings.metrics.host} == {"127.0.0.1"}
    assert settings.redis.url == ""
    assert settings.here == Locality(Region("eu-west"), Jurisdiction("eu"))
    assert settings.drain == seconds(30)
    assert settings.state_dir == Path("state")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("redis: {url: nonsense}", "must be a redis://"),
        ("redis: {url: 'redis://host:port'}", "must be a redis://"),
        ("http: {host: 0.0.0.0}", "needs insecure_bind: true"),
        ("http: {body_max_bytes: 1000000000}", "http.body_max_bytes"),
        ("unknown: 1", "unknown"),
    ],
)
def test_a_wrong_router_setting_is_a_sentence(more: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        router(more)


@pytest.mark.parametrize("more", ["", "http: {host: 0.0.0.0}"])
def test_a_password_is_never_in_the_sentence(more: str) -> None:
    with pytest.raises(SettingsError) as caught:
        router(f"redis: {{url: 'redis://:CANARY@host:{'1' if more else 'port'}'}}\n{more}")
    assert "CANARY" not in str(caught.value)


def test_listening_beyond_loopback_is_a_choice() -> None:
    assert router("http: {host: 0.0.0.0}\ninsecure_bind: true").http.host == "0.0.0.0"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"a:9092,[::1]:9092"', "nonsense", "kafka.bootstrap: .*must be host:port"),
        ('"a:9092,[::1]:9092"', '"a:9092,"', "must be host:port"),
        ('"redis://:pw@localhost:6379/0"', '""', "a projector needs a store"),
        ("kafka:", "metrics: {host: 0.0.0.0}\nkafka:", "needs insecure_bind: true"),
    ],
)
def test_a_wrong_projector_setting_is_a_sentence(before: str, after: str, said: str) -> None:
    assert projector().redis.url.startswith("redis://")
    with pytest.raises(SettingsError, match=said):
        projector(PROJECTOR.replace(before, after))
