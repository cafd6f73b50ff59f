"""Every configuration file shown in the documentation is valid as shown."""

import re
from pathlib import Path

import pytest

from services.cli.main import VERBS
from services.endpoint_picker.gateway_file import served_by
from services.endpoint_picker.settings import PickerSettings
from services.global_router.settings import ProjectorSettings, RouterSettings
from services.wire.config.documents import Source
from services.wire.config.load import load
from services.wire.config.scheduling import read_picker_config
from services.wire.config.settings_source import Settings, load_settings

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
MODELS: dict[str, type[Settings]] = {
    "endpoint-picker.yaml": PickerSettings,
    "projector.yaml": ProjectorSettings,
    "router.yaml": RouterSettings,
}
_BLOCK = re.compile(r"```yaml\n# (\S+)\n(.*?)```", re.DOTALL)
_VERB = re.compile(r"^(?:\.venv/bin/)?gir ([a-z-]+)", re.MULTILINE)


def blocks() -> list[tuple[str, str]]:
    return [(name, text) for page in PAGES for name, text in _BLOCK.findall(page.read_text())]


@pytest.mark.parametrize(("name", "text"), blocks())
def test_a_shown_file_is_valid(name: str, text: str) -> None:
    if name in MODELS:
        load_settings(MODELS[name], text, name, {})
        return
    if "kind: EndpointPickerConfig" in text:
        read_picker_config(text.encode(), name)
        return
    documents = load([Source(name, text.encode())])
    assert [str(problem) for problem in documents.errors] == []


def test_the_shown_gateway_runs_the_shown_picker(tmp_path: Path) -> None:
    shown = dict(_BLOCK.findall((ROOT / "docs/gateway-api.md").read_text()))
    file = tmp_path / "gateway.yaml"
    file.write_text(shown[file.name])
    settings = load_settings(PickerSettings, shown["endpoint-picker.yaml"], "endpoint-picker.yaml", {})
    assert settings.gateway == Path(file.name)
    found = served_by(settings.model_copy(update={"gateway": file}))
    assert [pool.name for pool in found.settings.pools] == list(found.profiles) == ["llama", "qwen"]
    assert found.settings.default_pool == "llama"
    assert [rewrite.name for rewrite in found.rewrites] == ["sql-canary"]


def test_the_documentation_shows_every_kind_of_file() -> None:
    assert {name for name, _ in blocks()} >= {*MODELS, "fleet.yaml", "picker-config.yaml"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_commands_exist(page: Path) -> None:
    assert set(_VERB.findall(page.read_text())) <= set(VERBS)
