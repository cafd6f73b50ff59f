"""Field cases of metrics-parsing on every engine's page, by id: what holds for vLLM holds for the others."""

import itertools
import tracemalloc

import pytest

from services.adapters.model_server.engines import AUTO, CHOICES, ENGINES, metrics_url
from services.core.pods.reading import EngineReading
from tests.adapters.model_server.releases import NEWEST, READERS, Release

WAITING = {
    "vllm": "vllm:num_requests_waiting{%s}",
    "sglang": "sglang:num_queue_reqs{%s}",
    "trtllm-serve": "trtllm_num_requests_waiting{%s}",
    "triton-tensorrt-llm": 'nv_trt_llm_request_metrics{request_type="waiting",%s}',
    "triton": "nv_inference_pending_request_count{%s}",
    "tgi": "tgi_queue_size{%s}",
}
RUNNING = {
    "vllm": "vllm:num_requests_running{%s}",
    "sglang": "sglang:num_running_reqs{%s}",
    "trtllm-serve": "trtllm_num_requests_running{%s}",
    "triton-tensorrt-llm": 'nv_trt_llm_request_metrics{request_type="scheduled",%s}',
    "tgi": "tgi_batch_current_size{%s}",
}
KV_USE = {
    "vllm": "vllm:kv_cache_usage_perc{%s}",
    "sglang": "sglang:token_usage{%s}",
    "trtllm-serve": "trtllm_kv_cache_utilization{%s}",
    "triton-tensorrt-llm": 'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",%s}',
}


def read(engine: str, page: str | bytes) -> EngineReading:
    body = page if isinstance(page, bytes) else page.encode()
    return READERS.reader(engine)(body, with_ttft=True)


def lines_of(engine: str, rank: int, waiting: str, running: str, kv_use: str) -> list[str]:
    """The load of one data-parallel rank; what the engine does not publish is left out."""
    families = ((WAITING, waiting), (RUNNING, running), (KV_USE, kv_use))
    labels = f'dp_rank="{rank}",engine="{rank}"'
    return [f"{family[engine] % labels} {value}" for family, value in families if engine in family]


@pytest.mark.parametrize("engine", KV_USE)
def test_f001_no_kv_gauge_is_unknown_and_named_never_zero(engine: str) -> None:
    waiting_and_running = "\n".join(lines_of(engine, 0, "0", "1", "0.5")[:2])
    reading = read(engine, waiting_and_running)
    assert (reading.waiting, reading.running, reading.kv_use) == (0, 1, None)
    assert len(reading.missing) == 1


@pytest.mark.parametrize("engine", ["triton", "tgi"])
def test_f001_an_engine_that_never_publishes_a_kv_gauge_lacks_nothing(engine: str) -> None:
    reading = read(engine, "\n".join(lines_of(engine, 0, "0", "1", "0.5")))
    assert (reading.waiting, reading.kv_use, reading.missing) == (0, None, ())


@pytest.mark.parametrize("engine", WAITING)
def test_f002_ranks_are_summed_and_kv_is_the_maximum_in_every_order_of_lines(engine: str) -> None:
    """The case allows mean or maximum for KV; the design decides for the maximum."""
    lines = lines_of(engine, 0, "0", "2", "0.1") + lines_of(engine, 1, "40", "8", "0.9")
    expected = (40, 10 if engine in RUNNING else None, 0.9 if engine in KV_USE else None)
    for order in itertools.permutations(lines):
        reading = read(engine, "\n".join(order))
        assert (reading.waiting, reading.running, reading.kv_use) == expected


@pytest.mark.parametrize("engine", WAITING)
def test_f004_a_page_without_adapters_lacks_nothing(engine: str) -> None:
    reading = read(engine, "\n".join(lines_of(engine, 0, "0", "1", "0.5")))
    assert (reading.missing, reading.max_adapters) == ((), None)
    assert reading.active_adapters | reading.waiting_adapters == frozenset()


@pytest.mark.parametrize("engine", WAITING)
def test_f005_more_adapters_than_slots_or_slots_without_a_number_are_no_crash(engine: str) -> None:
    page = (
        "sglang:lora_pool_slots_total 4\nsglang:lora_pool_slots_used 1.7395575723949368e+09\n"
        'vllm:lora_requests_info{max_lora="4.5",running_lora_adapters=",, ,"} 1\n'
    )
    assert read(engine, page).max_adapters in {None, 0}


@pytest.mark.parametrize("engine", WAITING)
def test_f007_braces_commas_and_a_trailing_backslash_in_labels_are_text(engine: str) -> None:
    name = WAITING[engine]
    hostile = r'model_name="org/{a, b}",path="F:\\",dp_rank="0",note="two\nlines \"quoted\" ' + name[:9] + '"'
    page = name % hostile + " 3\n" + name % 'dp_rank="1"' + " 4\n"
    assert read(engine, page).waiting == 7


@pytest.mark.parametrize("engine", WAITING)
def test_f008_exponents_and_escaped_quotes(engine: str) -> None:
    label = r'model_name="a\"b"'
    page = f"{WAITING[engine] % label} 1.2e+01\n" + (
        f"{KV_USE[engine] % label} 9.7E-1\n" if engine in KV_USE else ""
    )
    reading = read(engine, page)
    assert (reading.waiting, reading.kv_use) == (12, 0.97 if engine in KV_USE else None)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e300"])
@pytest.mark.parametrize("engine", WAITING)
def test_f008_a_value_without_sense_is_unknown_and_named(engine: str, value: str) -> None:
    lines = lines_of(engine, 0, "2", "3", "0.5") + lines_of(engine, 1, value, value, value)
    reading = read(engine, "\n".join(lines))
    assert (reading.waiting, reading.running, reading.kv_use) == (None, None, None)
    assert len(reading.missing) == len(lines) / 2


@pytest.mark.parametrize("release", NEWEST, ids=str)
def test_f010_a_page_of_twenty_mebibytes_is_read_to_its_end_and_leaves_nothing_behind(
    release: Release,
) -> None:
    """The bound of a scrape is lower; it may be raised, and the useful lines stand last."""
    mark = ENGINES[release.engine].mark
    lines = b"".join(b'%bother_bucket{le="%d",path="/v1"} %d\n' % (mark, at, at) for at in range(1000))
    page = lines * ((20 << 20) // len(lines) + 1) + release.page
    assert len(page) > 20 << 20
    reader = READERS.reader(release.engine)
    assert reader(page, with_ttft=True) == release.reading
    tracemalloc.start()
    try:
        reader(page, with_ttft=False)
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("engine", CHOICES)
def test_f013_an_ipv6_pod_is_asked_in_one_pair_of_brackets(engine: str) -> None:
    url = metrics_url("[fd00::1]:8000", engine)
    assert url.startswith("http://[fd00::1]:")
    assert url.count("[") == url.count("]") == 1
    if engine in {"vllm", "sglang", "tgi", AUTO}:
        assert url == "http://[fd00::1]:8000/metrics"
