"""The command line itself: help, unknown verbs, and that every listed verb loads."""

import importlib
import tomllib
from pathlib import Path

import pytest

from services.cli.main import VERBS, main


def test_no_verb_prints_help_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "VERB" in capsys.readouterr().err


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"gir {project['version']}\n"


def test_an_unknown_verb_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["teleport"])
    assert caught.value.code == 2
    assert "teleport" in capsys.readouterr().err


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(VERBS[verb])
    assert callable(module.run)
    with pytest.raises(SystemExit) as caught:
        main([verb, "--help"])
    assert caught.value.code == 0
    assert verb in capsys.readouterr().out
