import argparse
import json
from pathlib import Path

import pytest

from services.cli import validate
from services.wire.config.yaml_writer import write_yaml
from tests.wire.config import example
from tests.wire.config.gateways import GATEWAY


def gir(*words: str) -> int:
    parser = argparse.ArgumentParser()
    validate.add_parser(parser.add_subparsers())
    return validate.run(parser.parse_args(["validate", *words]))


def write(folder: Path, text: str, name: str = "fleet.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_valid_files_exit_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gir(write(tmp_path, example.EVERYTHING)) == 0
    assert capsys.readouterr().out == "valid: 0 errors, 0 warnings\n"


def test_warnings_are_said_and_exit_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, example.TENANT)
    assert gir(path) == 0
    assert capsys.readouterr().out == (
        f"{path}: spec.models: '(fleet)': warning: no Fleet was given, so grants are not checked\n"
        "valid: 0 errors, 1 warnings\n"
    )


def test_several_files_are_one_configuration(tmp_path: Path) -> None:
    assert gir(write(tmp_path, example.FLEET, "a.yaml"), write(tmp_path, example.TENANT, "b.yaml")) == 0


def test_each_problem_is_a_line_and_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, example.FLEET.replace("jurisdiction: us", "jurisdiction: US"))
    assert gir(path) == 1
    assert capsys.readouterr().out == (
        f"{path}: spec.clusters[1].jurisdiction: 'US': must be a jurisdiction code: "
        "2 to 32 characters of a-z, 0-9 and '-'\n"
        "invalid: 1 errors, 0 warnings\n"
    )


def test_json_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "a: 1\na: 2\n")
    assert gir(path, "--output", "json") == 1
    assert json.loads(capsys.readouterr().out) == {
        "valid": False,
        "problems": [
            {
                "file": path,
                "document": 0,
                "path": "line 2 column 1",
                "value": "'a: 2'",
                "rule": "key 'a' is given twice",
                "severity": "error",
            }
        ],
    }


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_unreadable_files_exit_2(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gir(str(tmp_path / name)) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"gir validate: {tmp_path / name}: ")
    assert "Traceback" not in err


def test_a_file_beyond_the_bound_is_not_read_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert gir(str(path)) == 1
    assert "exceed the bound of 4194304" in capsys.readouterr().out


def test_selectors_are_held_against_the_pods_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = write(tmp_path, write_yaml([GATEWAY]), "gateway.yaml")
    pod = "---\nkind: Pod\nmetadata: {{name: {0}-0, namespace: models, labels: {{app: {0}}}}}\n"
    both = write(tmp_path, pod.format("llama") + pod.format("qwen"), "both.yaml")
    assert gir(gateway) == gir(gateway, "--pods", both) == 0
    one = write(tmp_path, pod.format("llama"), "one.yaml")
    capsys.readouterr()
    assert gir(gateway, "--pods", one) == 1
    assert (
        "spec.pools[1].selector: a mapping of 1: matches no pod of namespace models"
        in capsys.readouterr().out
    )
    assert gir(gateway, "--pods", write(tmp_path, "kind: Node", "no.yaml")) == 2
    assert "must be a Pod with its metadata" in capsys.readouterr().err
