from pathlib import Path
from typing import Any

import pytest

from services.cli.main import main
from services.wire.config.yaml_reader import read_yaml
from services.wire.config.yaml_writer import write_yaml
from tests.wire.config import example
from tests.wire.config.gateways import GATEWAY, changed


def gateway(folder: Path, *changes: tuple[str, Any]) -> str:
    path = folder / "gateway.yaml"
    path.write_text(write_yaml([changed(GATEWAY, *changes)]))
    return str(path)


def test_a_gateway_is_printed_for_envoy_gateway_and_the_same_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", gateway(tmp_path), "--for", "envoy-gateway"]) == 0
    first = capsys.readouterr()
    assert first.err == ""
    assert {document["kind"] for document in read_yaml(first.out.encode())} == {
        "InferencePool",
        "HTTPRoute",
        "EnvoyExtensionPolicy",
        "SecurityPolicy",
    }
    assert main(["render", gateway(tmp_path), "--for", "envoy-gateway"]) == 0
    assert capsys.readouterr().out == first.out


def test_what_is_not_carried_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = gateway(tmp_path, ("spec.picker", {"failureMode": "FailOpen"}))
    assert main(["render", path, "--for", "envoy-gateway"]) == 0
    assert f"{path}: spec.picker.failureMode: 'FailOpen': warning: is rendered" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "system", "said"),
    [
        (
            ("spec.auth", {"mode": "none"}),
            "envoy-gateway",
            "spec.auth.mode: 'none': serves whoever reaches it",
        ),
        (("metadata.name", "a" * 250), "envoy-gateway", "makes a policy name of more than 253 characters"),
        (
            ("spec.picker", {"name": "p"}),
            "inference-gateway-config",
            "spec.picker: 'p': InferenceGatewayConfig names",
        ),
    ],
)
def test_what_is_refused_is_not_rendered(
    change: tuple[str, Any], system: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", gateway(tmp_path, change), "--for", system]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


def test_files_without_a_gateway_and_unreadable_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fleet.yaml").write_text(example.FLEET)
    assert main(["render", str(tmp_path / "fleet.yaml"), "--for", "envoy-gateway"]) == 1
    assert "hold no InferenceGateway" in capsys.readouterr().err
    assert main(["render", str(tmp_path / "none.yaml"), "--for", "envoy-gateway"]) == 2
