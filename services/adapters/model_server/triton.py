"""Triton Inference Server: the names of its own metrics, and of those its TensorRT-LLM backend adds.

The backend keeps several gauges in one family, told apart by a label, and leads to all load signals. Plain Triton
publishes one of them, the pending requests: `nv_inference_exec_count`, which some pickers take for the running
requests, counts all batches since the start. Histograms of the first response are off unless asked for, in
milliseconds, one for each model of a pipeline. Source: Triton's user guide, "Metrics"; tensorrtllm_backend.
"""

from services.adapters.model_server.exposition import Selection
from services.adapters.model_server.series import (
    Series,
    collect,
    having,
    histogram,
    maximum,
    missing,
    total,
    values_of,
    whole_maximum,
)
from services.core.pods.reading import EngineIdentity, EngineReading

ENGINE = "triton"
TRTLLM_ENGINE = "triton-tensorrt-llm"

PENDING = "nv_inference_pending_request_count"
FIRST_RESPONSE = "nv_inference_first_response_histogram_ms_bucket"
REQUESTS = "nv_trt_llm_request_metrics"
BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
WAITING = f"{REQUESTS}{{request_type=waiting}}"
RUNNING = f"{REQUESTS}{{request_type=scheduled}}"
KV_USE = f"{BLOCKS}{{kv_cache_block_type=fraction}}"

_MS_PER_S = 1000.0


class TritonReader:
    """Reads pages of plain Triton. One reader serves every pod."""

    def __init__(self) -> None:
        self._load = Selection("nv_inference_", (PENDING,))
        self._all = Selection("nv_inference_", (PENDING, FIRST_RESPONSE))

    def read(self, page: bytes, *, with_ttft: bool = True) -> EngineReading:
        """Return what `page` says; without `with_ttft` the histogram is left unread (None)."""
        found = collect(self._all if with_ttft else self._load, page).get
        waiting = total(found(PENDING, ()))
        return EngineReading(
            engine=ENGINE,
            waiting=waiting,
            models=values_of(found(PENDING, ()), "model"),
            ttft=histogram(found(FIRST_RESPONSE, ()), _MS_PER_S),
            missing=missing(((PENDING, waiting),)),
        )


class TritonTrtllmReader:
    """Reads pages of Triton with the TensorRT-LLM backend. One reader serves every pod."""

    def __init__(self) -> None:
        self._load = Selection("nv_", (REQUESTS, BLOCKS))
        self._all = Selection("nv_", (REQUESTS, BLOCKS, FIRST_RESPONSE))

    def read(self, page: bytes, *, with_ttft: bool = True) -> EngineReading:
        """Return what `page` says; without `with_ttft` the histogram is left unread (None).

        Only the engine's own model counts for the histogram: the others of its pipeline answer the same requests.
        """
        found = collect(self._all if with_ttft else self._load, page).get
        requests, blocks = found(REQUESTS, ()), found(BLOCKS, ())
        models = values_of(requests, "model")
        waiting = total(having(requests, "request_type", "waiting"))
        running = total(having(requests, "request_type", "scheduled"))
        kv_use = maximum(having(blocks, "kv_cache_block_type", "fraction"))
        first: Series = [pair for pair in found(FIRST_RESPONSE, ()) if pair[0].get("model") in models]
        return EngineReading(
            engine=TRTLLM_ENGINE,
            waiting=waiting,
            running=running,
            kv_use=kv_use,
            models=models,
            kv_blocks=total(having(blocks, "kv_cache_block_type", "max")),
            block_tokens=whole_maximum(having(blocks, "kv_cache_block_type", "tokens_per")),
            ttft=histogram(first, _MS_PER_S),
            missing=missing(((WAITING, waiting), (RUNNING, running), (KV_USE, kv_use))),
        )


def identify(version: str) -> EngineIdentity:
    """Return the identity of plain Triton; every version is served."""
    return EngineIdentity(ENGINE, version)


def identify_trtllm(version: str) -> EngineIdentity:
    """Return the identity; every version is served, and one that lacks a gauge says so by the gauge's name."""
    return EngineIdentity(TRTLLM_ENGINE, version)
