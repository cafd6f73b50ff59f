"""YAML text -> plain values, by the core schema of YAML 1.2 and within bounds.

Built on the parser's events rather than its constructors: nesting, size and the expansion of
aliases are counted, a key given twice is refused, and `no`, `on`, `1:30` or `2020-01-01` stay
the text they are. Tags are refused. Nothing here knows any kind of document.
"""

import re
from dataclasses import dataclass
from typing import Any

import yaml

MAX_FILE_BYTES = 4 << 20
"""About 20,000 tenants; more is another kind of file."""
MAX_DEPTH = 32
"""The deepest kind nests 8 levels."""
MAX_NODES = 200_000
"""Values after the expansion of aliases: an alias bomb multiplies nodes, not bytes."""
MAX_INT_DIGITS = 20

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INT = re.compile(r"[-+]?[0-9]+\Z")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_INFINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")


class YamlError(ValueError):
    """The text is refused at `line` and `column` (both from 1)."""

    def __init__(self, line: int, column: int, rule: str) -> None:
        super().__init__(f"line {line} column {column}: {rule}")
        self.line = line
        self.column = column
        self.rule = rule


@dataclass(slots=True)
class _Open:
    """A collection being read. `nodes` counts it and all it holds; `key` waits for its value."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    nodes: int = 1
    key: str | None = None


def read_yaml(data: bytes) -> list[Any]:
    """Return the documents of a YAML stream as dict, list, str, int, float, bool and None.

    Raises `YamlError` for text that is not UTF-8, not YAML, or beyond the bounds above.
    """
    if len(data) > MAX_FILE_BYTES:
        raise YamlError(1, 1, f"{len(data)} bytes exceed the bound of {MAX_FILE_BYTES}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line, column = _position(data, error.start)
        raise YamlError(line, column, "not UTF-8") from None
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise YamlError(line, column, f"not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line, column = _position(data, error.position)
        raise YamlError(line, column, f"not YAML: {error.reason}") from None
    return builder.documents


class _Builder:
    """Takes events in order and keeps the finished documents."""

    def __init__(self) -> None:
        self.documents: list[Any] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._refuse_tag(event, event.tag)
            value = _resolve(event) if not event.style and event.implicit[0] else event.value
            self._place(event, value, 1, event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _at(event, f"alias *{event.anchor} names nothing that is complete here")
            self._place(event, *self._anchors[event.anchor], None)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._refuse_tag(event, event.tag)
            self._begin(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            closed = self._open.pop()
            self._nodes -= closed.nodes  # `_place` counts the whole collection once more.
            self._place(event, closed.value, closed.nodes, closed.anchor)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._anchors.clear()

    def _begin(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if len(self._open) == MAX_DEPTH:
            raise _at(event, f"nested deeper than {MAX_DEPTH} levels")
        if self._open and isinstance(self._open[-1].value, dict) and self._open[-1].key is None:
            raise _at(event, "a key must be text")
        self._open.append(_Open({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor))
        self._nodes += 1

    def _place(self, event: yaml.Event, value: Any, nodes: int, anchor: str | None) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise _at(event, f"more than {MAX_NODES} values after the expansion of aliases")
        if anchor is not None:
            self._anchors[anchor] = (value, nodes)
        if not self._open:
            self.documents.append(value)
            return
        parent = self._open[-1]
        parent.nodes += nodes
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is not None:
            parent.value[parent.key] = value
            parent.key = None
        elif not isinstance(value, str):
            raise _at(event, f"key {str(value)[:40]}: a key must be text; write it in quotes")
        elif value in parent.value:
            raise _at(event, f"key {value[:40]!r} is given twice")
        else:
            parent.key = value

    @staticmethod
    def _refuse_tag(event: yaml.Event, tag: str | None) -> None:
        if tag is not None:
            raise _at(event, f"tag {tag[:40]!r}: tags are not used here")


def _resolve(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _LEADING_ZERO.match(text):
        raise _at(event, f"{text[:40]}: a number must not begin with 0; write text in quotes")
    if _INT.match(text):
        if len(text) > MAX_INT_DIGITS:
            raise _at(event, f"a number has at most {MAX_INT_DIGITS} digits")
        return int(text)
    if _FLOAT.match(text) and len(text) <= MAX_INT_DIGITS * 2:
        return float(text)
    special = _INFINITE.match(text)
    return float(text.replace(".", "")) if special else text


def _at(event: yaml.Event, rule: str) -> YamlError:
    mark = event.start_mark
    assert mark is not None, "events of parsed text have marks"  # noqa: S101  # The stub allows hand-made events.
    return YamlError(mark.line + 1, mark.column + 1, rule)


def _position(data: bytes, offset: int) -> tuple[int, int]:
    before = data[:offset]
    return before.count(b"\n") + 1, offset - (before.rfind(b"\n") + 1) + 1
