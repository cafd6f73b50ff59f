"""The verb as a process: it serves with Kafka away, stops in order, and says what is wrong in sentences."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from services.adapters.auth.key_files import render_hand_off_keys, write_private
from services.cli.exit_codes import DONE, NO, USAGE
from services.cli.main import main
from services.endpoint_picker import __main__ as module
from tests.support.processes import GirProcess

SETTINGS = {
    "cluster": "eu-west-1",
    "region": "eu-west",
    "jurisdiction": "eu",
    "pools": [{"name": "chat", "models": ["m"], "endpoints": [{"id": "a", "address": "127.0.0.1:1"}]}],
    "http": {"port": 0},
    "grpc": {"port": 0},
    "metrics": {"port": 0},
    "kafka": {"bootstrap": "127.0.0.1:1"},
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    keys = tmp_path / "keys"
    write_private(keys, render_hand_off_keys({"k": b"s" * 32}).encode())
    file = tmp_path / "picker.yaml"
    file.write_text(yaml.safe_dump(SETTINGS | {"hand_off_keys": str(keys)}))
    return file


@pytest.fixture
def picker(tmp_path: Path, config: Path) -> Iterator[GirProcess]:
    process = GirProcess(tmp_path, "endpoint-picker", "--config", str(config))
    process.start()
    yield process
    process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_with_kafka_away_and_ends_in_order(picker: GirProcess, number: signal.Signals) -> None:
    port = picker.wait_line(r"cluster eu-west-1: http 127\.0\.0\.1:(\d+) grpc 127\.0\.0\.1:\d+ metrics ")[1]
    picker.wait_url(f"http://127.0.0.1:{port}/healthz")
    os.kill(picker.pid, number)
    assert picker.wait_ended() == DONE
    assert "Traceback" not in picker.stderr()


def run(*words: str) -> int:
    return main(["endpoint-picker", *words])


def test_a_bus_address_is_required(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(yaml.safe_dump(SETTINGS | {"kafka": {}}))
    assert run("--config", str(config)) == USAGE
    assert (
        capsys.readouterr().err
        == "gir endpoint-picker: kafka.bootstrap: required by `http.accept: router`: reports go over the bus\n"
    )


def test_a_port_in_use_is_one_sentence(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run("--config", str(config), "--http-port", str(port)) == NO
        assert run("--config", str(config), "--grpc-port", str(port)) == NO
    first, second = capsys.readouterr().err.splitlines()
    assert str(port) in first
    assert str(port) in second


def test_wrong_settings_are_each_named(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(yaml.safe_dump(SETTINGS | {"colour": "red", "region": "EU WEST"}))
    assert run("--config", str(config)) == USAGE
    said = capsys.readouterr().err
    assert "colour: unknown setting" in said
    assert "region: 'EU WEST'" in said


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--config", str(tmp_path / "none.yaml")) == USAGE
    assert "cannot read" in capsys.readouterr().err


def test_keys_that_others_can_read_are_refused(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "keys").chmod(0o644)
    assert run("--config", str(config)) == USAGE
    assert "chmod 600" in capsys.readouterr().err


def test_the_module_is_the_same_service(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["endpoint_picker"])
    assert module.main() == USAGE
    monkeypatch.setattr("sys.argv", ["endpoint_picker", str(config)])
    monkeypatch.setenv("GIR_HTTP__PORT", "many")
    assert module.main() == USAGE
    monkeypatch.delenv("GIR_HTTP__PORT")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("GIR_HTTP__PORT", str(taken.getsockname()[1]))
        assert module.main() == NO
    assert "usage:" in capsys.readouterr().err
