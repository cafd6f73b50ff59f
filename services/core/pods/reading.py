"""What one scrape of a model server says, free of any engine's names.

Values only: which text they were read from is `adapters/model_server`'s business, and what they mean for
a pod's state is the table's (`table`). `None` is *unknown*, which is never 0.
"""

from dataclasses import dataclass

KV_FULL = 0.8
"""KV use at which a pod counts as saturated (the field's default; vLLM begins to preempt above it)."""
QUEUE_FULL = 5
"""Waiting requests at which a pod counts as saturated (the field's default)."""


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """A cumulative histogram: upper bounds in seconds, ascending, the last infinite, and the counts up to each."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TokenTotals:
    """What a server has counted since its start: tokens in, tokens out, and what prefix caching was asked and met.

    `prefix_queries` and `prefix_hits` share one unit, tokens or blocks as the engine counts.
    """

    prompt: float | None = None
    generation: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None


@dataclass(frozen=True, slots=True)
class EngineReading:
    """One pod's load. `kv_use` is 0..1; `kv_blocks` and `block_tokens` are sizes of the KV cache.

    Data-parallel ranks are already merged (waiting and running summed, KV the maximum). `max_adapters` bounds
    the adapters named; of an engine that names none it is the number of free slots. `missing` names the metrics
    a picker needs and this page lacks, as the engine spells them; what an engine never publishes is not missing.
    `asleep`: the server answers but computes nothing, so that its empty queue is no invitation.
    """

    engine: str
    waiting: int | None = None
    running: int | None = None
    kv_use: float | None = None
    models: frozenset[str] = frozenset()
    active_adapters: frozenset[str] = frozenset()
    waiting_adapters: frozenset[str] = frozenset()
    max_adapters: int | None = None
    kv_blocks: int | None = None
    block_tokens: int | None = None
    ttft: BucketCounts | None = None
    totals: TokenTotals | None = None
    missing: tuple[str, ...] = ()
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """What a model server says it is. `fault` is empty, or names the metric that this version gets wrong."""

    engine: str
    version: str
    fault: str = ""


def pod_saturation(waiting: float | None, kv_use: float | None) -> float | None:
    """Return max(waiting / 5, kv / 0.8) over what is known, not clamped; None when neither is."""
    by_queue = None if waiting is None else waiting / QUEUE_FULL
    by_kv = None if kv_use is None else kv_use / KV_FULL
    if by_queue is None or by_kv is None:
        return by_kv if by_queue is None else by_queue
    return max(by_queue, by_kv)
