"""Plain values -> YAML text that reads the same by YAML 1.1 and 1.2, and is the same for the same values.

Apart from the reader because only documents that this program makes are written: keys keep the
order they are given in, and every text that some reader might take for another type is quoted.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from services.wire.config.field_types import Kind

_PLAIN: Final = re.compile(r"[A-Za-z_/]")
_BOOLEANS: Final = frozenset("yYnN")
_WIDTH: Final = 1 << 16
"""Long texts stay on their line: a folded one is hard to read and to compare."""


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: two fields that happen to hold equal lists are not one."""

    def ignore_aliases(self, _: Any) -> bool:
        """Return that nothing is written as an alias."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.match(text) is not None and text not in _BOOLEANS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if plain else '"')


_Dumper.add_representer(str, _text)


def plain_values(document: Kind) -> dict[str, Any]:
    """Return a document as plain values by its file's field names, without what is as it would be anyway."""
    values: dict[str, Any] = document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return values


def write_yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return the documents as one YAML stream, each after a `---`."""
    text: str = yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=_WIDTH, allow_unicode=True
    )
    return text
