"""Problems of configuration: what `gir validate` says, one line for each.

A problem names file, document, path, value and rule. Values are shortened and stripped of
credentials before they are kept, because problems are printed and logged. How a problem is found
is not here.
"""

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_VALUE_CHARS = 80
"""A value is shown to be recognised, not to be read in full."""

_CREDENTIALS = re.compile(r"://[^/@\s]*@")


class Severity(enum.Enum):
    """An error refuses the documents; a warning is said and lets them pass."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. `document` counts from 0 within the file; `path` is such as `spec.clusters[2].jurisdiction`."""

    file: str
    document: int
    path: str
    value: str
    rule: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        """Return `file: path: value: rule`; documents after a file's first are named `file#2`."""
        file = self.file if self.document == 0 else f"{self.file}#{self.document + 1}"
        mark = "warning: " if self.severity is Severity.WARNING else ""
        return f"{file}: {self.path}: {self.value}: {mark}{self.rule}"


def path_text(location: Sequence[str | int]) -> str:
    """Return a location as text: fields joined by dots, positions in brackets, strange names quoted."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if part.isprintable() and len(part) <= MAX_VALUE_CHARS else value_text(part)
            text += f".{name}" if text else name
    return text or "(document)"


def value_text(value: object) -> str:
    """Return a value as one short line without credentials; of a collection only its size."""
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = _CREDENTIALS.sub("://***@", repr(value[:1024] if isinstance(value, str) else value))
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}..."
