"""The metrics page: plain values, read when somebody asks, in Prometheus text form 0.0.4.

Nothing is counted here; owners of counters are asked for their values. Only names of the closed list are
rendered. Written here and not by a client library, whose renderer takes 20 us a line: a page of 100,000 lines
would hold up every request for two seconds.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from services.adapters.metric_names.catalogue import METRICS
from services.adapters.metric_names.spec import Kind, MetricSpec
from services.adapters.telemetry.histogram import Histogram

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
_BOUNDS_KEPT: Final = 64
"""Sets of bounds whose spelling is remembered; there are fewer in the code."""


class Value(NamedTuple):
    """One value of a metric; `labels` are in the order that the closed list declares.

    A histogram's value is a `Histogram`, any other metric's a number.
    """

    name: str
    value: float | Histogram
    labels: tuple[str, ...] = ()


ValueSource = Callable[[], Iterable[Value]]


class MetricsPage:
    """Renders the values of `sources`.

    A name outside the closed list raises KeyError, a value of another kind TypeError, and another number of
    labels than declared ValueError.
    """

    def __init__(self, sources: Sequence[ValueSource]) -> None:
        self._sources = tuple(sources)

    def render(self) -> bytes:
        """Return the page; its content type is `CONTENT_TYPE`."""
        families: dict[str, list[str]] = {}
        for source in self._sources:
            for name, value, labels in source():
                spec = METRICS[name]
                lines = families.get(name)
                if lines is None:
                    lines = families[name] = [_head(spec)]
                told = ",".join(
                    [
                        f'{label}="{_escaped(text)}"'
                        for label, text in sorted(zip(spec.labels, labels, strict=True))
                    ]
                )
                if isinstance(value, Histogram) is not (spec.kind is Kind.HISTOGRAM):
                    raise TypeError(f"{name} is a {spec.kind.value}; its value is {value!r}")
                if isinstance(value, Histogram):
                    _histogram(lines, name, told, value)
                else:
                    lines.append(f"{name}{_braced(told)} {float(value)!r}\n")
        # A label may hold anything that a client sent; one that is no text spoils its own value, not the page.
        return "".join([line for lines in families.values() for line in lines]).encode("utf-8", "replace")


def _head(spec: MetricSpec) -> str:
    what = spec.what.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {spec.name} {what}\n# TYPE {spec.name} {spec.kind.value}\n"


def _histogram(lines: list[str], name: str, told: str, found: Histogram) -> None:
    before = f'{name}_bucket{{{told},le="' if told else f'{name}_bucket{{le="'
    counts = found.cumulative()
    bounds = _bounds(tuple(found.bounds))
    lines += [f'{before}{bound}"}} {count}\n' for bound, count in zip(bounds, counts, strict=True)]
    labels = _braced(told)
    lines.append(f"{name}_sum{labels} {found.total!r}\n{name}_count{labels} {counts[-1]}\n")


@lru_cache(_BOUNDS_KEPT)
def _bounds(bounds: tuple[float, ...]) -> tuple[str, ...]:
    """Return how the bounds are spelt, the infinite one last."""
    return (*(repr(float(bound)) for bound in bounds), "+Inf")


def _braced(told: str) -> str:
    return f"{{{told}}}" if told else ""


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return text
