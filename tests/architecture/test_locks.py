"""Both lock files hold what `pyproject.toml` asks for, agree with each other, and name no place to fetch it from."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from tests.architecture.tree import ROOT

RUNTIME = ROOT / "requirements.txt"
DEVELOPMENT = ROOT / "requirements-dev.txt"
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^ ;\\]+)", re.MULTILINE)


def _normal(name: str) -> str:
    """The one spelling of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins(path: Path) -> dict[str, Version]:
    return {_normal(pin["name"]): Version(pin["version"]) for pin in PIN.finditer(path.read_text())}


def _unmet(requirements: list[str], path: Path) -> list[str]:
    pins = _pins(path)
    unmet = []
    for text in requirements:
        requirement = Requirement(text)
        pin = pins.get(_normal(requirement.name))
        if pin is None or pin not in requirement.specifier:
            unmet.append(f"{text} (locked: {pin})")
    return unmet


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    runtime = project["dependencies"] + extras["build"]
    assert _unmet(runtime, RUNTIME) == []
    assert _unmet(runtime + extras["dev"], DEVELOPMENT) == []


def test_the_locks_agree() -> None:
    development = _pins(DEVELOPMENT)
    assert {
        name: (pin, development.get(name))
        for name, pin in _pins(RUNTIME).items()
        if development.get(name) != pin
    } == {}


def test_the_locks_name_no_place_to_fetch_from() -> None:
    for path in (RUNTIME, DEVELOPMENT):
        assert re.findall(r"^--\S*(?:url|links).*|https?://\S+", path.read_text(), re.MULTILINE) == []
