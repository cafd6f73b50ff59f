"""Triton with and without the TensorRT-LLM backend: gauges in families, pipelines, and the counter that is no gauge."""

from dataclasses import replace

from services.adapters.model_server import triton
from services.adapters.model_server.triton import TritonReader, TritonTrtllmReader
from services.core.pods.reading import EngineIdentity
from tests.adapters.model_server.releases import Release

PLAIN = Release("triton", "2.60.0").page
BACKEND = Release("triton-tensorrt-llm", "2.60.0").page


def test_a_page_of_plain_triton() -> None:
    reader = TritonReader()
    reading = reader.read(PLAIN)
    assert reading.waiting == 3
    assert reading.models == {"llama-8b", "embedder"}
    assert reading.ttft is not None
    assert reading.ttft.bounds[:2] == (0.1, 0.5)
    assert reader.read(PLAIN, with_ttft=False) == replace(reading, ttft=None)


def test_executed_batches_are_not_taken_for_running_requests() -> None:
    """They only grow: a server would look busier with every request it ever served."""
    reading = TritonReader().read(PLAIN)
    assert b"nv_inference_exec_count" in PLAIN
    assert (reading.running, reading.kv_use, reading.missing) == (None, None, ())


def test_a_page_with_the_backend() -> None:
    reader = TritonTrtllmReader()
    reading = reader.read(BACKEND)
    assert (reading.waiting, reading.running, reading.kv_use) == (3, 12, 0.43)
    assert (reading.kv_blocks, reading.block_tokens) == (6239, 64)
    assert reader.read(BACKEND, with_ttft=False) == replace(reading, ttft=None)


def test_a_pipeline_counts_each_first_response_once() -> None:
    reading = TritonTrtllmReader().read(BACKEND)
    assert BACKEND.count(b'histogram_ms_bucket{model="ensemble"') > 0
    assert reading.ttft is not None
    assert reading.ttft.counts[-1] == 380.0


def test_a_family_without_the_wanted_gauge_lacks_it_by_name() -> None:
    page = BACKEND.replace(b'request_type="waiting"', b'request_type="other"').replace(
        b'"fraction"', b'"free"'
    )
    assert TritonTrtllmReader().read(page).missing == (triton.WAITING, triton.KV_USE)
    assert TritonReader().read(b"").missing == (triton.PENDING,)


def test_every_version_is_served() -> None:
    assert triton.identify("2.1.0") == EngineIdentity("triton", "2.1.0")
    assert triton.identify_trtllm("2.1.0") == EngineIdentity("triton-tensorrt-llm", "2.1.0")
