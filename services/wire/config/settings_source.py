"""Settings of one process: a YAML document, then `GIR_SECTION__KEY` variables, then flags.

Generic over a frozen pydantic model, so that every service parses alike: unknown keys are
refused, and each problem is named with its source, path, value and rule. Environment and file
text come in as arguments; nothing here reads either.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from services.wire.config.problems import value_text

PREFIX = "GIR_"
SETTINGS_MAX_BYTES = 1 << 20
"""A settings file is a page or two; a megabyte is a mistake or an attack."""


class Settings(BaseModel):
    """Base of every settings model: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


S = TypeVar("S", bound=Settings)


class SettingsError(Exception):
    """One or more settings are wrong; `problems` has a sentence for each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load_settings(
    model: type[S],
    text: str,
    source: str,
    environment: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
) -> S:
    """Return validated settings, later sources winning; raises `SettingsError`.

    `flags` maps dotted paths (`http.port`) to values; None means not given. Variables that name no
    field of `model` are left alone (several services share an environment).
    """
    tree = _parse(text, source)
    for path, value in _from_environment(model, environment).items():
        _put(tree, path, value)
    for dotted, flag in (flags or {}).items():
        if flag is not None:
            _put(tree, tuple(dotted.split(".")), flag)
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(
            tuple(_sentence(source, item) for item in error.errors(include_url=False))
        ) from None


def _parse(text: str, source: str) -> dict[str, Any]:
    if len(text) > SETTINGS_MAX_BYTES:
        raise SettingsError((f"{source}: larger than {SETTINGS_MAX_BYTES} bytes",))
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise SettingsError(
            (f"{source}{where}: not valid YAML: {getattr(error, 'problem', error)}",)
        ) from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingsError((f"{source}: must be a mapping of settings",))
    return tree


def _from_environment(model: type[BaseModel], environment: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], str] = {}
    for variable, value in sorted(environment.items()):
        if variable.startswith(PREFIX):
            path = tuple(part.lower() for part in variable.removeprefix(PREFIX).split("__"))
            if _names_field(model, path):
                found[path] = value
    return found


def _names_field(model: type[BaseModel], path: tuple[str, ...]) -> bool:
    field = model.model_fields.get(path[0])
    if field is None:
        return False
    nested = field.annotation
    if len(path) == 1:
        return not (isinstance(nested, type) and issubclass(nested, BaseModel))
    return isinstance(nested, type) and issubclass(nested, BaseModel) and _names_field(nested, path[1:])


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    here = tree
    for part in path[:-1]:
        inner = here.get(part)
        if not isinstance(inner, dict):
            inner = here[part] = {}
        here = inner
    here[path[-1]] = value


def _sentence(source: str, item: Any) -> str:
    path = ".".join(str(part) for part in item["loc"]) or "(whole document)"
    if item["type"] == "extra_forbidden":
        return f"{source}: {path}: unknown setting"
    if item["type"] == "missing":
        return f"{source}: {path}: required and not given"
    return f"{source}: {path}: {value_text(item['input'])}: {item['msg']}"
