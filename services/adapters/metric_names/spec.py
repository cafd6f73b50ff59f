"""What a metric is: name, kind, unit, labels, and what to do about it.

The lists themselves stand beside this, one per speaker; `catalogue` joins them. Values live as plain numbers
where things happen and are read when a page is asked for.
"""

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """Prometheus metric types in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric. `unit` is empty for counts. `when_high` tells an operator what a bad value asks for."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    what: str
    when_high: str


def counter(name: str, labels: tuple[str, ...], what: str, when_high: str, unit: str = "") -> MetricSpec:
    """Return a counter."""
    return MetricSpec(name, Kind.COUNTER, unit, labels, what, when_high)


def gauge(name: str, labels: tuple[str, ...], what: str, when_high: str, unit: str = "") -> MetricSpec:
    """Return a gauge."""
    return MetricSpec(name, Kind.GAUGE, unit, labels, what, when_high)


def histogram(name: str, labels: tuple[str, ...], what: str, when_high: str, unit: str = "") -> MetricSpec:
    """Return a histogram."""
    return MetricSpec(name, Kind.HISTOGRAM, unit, labels, what, when_high)
