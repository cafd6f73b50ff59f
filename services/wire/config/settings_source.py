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

    `flags` maps dotted paths (`http.port`) to values; None means not given. Variables whose first word
    is no field of `model` are left alone (several services share an environment); one that begins with
    a field of it and names nothing to set is refused.
    """
    tree = _parse(text, source)
    given, problems = _from_environment(model, environment)
    for path, value in given.items():
        _put(tree, path, value)
    for dotted, flag in (flags or {}).items():
        if flag is not None:
            _put(tree, tuple(dotted.split(".")), flag)
    settings = None
    try:
        settings = model.model_validate(tree)
    except ValidationError as error:
        problems += [_sentence(source, item) for item in error.errors(include_url=False)]
    if settings is None or problems:
        raise SettingsError(tuple(problems))
    return settings


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


def _from_environment(
    model: type[BaseModel], environment: Mapping[str, str]
) -> tuple[dict[tuple[str, ...], str], list[str]]:
    """Return path -> value of the variables that set something, and a sentence for each that only seems to."""
    found: dict[tuple[str, ...], str] = {}
    problems = []
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX):
            continue
        path = tuple(part.lower() for part in variable.removeprefix(PREFIX).split("__"))
        if _names_field(model, path):
            found[path] = value
        elif path[0] in model.model_fields:
            problems.append(f"{variable}: unknown setting; {_offer(model, path[0])}")
    return found, problems


def _offer(model: type[BaseModel], name: str) -> str:
    """Return what a variable that begins with the field `name` could have meant."""
    section = model.model_fields[name].annotation
    if not (isinstance(section, type) and issubclass(section, BaseModel)):
        return f"{PREFIX}{name.upper()} has no parts"
    return f"settings of {name} are {', '.join(section.model_fields)}"


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
    path = ".".join(str(part) for part in item["loc"])
    where = f"{source}: {path}" if path else source
    if item["type"] == "extra_forbidden":
        return f"{where}: unknown setting"
    if item["type"] == "missing":
        return f"{where}: required and not given"
    rule = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error" and isinstance(item["input"], dict):
        # A rule over a whole section says itself what it is about; that it is a mapping says nothing.
        return f"{where}: {rule}"
    return f"{where}: {value_text(item['input'])}: {rule}"
