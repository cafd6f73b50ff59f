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
_USUAL = rb"(?:(\{[^\n]*)\} ([0-9.eE+-]++)(?=\n|\Z))?+"
"""Label block without its last brace, and value. Greedy up to a brace: each brace of a line is tried once."""
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
        rests = "|".join(re.escape(name.removeprefix(prefix)) for name in wanted)
        # A search for one byte is the fastest; a colon is rare enough in a line, another last byte may not be.
        self._stem = prefix[:-1].encode() if prefix.endswith(":") else b""
        anchor = re.escape(prefix[len(self._stem) :]).encode()
        # In a group of their own, so that the search is not for what the names have in common too.
        self._scan = re.compile(b"%b(?:(%b))%b" % (anchor, rests.encode(), _USUAL))
        self._names = {name.removeprefix(prefix).encode(): name for name in wanted}
        self._known_labels: dict[bytes, Labels] = {}

    def samples(self, page: bytes) -> Iterator[Sample]:
        """Yield every wanted sample of `page`.

        Most lines hold a label block met before and a plain number. A block that was once matched whole ends at
        its brace wherever it appears again, so the text up to the last brace of the line needs no second look.
        Anything else is left to `_parsed`.
        """
        known, names, stem = self._known_labels, self._names, self._stem
        for hit in self._scan.finditer(page):
            start = hit.start() - len(stem)
            if start < 0 or not page.startswith(stem, start):
                continue
            if start and page[start - 1] != _NEWLINE and not _opens_line(page, start):
                continue
            name, block, value = hit.groups()
            labels = known.get(block)
            if labels is not None:
                try:
                    yield Sample(names[name], labels, float(value))
                    continue
                except ValueError:
                    pass
            end = hit.end(1)
            if end == len(page) or page[end] not in _NAME_GOES_ON:
                sample = self._parsed(name, page, end)
                if sample is not None:
                    yield sample

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
