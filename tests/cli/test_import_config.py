from pathlib import Path
from typing import Any

import pytest

from services.cli.main import main
from services.wire.config.load import load
from services.wire.config.yaml_writer import write_yaml
from tests.wire.config.gateways import CONFIG, DROP, changed


def config(folder: Path, *changes: tuple[str, Any]) -> str:
    path = folder / "igc.yaml"
    path.write_text(write_yaml([changed(CONFIG, *changes)]))
    return str(path)


def test_a_config_is_printed_as_a_gateway_and_rendered_back_is_the_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", config(tmp_path)]) == 0
    printed = capsys.readouterr()
    (tmp_path / "gateway.yaml").write_text(printed.out)
    assert load(printed.out).problems == ()
    assert f"{tmp_path}/igc.yaml: spec.bbr.replicas: 3: warning: has no equivalent" in printed.err
    assert main(["render", str(tmp_path / "gateway.yaml"), "--for", "inference-gateway-config"]) == 0
    back = tmp_path / "back.yaml"
    back.write_text(capsys.readouterr().out)
    assert main(["import", str(back)]) == 0
    assert capsys.readouterr().out == printed.out


def test_what_validate_would_refuse_is_said_and_can_be_waived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = config(tmp_path, ("spec.auth", DROP))
    target = tmp_path / "gateway.yaml"
    assert main(["import", bare, "--write", str(target)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{target}: spec.auth.mode: 'none': serves whoever reaches it; if that is meant" in said.err
    assert main(["validate", str(target)]) == 1
    assert main(["import", bare, "--write", str(target), "--waive", "auth-none"]) == 0
    assert main(["validate", str(target)]) == 0


def test_a_broken_rule_is_said_with_file_path_value_and_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, ("spec.bbr.enabled", False))
    assert main(["import", path]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        said.err
        == f"{path}: spec.bbr.enabled: false: bbr-required: must be true with more than one scheduler\n"
    )


def test_files_that_cannot_be_read_or_written_are_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: No such file" in capsys.readouterr().err
    assert main(["import", config(tmp_path), "--write", str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err
