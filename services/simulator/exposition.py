"""Prometheus text for the engines' pages: heads, labels, and histograms that are rendered again only on change.

A page is scraped five times a second per pod, so everything but numbers is rendered once. What the metrics
are called and mean is in `vllm_page` and `sglang_page`.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from services.core.units import NS_PER_S
from services.simulator.tallies import DurationHistogram


class Gauges(enum.Enum):
    """What the load gauges say: the truth, nothing usable, nothing at all of KV, or zero."""

    TRUE = "true"
    NAN = "nan"
    MISSING_KV = "missing_kv"
    ZERO = "zero"

    def show(self, value: float) -> str:
        """Return a gauge's value as the page says it."""
        if self is Gauges.NAN:
            return "NaN"
        return "0.0" if self is Gauges.ZERO else repr(float(value))


@dataclass(frozen=True, slots=True)
class Metric:
    """One family: its full name, kind and help."""

    name: str
    kind: str
    help: str

    def head(self) -> str:
        """Return the HELP and TYPE lines."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"


def label(name: str, value: str) -> str:
    """Return `name="value"` with the value escaped."""
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{name}="{escaped}"'


class HistogramText:
    """One series of a histogram, the sum of `parts`, with its last rendering kept until something is observed.

    The head is not included: series of several labels share one.
    """

    def __init__(self, name: str, labels: str, parts: Sequence[DurationHistogram]) -> None:
        self._parts = parts
        bounds = [repr(float(bound)) for bound in parts[0].bounds_s] + ["+Inf"]
        # The labels may hold a percent sign from a model's name, which must not look like a format.
        fixed = labels.replace("%", "%%")
        buckets = "".join(f'{name}_bucket{{{fixed},le="{bound}"}} %d.0\n' for bound in bounds)
        self._template = f"{buckets}{name}_count{{{fixed}}} %d.0\n{name}_sum{{{fixed}}} %r\n"
        self._rendered_count = -1
        self._text = ""

    def render(self) -> str:
        """Return the series' lines."""
        count = sum(part.count for part in self._parts)
        if count != self._rendered_count:
            counts = [sum(bucket) for bucket in zip(*(part.counts for part in self._parts), strict=True)]
            total_s = sum(part.sum_ns for part in self._parts) / NS_PER_S
            self._text = self._template % (*accumulate(counts), count, total_s)
            self._rendered_count = count
        return self._text
