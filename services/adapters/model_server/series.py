"""What the series of one metrics page add up to: sums, maxima, histograms, totals, and when they are unknown.

Engines differ in names and labels only (`vllm`, `sglang`, ...); this module is what they share. Syntax is
`exposition`'s. Law: one value that makes no sense makes the whole unknown (None); nothing becomes 0 by being
absent, and the order of lines means nothing.
"""

import math
import re
from collections.abc import Iterable, Sequence

from services.adapters.model_server.exposition import Labels, Selection
from services.core.pods.reading import BucketCounts

VALUE_MAX = 1e9
"""No server has as many requests, blocks or observations of one bucket; a larger number is no reading, and sums
of such numbers would fit no report."""
TOTAL_MAX = 1e15
"""Tokens counted since a server's start: a thousand years at 30,000 a second, and still exact in a float."""
MAX_SAMPLES = 8192
"""A page of 64 ranks has about 2,000 wanted samples; one with more is refused whole, as reading it would hold
up every other pod."""

Series = Sequence[tuple[Labels, float]]
SeriesByName = dict[str, list[tuple[Labels, float]]]

_NUMBER = re.compile(r"\d{1,12}")


def collect(selection: Selection, page: bytes) -> SeriesByName:
    """Return the wanted series of `page` by sample name; none of a page that holds more than `MAX_SAMPLES`."""
    series: SeriesByName = {}
    for count, sample in enumerate(selection.samples(page)):
        if count == MAX_SAMPLES:
            return {}
        series.setdefault(sample.name, []).append((sample.labels, sample.value))
    return series


def total(series: Series) -> int | None:
    """Sum a gauge over ranks and models."""
    return round(math.fsum(value for _, value in series)) if series and _sound(series, VALUE_MAX) else None


def maximum(series: Series) -> float | None:
    """Return the largest value of a gauge over ranks and models."""
    return max(value for _, value in series) if series and _sound(series, VALUE_MAX) else None


def whole_maximum(series: Series) -> int | None:
    """Return the largest value of a gauge that counts, such as the tokens of a block."""
    value = maximum(series)
    return None if value is None else round(value)


def counted(series: Series) -> float | None:
    """Sum a counter over ranks and models."""
    return math.fsum(value for _, value in series) if series and _sound(series, TOTAL_MAX) else None


def having(series: Series, label: str, value: str) -> Series:
    """Return the series whose `label` is `value`; some engines keep several gauges in one family."""
    return [pair for pair in series if pair[0].get(label) == value]


def largest_per(series: Series, labels: tuple[str, ...]) -> Series:
    """Return one series, the largest, for each combination of `labels`.

    Tensor and pipeline ranks that publish each count the same requests; only what these labels tell apart adds up.
    """
    if not _sound(series, TOTAL_MAX):
        return series  # Whoever sums it finds it unknown; a maximum over NaN would depend on the order.
    found: dict[tuple[str | None, ...], tuple[Labels, float]] = {}
    for pair in series:
        key = tuple(pair[0].get(label) for label in labels)
        if key not in found or pair[1] > found[key][1]:
            found[key] = pair
    return list(found.values())


def from_label(series: Series, label: str) -> Series:
    """Return an info gauge as a gauge of what stands in `label`; NaN where that is no number (`"None"`)."""
    return [(labels, _number(labels.get(label))) for labels, _ in series]


def whole(text: str | None) -> int | None:
    """Return the whole number that `text` is, or None."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def values_of(series: Series, label: str) -> frozenset[str]:
    """Return the distinct values of a label."""
    return frozenset(labels[label] for labels, _ in series if label in labels)


def missing(needed: Iterable[tuple[str, object]]) -> tuple[str, ...]:
    """Return the names whose value is None."""
    return tuple(name for name, value in needed if value is None)


def histogram(series: Series, units_per_s: float = 1.0) -> BucketCounts | None:
    """Sum cumulative buckets over ranks and models; bounds in seconds, from pages that count `units_per_s`.

    A page without the infinite bucket is not a histogram.
    """
    counts: dict[float, float] = {}
    for labels, value in series:
        bound = _bound(labels.get("le", ""))
        if bound is None or not 0 <= value <= VALUE_MAX:
            return None
        counts[bound] = counts.get(bound, 0.0) + value
    if math.inf not in counts:
        return None
    bounds = sorted(counts)
    return BucketCounts(
        tuple(bound / units_per_s for bound in bounds), tuple(counts[bound] for bound in bounds)
    )


def _sound(series: Series, largest: float) -> bool:
    return all(0 <= value <= largest for _, value in series)  # False for NaN too


def _number(text: str | None) -> float:
    number = whole(text)
    return math.nan if number is None else float(number)


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound
