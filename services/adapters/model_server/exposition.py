r"""Prometheus text exposition (format 0.0.4): the wanted samples of a page, and nothing else.

A vLLM page holds over 1,500 lines of which a picker needs about thirty, five times a second and pod, so
the page is scanned once for the wanted names and only their lines are parsed. Which names matter and what
they mean is an engine's business (`vllm`); this module knows syntax only.
Source: prometheus.io/docs/instrumenting/exposition_formats, section "Text format details".
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

MAX_KNOWN_LABEL_SETS = 4096
"""Label blocks repeat on every scrape of every pod, so each is decoded once. LoRA label sets come and go:
past this number the table is emptied instead of growing for ever."""
MAX_KNOWN_BLOCK_BYTES = 4096
"""A longer label block is decoded each time: kept, a page of its own length per scrape would fill the memory."""
MAX_LABELS = 128
"""Labels of one series; engines use a dozen. A series with more is skipped: each label costs a step."""

# Possessive quantifiers keep a hostile line linear: a part that matched is never tried again shorter.
_REST = re.compile(
    rb'[ \t]*+(?:\{((?:[^"}\n]++|"(?:[^"\\\n]++|\\[^\n])*+")*+)\})?+'  # labels; braces in quotes are text
    rb"[ \t]*+([+-]?(?:[0-9.]++(?:[eE][+-]?[0-9]++)?|[Ii]nf|[Nn]a[Nn]))"  # value
    rb"(?:[ \t]++-?[0-9]++)?[ \t]*+(?:#[^\n]*+)?\r?(?:\n|\Z)"  # timestamp, exemplar, end of line
)
_LABEL = re.compile(rb'[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"[ \t]*+(,|\Z)')
_ESCAPE = re.compile(r"\\([\\n\"])")
_UNESCAPED = {"\\": "\\", "n": "\n", '"': '"'}
_NAME_GOES_ON = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:")
_NEWLINE = 0x0A

Labels = Mapping[str, str]
_NO_LABELS: Labels = {}


class Sample(NamedTuple):
    """One sample: its full name, decoded labels and value (which may be NaN or infinite)."""

    name: str
    labels: Labels
    value: float


class Selection:
    """A fixed set of sample names to read from pages; they all begin with `prefix`, such as `vllm:`.

    Names are exact: a histogram is wanted by `..._bucket`. A line that breaks the format is skipped and
    leaves the others alone. Order of lines is kept in what `samples` yields and means nothing.
    """

    def __init__(self, prefix: str, names: Iterable[str]) -> None:
        wanted = sorted(set(names), key=len, reverse=True)  # the longest alternative first
        # The literal prefix outside the group is what the regular expression engine searches by.
        rests = "|".join(re.escape(name.removeprefix(prefix)) for name in wanted)
        self._scan = re.compile(f"{re.escape(prefix)}(?:{rests})".encode())
        self._names = {name.encode(): name for name in wanted}
        self._known_labels: dict[bytes, Labels] = {}

    def samples(self, page: bytes) -> Iterator[Sample]:
        """Yield every wanted sample of `page`."""
        for hit in self._scan.finditer(page):
            start, end = hit.span()
            if start and page[start - 1] != _NEWLINE and not _opens_line(page, start):
                continue
            if end < len(page) and page[end] in _NAME_GOES_ON:
                continue
            sample = self._seen(hit[0], page, end) or self._parsed(hit[0], page, end)
            if sample is not None:
                yield sample

    def _seen(self, name: bytes, page: bytes, end: int) -> Sample | None:
        """Read the usual line, one whose label block was met before, in a fraction of the time.

        A block that was once matched whole ends at its brace wherever it appears again, so the text up to
        the last brace of the line needs no second look. Anything unusual is left to `_parsed`.
        """
        line_end = page.find(b"\n", end)
        block, brace, value = page[end : line_end if line_end >= 0 else len(page)].rpartition(b"}")
        labels = self._known_labels.get(block)
        if labels is None or not brace or b"_" in value:  # float() would take the underscore of `1_0`
            return None
        try:
            return Sample(self._names[name], labels, float(value))
        except ValueError:
            return None

    def _parsed(self, name: bytes, page: bytes, end: int) -> Sample | None:
        rest = _REST.match(page, end)
        if rest is None or (rest[1] is None and rest.start(2) == end):
            return None
        labels = _NO_LABELS if rest[1] is None else self._labels(page[end : rest.end(1)], rest[1])
        if labels is None:
            return None
        try:
            return Sample(self._names[name], labels, float(rest[2]))
        except ValueError:
            return None

    def _labels(self, key: bytes, block: bytes) -> Labels | None:
        labels = self._known_labels.get(key)
        if labels is None:
            labels = _decode_labels(block)
            if labels is not None and len(key) <= MAX_KNOWN_BLOCK_BYTES:
                if len(self._known_labels) >= MAX_KNOWN_LABEL_SETS:
                    self._known_labels.clear()
                self._known_labels[key] = labels
        return labels


def _opens_line(page: bytes, start: int) -> bool:
    """Whether only blanks stand between the beginning of the line and `start` (a comment has `#`)."""
    return not page[page.rfind(b"\n", 0, start) + 1 : start].strip(b" \t")


def _decode_labels(block: bytes) -> Labels | None:
    labels: dict[str, str] = {}
    at = 0
    for _ in range(MAX_LABELS + 1):
        if at >= len(block):
            return labels
        pair = _LABEL.match(block, at)
        if pair is None:
            return labels if not block[at:].strip() else None
        value = pair[2].decode("utf-8", "replace")
        if "\\" in value:
            value = _ESCAPE.sub(lambda match: _UNESCAPED[match[1]], value)
        labels[pair[1].decode()] = value
        at = pair.end()
    return None
