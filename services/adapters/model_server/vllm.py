"""vLLM: the names it gives its metrics, over two generations.

vLLM renamed its KV gauge with the V1 engine; a picker that knows one name sees no cache pressure on the
other. What series add up to is `series`' business, syntax is `exposition`'s, sockets are `source`'s.
Source: docs.vllm.ai, "Production metrics"; llm-d-router docs/plugin-metric-protocol.md.
"""

import math

from services.adapters.model_server.exposition import Selection
from services.adapters.model_server.series import (
    Series,
    collect,
    counted,
    from_label,
    having,
    histogram,
    maximum,
    missing,
    total,
    values_of,
    whole,
    whole_maximum,
)
from services.adapters.model_server.versions import judged
from services.core.pods.reading import EngineIdentity, EngineReading, TokenTotals
from services.wire.messages import MAX_TEXT_CHARS

ENGINE = "vllm"
MINIMUM_VERSION = "0.9.2"
"""Older versions publish the KV gauge of the V1 engine under the old name or not at all, so cache pressure
would silently be ignored."""

WAITING = "vllm:num_requests_waiting"
RUNNING = "vllm:num_requests_running"
KV_USE = "vllm:kv_cache_usage_perc"
KV_USE_ELDER = "vllm:gpu_cache_usage_perc"
LORA = "vllm:lora_requests_info"
CACHE = "vllm:cache_config_info"
SLEEP = "vllm:engine_sleep_state"
"""One gauge per `sleep_state`: `awake`, `weights_offloaded` (level 1), `discard_all` (level 2)."""
TTFT = "vllm:time_to_first_token_seconds_bucket"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
GENERATION_TOKENS = "vllm:generation_tokens_total"
PREFIX_QUERIES = "vllm:prefix_cache_queries_total"
PREFIX_QUERIES_ELDER = "vllm:gpu_prefix_cache_queries_total"
PREFIX_HITS = "vllm:prefix_cache_hits_total"
PREFIX_HITS_ELDER = "vllm:gpu_prefix_cache_hits_total"

MAX_ADAPTERS = 4096
"""More names than a server can hold adapters; reports cut their lists far below it."""

_LOAD = (WAITING, RUNNING, KV_USE, KV_USE_ELDER, LORA, CACHE, SLEEP)
_SLOW = (
    TTFT,
    PROMPT_TOKENS,
    GENERATION_TOKENS,
    PREFIX_QUERIES,
    PREFIX_QUERIES_ELDER,
    PREFIX_HITS,
    PREFIX_HITS_ELDER,
)


class VllmReader:
    """Reads vLLM pages. One reader serves every pod: it keeps decoded label blocks, no pod's state."""

    def __init__(self) -> None:
        self._load = Selection("vllm:", _LOAD)
        self._all = Selection("vllm:", (*_LOAD, *_SLOW))

    def read(self, page: bytes, *, with_ttft: bool = True) -> EngineReading:
        """Return what `page` says. Ranks and models of one pod are merged, in whatever order they stand.

        The histogram is most of the work; without `with_ttft` it and the totals are left unread (None).
        """
        found = collect(self._all if with_ttft else self._load, page).get
        waiting, running = total(found(WAITING, ())), total(found(RUNNING, ()))
        kv_use = maximum(found(KV_USE) or found(KV_USE_ELDER) or ())
        active, queued, most = _adapters(found(LORA, ()))
        cache = found(CACHE, ())
        return EngineReading(
            engine=ENGINE,
            waiting=waiting,
            running=running,
            kv_use=kv_use,
            models=values_of(found(WAITING, ()), "model_name"),
            active_adapters=active,
            waiting_adapters=queued,
            max_adapters=most,
            kv_blocks=total(from_label(cache, "num_gpu_blocks")),
            block_tokens=whole_maximum(from_label(cache, "block_size")),
            ttft=histogram(found(TTFT, ())),
            totals=TokenTotals(
                counted(found(PROMPT_TOKENS, ())),
                counted(found(GENERATION_TOKENS, ())),
                counted(found(PREFIX_QUERIES) or found(PREFIX_QUERIES_ELDER) or ()),
                counted(found(PREFIX_HITS) or found(PREFIX_HITS_ELDER) or ()),
            )
            if with_ttft
            else None,
            missing=missing(((WAITING, waiting), (RUNNING, running), (KV_USE, kv_use))),
            asleep=maximum(having(found(SLEEP, ()), "sleep_state", "awake")) == 0,
        )


def identify(version: str) -> EngineIdentity:
    """Judge the version that `GET /version` gave. One that cannot be read is not held against the server."""
    return judged(ENGINE, version, MINIMUM_VERSION, KV_USE)


def _adapters(series: Series) -> tuple[frozenset[str], frozenset[str], int | None]:
    """Read the newest label set: the value is the time it was written, and old sets stay on the page for ever."""
    written = [(value, labels) for labels, value in series if not math.isnan(value)]
    if not written:
        return frozenset(), frozenset(), None
    newest = max(written, key=lambda pair: (pair[0], sorted(pair[1].items())))[1]
    return (
        _names(newest.get("running_lora_adapters", "")),
        _names(newest.get("waiting_lora_adapters", "")),
        whole(newest.get("max_lora")),
    )


def _names(text: str) -> frozenset[str]:
    """Return the names that a report can carry: one that it cannot would make all of it unreadable."""
    parts = (part.strip() for part in text.split(","))
    names = {name for name in parts if 0 < len(name) <= MAX_TEXT_CHARS and name.isprintable()}
    return frozenset(names if len(names) <= MAX_ADAPTERS else sorted(names)[:MAX_ADAPTERS])
