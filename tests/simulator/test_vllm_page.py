import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.core.units import Instant, WallMs
from services.simulator.engine import Engine
from services.simulator.events import EngineRequest
from services.simulator.exposition import Gauges
from services.simulator.vllm_page import MetricNames, VllmPage
from tests.simulator.profiles import TINY

NOW, WALL_MS = Instant(4_000_000), WallMs(1_800_000_000_000)
Sample = tuple[str, frozenset[tuple[str, str]]]


def parsed(page: bytes) -> dict[Sample, float]:
    samples: dict[Sample, float] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, f"{key} appears twice"
            samples[key] = sample.value
    return samples


def value(samples: Mapping[Sample, float], name: str, **labels: str) -> float:
    found = [v for (n, held), v in samples.items() if n == name and labels.items() <= dict(held).items()]
    assert len(found) == 1, f"{name} {labels}: {found}"
    return found[0]


def shown(names: MetricNames, model: str, *engines: Engine) -> bytes:
    return VllmPage(names, model, engines).render(NOW, WALL_MS)


def loaded_engine() -> Engine:
    engine = Engine(TINY, Instant(0))
    for index in range(6):
        engine.submit(EngineRequest(f"r{index}", 20, 5, (b"h",)), Instant(0))
    engine.advance(Instant(4_000_000))
    return engine


def test_the_page_tells_the_engines_load_and_totals() -> None:
    engine = loaded_engine()
    samples = parsed(shown(MetricNames.CURRENT, "m", engine))
    assert value(samples, "vllm:num_requests_running", model_name="m", engine="0") == engine.running == 4
    assert value(samples, "vllm:num_requests_waiting", model_name="m", engine="0") == engine.waiting == 2
    assert value(samples, "vllm:kv_cache_usage_perc", model_name="m", engine="0") == engine.kv_usage > 0
    tallies = engine.tallies
    for name, expected in {
        "vllm:prompt_tokens_total": tallies.prompt_tokens,
        "vllm:generation_tokens_total": tallies.generation_tokens,
        "vllm:prefix_cache_queries_total": tallies.prefix_queries,
        "vllm:prefix_cache_hits_total": tallies.prefix_hits,
        "vllm:num_preemptions_total": 0,
    }.items():
        assert value(samples, name, model_name="m", engine="0") == expected
    assert value(samples, "vllm:cache_config_info", block_size="16", num_gpu_blocks="24") == 1


@pytest.mark.parametrize(
    "name",
    [
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "time_per_output_token_seconds",
        "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_inference_time_seconds",
    ],
)
def test_a_histogram_is_cumulative_and_ends_at_its_count(name: str) -> None:
    engine = loaded_engine()
    engine.advance(Instant(10**12))
    samples = parsed(shown(MetricNames.CURRENT, "m", engine))
    buckets = sorted(
        (float(dict(labels)["le"]), count)
        for (sample, labels), count in samples.items()
        if sample == f"vllm:{name}_bucket"
    )
    counts = [count for _, count in buckets]
    assert counts == sorted(counts)
    assert buckets[-1] == (math.inf, value(samples, f"vllm:{name}_count"))
    assert counts[-1] >= 6
    assert value(samples, f"vllm:{name}_sum") > 0 or name == "request_queue_time_seconds"


def test_a_later_page_shows_what_happened_since() -> None:
    engine = loaded_engine()
    page = VllmPage(MetricNames.CURRENT, "m", [engine])
    before = parsed(page.render(NOW, WALL_MS))
    engine.advance(Instant(10**12))
    after = parsed(page.render(NOW, WALL_MS))
    finished = {"finished_reason": "length"}
    assert value(before, "vllm:request_success_total", **finished) == 0
    assert value(after, "vllm:request_success_total", **finished) == 6
    assert value(after, "vllm:e2e_request_latency_seconds_count") == 6
    assert page.render(NOW, WALL_MS) == page.render(NOW, WALL_MS)


def test_the_elder_generation_has_its_own_names_and_no_rank() -> None:
    samples = parsed(shown(MetricNames.OLD, "m", loaded_engine()))
    names = {name for name, _ in samples}
    assert {
        "vllm:gpu_cache_usage_perc",
        "vllm:cpu_cache_usage_perc",
        "vllm:num_requests_swapped",
        "vllm:gpu_prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:time_per_output_token_seconds_count",
    } <= names
    assert "vllm:kv_cache_usage_perc" not in names
    assert "vllm:inter_token_latency_seconds_count" not in names
    assert not any(label == "engine" for _, labels in samples for label, _ in labels)


def test_wrong_gauges_are_wrong_as_asked_and_counters_stay_true() -> None:
    page = VllmPage(MetricNames.CURRENT, "m", [loaded_engine()])
    for gauges, expected in ((Gauges.NAN, math.nan), (Gauges.ZERO, 0.0)):
        samples = parsed(page.render(NOW, WALL_MS, gauges))
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
            assert value(samples, name) == pytest.approx(expected, nan_ok=True)
        assert value(samples, "vllm:generation_tokens_total") > 0
    missing = {name for name, _ in parsed(page.render(NOW, WALL_MS, Gauges.MISSING_KV))}
    assert "vllm:kv_cache_usage_perc" not in missing
    assert "vllm:num_requests_running" in missing


def test_a_name_with_syntax_in_it_reads_back_as_it_was() -> None:
    name = 'org/{a, "b"}\\%s\n'
    samples = parsed(shown(MetricNames.CURRENT, name, loaded_engine()))
    assert value(samples, "vllm:num_requests_running", model_name=name) == 4
    assert value(samples, "vllm:time_to_first_token_seconds_count", model_name=name) == 4


def test_each_rank_has_a_series_of_its_own() -> None:
    one, other = loaded_engine(), Engine(TINY, Instant(0))
    samples = parsed(shown(MetricNames.CURRENT, "m", one, other))
    assert [value(samples, "vllm:num_requests_running", engine=rank) for rank in "01"] == [4, 0]
    assert value(samples, "vllm:time_to_first_token_seconds_count", engine="1") == 0
    assert value(samples, "vllm:request_success_total", engine="1", finished_reason="stop") == 0
    assert [value(samples, "vllm:cache_config_info", engine=rank) for rank in "01"] == [1, 1]


def test_the_newest_series_of_adapters_is_the_true_one_and_old_ones_stay() -> None:
    engine = Engine(replace(TINY, max_loras=1, lora_load_us=0), Instant(0))
    engine.submit(EngineRequest("a", 4, 3, lora='x"'), Instant(0))
    engine.submit(EngineRequest("b", 4, 3, lora="y"), Instant(0))
    engine.advance(Instant(4_000_000))
    samples = parsed(shown(MetricNames.CURRENT, "m", engine))
    series = {
        (labels["running_lora_adapters"], labels["waiting_lora_adapters"], labels["max_lora"]): seen
        for (name, held), seen in samples.items()
        if name == "vllm:lora_requests_info" and (labels := dict(held))
    }
    assert max(series, key=series.__getitem__) == ("y", "", "1")
    assert set(series) == {('x"', "", "1"), ('x"', "y", "1"), ("y", "", "1")}
    assert series["y", "", "1"] == pytest.approx(1_800_000_000 - 0.0007, abs=0.0001)


def test_ranks_share_one_series_of_adapters() -> None:
    engines = [Engine(replace(TINY, max_loras=1), Instant(0)) for _ in range(2)]
    for at, engine in enumerate(engines):
        engine.submit(EngineRequest("a", 4, 3, lora="x"), Instant(at * 1_000_000))
    samples = parsed(shown(MetricNames.CURRENT, "m", *engines))
    assert value(samples, "vllm:lora_requests_info", running_lora_adapters="x") == pytest.approx(
        1_799_999_999.997
    )


def test_a_server_without_adapters_has_no_such_family() -> None:
    assert b"lora" not in shown(MetricNames.CURRENT, "m", loaded_engine())
