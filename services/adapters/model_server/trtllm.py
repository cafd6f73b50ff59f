"""TensorRT-LLM's own server (`trtllm-serve`): the names it gives its metrics.

The gauges of waiting and running requests came later than the page itself; a server without them is told by the
metric's name. Its path `/metrics` answers with JSON of the last iterations, so pages are read at
`/prometheus/metrics`. Source: tensorrt_llm/metrics/collector.py of that project.
"""

from services.adapters.model_server.exposition import Selection
from services.adapters.model_server.series import (
    collect,
    counted,
    histogram,
    maximum,
    missing,
    total,
    values_of,
    whole_maximum,
)
from services.core.pods.reading import EngineIdentity, EngineReading, TokenTotals

ENGINE = "trtllm-serve"

WAITING = "trtllm_num_requests_waiting"
RUNNING = "trtllm_num_requests_running"
KV_USE = "trtllm_kv_cache_utilization"
BLOCK_TOKENS = "trtllm_kv_cache_tokens_per_block"
BLOCKS = "trtllm_kv_cache_max_blocks"
TTFT = "trtllm_time_to_first_token_seconds_bucket"
PROMPT_TOKENS = "trtllm_prompt_tokens_total"
GENERATION_TOKENS = "trtllm_generation_tokens_total"
REUSED_BLOCKS = "trtllm_kv_cache_reused_blocks_total"
MISSED_BLOCKS = "trtllm_kv_cache_missed_blocks_total"

_LOAD = (WAITING, RUNNING, KV_USE, BLOCK_TOKENS, BLOCKS)
_SLOW = (TTFT, PROMPT_TOKENS, GENERATION_TOKENS, REUSED_BLOCKS, MISSED_BLOCKS)


class TrtllmReader:
    """Reads pages of `trtllm-serve`. One reader serves every pod."""

    def __init__(self) -> None:
        self._load = Selection("trtllm_", _LOAD)
        self._all = Selection("trtllm_", (*_LOAD, *_SLOW))

    def read(self, page: bytes, *, with_ttft: bool = True) -> EngineReading:
        """Return what `page` says; without `with_ttft` the histogram and the totals are left unread (None).

        Every block a prompt needs was either reused or missed; both together are what was looked up.
        """
        found = collect(self._all if with_ttft else self._load, page).get
        waiting, running = total(found(WAITING, ())), total(found(RUNNING, ()))
        kv_use = maximum(found(KV_USE, ()))
        reused, missed = counted(found(REUSED_BLOCKS, ())), counted(found(MISSED_BLOCKS, ()))
        return EngineReading(
            engine=ENGINE,
            waiting=waiting,
            running=running,
            kv_use=kv_use,
            models=values_of(found(WAITING, ()), "model_name"),
            kv_blocks=total(found(BLOCKS, ())),
            block_tokens=whole_maximum(found(BLOCK_TOKENS, ())),
            ttft=histogram(found(TTFT, ())),
            totals=TokenTotals(
                counted(found(PROMPT_TOKENS, ())),
                counted(found(GENERATION_TOKENS, ())),
                None if reused is None or missed is None else reused + missed,
                reused,
            )
            if with_ttft
            else None,
            missing=missing(((WAITING, waiting), (RUNNING, running), (KV_USE, kv_use))),
        )


def identify(version: str) -> EngineIdentity:
    """Return the identity; every version is served, and one that lacks a gauge says so by the gauge's name."""
    return EngineIdentity(ENGINE, version)
