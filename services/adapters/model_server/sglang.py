"""SGLang: the names it gives its metrics, and which of its series tell of the same requests.

Series of several tensor or pipeline ranks repeat one scheduler's numbers; only data-parallel ranks add up.
With priority scheduling the total stands under `priority=""`, beside a series for each priority.
Source: docs.sglang.ai, "Production Metrics"; srt/observability/metrics_collector.py of that project.
"""

from services.adapters.model_server.exposition import Selection
from services.adapters.model_server.series import (
    Series,
    collect,
    counted,
    from_label,
    histogram,
    largest_per,
    maximum,
    missing,
    total,
    values_of,
    whole_maximum,
)
from services.adapters.model_server.versions import judged
from services.core.pods.reading import EngineIdentity, EngineReading, TokenTotals

ENGINE = "sglang"
MINIMUM_VERSION = "0.3.5.post1"
"""Older versions name the queue and the running requests otherwise, so load would silently be ignored."""

WAITING = "sglang:num_queue_reqs"
RUNNING = "sglang:num_running_reqs"
KV_USE = "sglang:token_usage"
PAGE_TOKENS = "sglang:page_size"
PAGES = "sglang:num_pages"
CACHE = "sglang:cache_config_info"
"""Up to 0.5.10 the sizes of the cache stand in this gauge's labels."""
LORA_SLOTS = "sglang:lora_pool_slots_total"
LORA_USED = "sglang:lora_pool_slots_used"
TTFT = "sglang:time_to_first_token_seconds_bucket"
PROMPT_TOKENS = "sglang:prompt_tokens_total"
GENERATION_TOKENS = "sglang:generation_tokens_total"
CACHED_TOKENS = "sglang:cached_tokens_total"

_LOAD = (WAITING, RUNNING, KV_USE, PAGE_TOKENS, PAGES, CACHE, LORA_SLOTS, LORA_USED)
_SLOW = (TTFT, PROMPT_TOKENS, GENERATION_TOKENS, CACHED_TOKENS)
_SCHEDULER = ("model_name", "dp_rank")


class SglangReader:
    """Reads SGLang pages. One reader serves every pod: it keeps decoded label blocks, no pod's state."""

    def __init__(self) -> None:
        self._load = Selection("sglang:", _LOAD)
        self._all = Selection("sglang:", (*_LOAD, *_SLOW))

    def read(self, page: bytes, *, with_ttft: bool = True) -> EngineReading:
        """Return what `page` says; without `with_ttft` the histogram and the totals are left unread (None).

        A prompt's tokens are what the prefix cache is asked for, its cached tokens what it holds.
        """
        found = collect(self._all if with_ttft else self._load, page).get
        waiting = total(_of_schedulers(found(WAITING, ())))
        running = total(_of_schedulers(found(RUNNING, ())))
        kv_use = maximum(found(KV_USE, ()))
        cache = found(CACHE, ())
        prompt = counted(found(PROMPT_TOKENS, ()))
        return EngineReading(
            engine=ENGINE,
            waiting=waiting,
            running=running,
            kv_use=kv_use,
            models=values_of(found(WAITING, ()), "model_name"),
            max_adapters=_free(found(LORA_SLOTS, ()), found(LORA_USED, ())),
            kv_blocks=total(_of_schedulers(found(PAGES) or from_label(cache, "num_pages"))),
            block_tokens=whole_maximum(found(PAGE_TOKENS) or from_label(cache, "page_size")),
            ttft=histogram(found(TTFT, ())),
            totals=TokenTotals(
                prompt, counted(found(GENERATION_TOKENS, ())), prompt, counted(found(CACHED_TOKENS, ()))
            )
            if with_ttft
            else None,
            missing=missing(((WAITING, waiting), (RUNNING, running), (KV_USE, kv_use))),
        )


def identify(version: str) -> EngineIdentity:
    """Judge the version that the server's information gave. One that cannot be read is not held against it."""
    return judged(ENGINE, version, MINIMUM_VERSION, WAITING)


def _of_schedulers(series: Series) -> Series:
    """Return one series for each scheduler, its total."""
    return largest_per([pair for pair in series if not pair[0].get("priority")], _SCHEDULER)


def _free(slots: Series, used: Series) -> int | None:
    """Return how many adapters may still be loaded; SGLang counts them and does not name them."""
    all_slots, taken = total(_of_schedulers(slots)), total(_of_schedulers(used))
    return None if all_slots is None or taken is None else max(all_slots - taken, 0)
