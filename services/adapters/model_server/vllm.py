"""vLLM: the names it gives its metrics, over two generations, and what they add up to.

vLLM renamed its KV gauge with the V1 engine; a picker that knows one name sees no cache pressure on the
other. Syntax is `exposition`'s, sockets are `source`'s. Another engine is another module with the same two
functions. Source: docs.vllm.ai, "Production metrics"; llm-d-router docs/plugin-metric-protocol.md.
"""

import math
import re
from collections.abc import Sequence

from services.adapters.model_server.exposition import Labels, Selection
from services.core.pods.reading import BucketCounts, EngineIdentity, EngineReading
from services.wire.messages import MAX_TEXT_CHARS

ENGINE = "vllm"
MINIMUM_VERSION = (0, 9, 2)
"""Older versions publish the KV gauge of the V1 engine under the old name or not at all, so cache pressure
would silently be ignored."""

WAITING = "vllm:num_requests_waiting"
RUNNING = "vllm:num_requests_running"
KV_USE = "vllm:kv_cache_usage_perc"
KV_USE_ELDER = "vllm:gpu_cache_usage_perc"
LORA = "vllm:lora_requests_info"
CACHE = "vllm:cache_config_info"
TTFT = "vllm:time_to_first_token_seconds_bucket"

VALUE_MAX = 1e9
"""No server has as many requests or observations of one bucket; a larger number is no reading, and sums of
such numbers would fit no report."""
MAX_SAMPLES = 8192
"""A page of 64 ranks has about 2,000 wanted samples; one with more is refused whole, as reading it would hold
up every other pod."""
MAX_ADAPTERS = 4096
"""More names than a server can hold adapters; reports cut their lists far below it."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")
_NUMBER = re.compile(r"\d{1,12}")
_Series = Sequence[tuple[Labels, float]]


class VllmReader:
    """Reads vLLM pages. One reader serves every pod: it keeps decoded label blocks, no pod's state."""

    def __init__(self) -> None:
        load = (WAITING, RUNNING, KV_USE, KV_USE_ELDER, LORA, CACHE)
        self._load = Selection("vllm:", load)
        self._load_and_ttft = Selection("vllm:", (*load, TTFT))

    def read(self, page: bytes, *, with_ttft: bool = True) -> EngineReading:
        """Return what `page` says. Ranks and models of one pod are merged, in whatever order they stand.

        The histogram is most of the work; without `with_ttft` it is left unread and `ttft` is None.
        """
        series: dict[str, list[tuple[Labels, float]]] = {}
        samples = (self._load_and_ttft if with_ttft else self._load).samples(page)
        for count, sample in enumerate(samples):
            if count == MAX_SAMPLES:
                series.clear()
                break
            series.setdefault(sample.name, []).append((sample.labels, sample.value))
        waiting = _total(series.get(WAITING, ()))
        running = _total(series.get(RUNNING, ()))
        kv_use = _maximum(series.get(KV_USE) or series.get(KV_USE_ELDER) or ())
        active, queued, most = _adapters(series.get(LORA, ()))
        blocks, block_tokens = _cache(series.get(CACHE, ()))
        needed = ((WAITING, waiting), (RUNNING, running), (KV_USE, kv_use))
        return EngineReading(
            engine=ENGINE,
            waiting=waiting,
            running=running,
            kv_use=kv_use,
            models=frozenset(
                labels["model_name"] for labels, _ in series.get(WAITING, ()) if "model_name" in labels
            ),
            active_adapters=active,
            waiting_adapters=queued,
            max_adapters=most,
            kv_blocks=blocks,
            block_tokens=block_tokens,
            ttft=_histogram(series.get(TTFT, ())),
            missing=tuple(name for name, value in needed if value is None),
        )


def identify(version: str) -> EngineIdentity:
    """Judge the version that `GET /version` gave. One that cannot be read is not held against the server."""
    found = _VERSION.match(version)
    if found is None:
        return EngineIdentity(ENGINE, version)
    number = (int(found[1]), int(found[2]), int(found[3] or 0))
    fault = KV_USE if number < MINIMUM_VERSION else ""
    return EngineIdentity(ENGINE, version, fault)


def _total(series: _Series) -> int | None:
    """Sum a gauge over ranks; one rank that says nothing sensible makes the sum unknown."""
    return round(math.fsum(value for _, value in series)) if series and _sound(series) else None


def _maximum(series: _Series) -> float | None:
    return max(value for _, value in series) if series and _sound(series) else None


def _sound(series: _Series) -> bool:
    return all(_sensible(value) for _, value in series)


def _sensible(value: float) -> bool:
    return 0 <= value <= VALUE_MAX  # False for NaN too


def _adapters(series: _Series) -> tuple[frozenset[str], frozenset[str], int | None]:
    """Read the newest label set: the value is the time it was written, and old sets stay on the page for ever."""
    written = [(value, labels) for labels, value in series if not math.isnan(value)]
    if not written:
        return frozenset(), frozenset(), None
    newest = max(written, key=lambda pair: (pair[0], sorted(pair[1].items())))[1]
    return (
        _names(newest.get("running_lora_adapters", "")),
        _names(newest.get("waiting_lora_adapters", "")),
        _number(newest.get("max_lora")),
    )


def _names(text: str) -> frozenset[str]:
    """Return the names that a report can carry: one that it cannot would make all of it unreadable."""
    parts = (part.strip() for part in text.split(","))
    names = {name for name in parts if 0 < len(name) <= MAX_TEXT_CHARS and name.isprintable()}
    return frozenset(names if len(names) <= MAX_ADAPTERS else sorted(names)[:MAX_ADAPTERS])


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _cache(series: _Series) -> tuple[int | None, int | None]:
    """Return (blocks of all ranks, tokens per block); None for `num_gpu_blocks="None"`, said before profiling."""
    blocks = [_number(labels.get("num_gpu_blocks")) for labels, _ in series]
    sizes = [size for labels, _ in series if (size := _number(labels.get("block_size"))) is not None]
    total = None if not blocks or None in blocks else sum(block for block in blocks if block is not None)
    return total, max(sizes, default=None)


def _histogram(series: _Series) -> BucketCounts | None:
    """Sum cumulative buckets over ranks and models. A page without the infinite bucket is not a histogram."""
    counts: dict[float, float] = {}
    for labels, value in series:
        bound = _bound(labels.get("le", ""))
        if bound is None or not _sensible(value):
            return None
        counts[bound] = counts.get(bound, 0.0) + value
    if math.inf not in counts:
        return None
    bounds = tuple(sorted(counts))
    return BucketCounts(bounds, tuple(counts[bound] for bound in bounds))


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound
