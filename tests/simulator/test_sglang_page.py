import math
from dataclasses import replace

import pytest

from services.core.units import Instant, WallMs
from services.simulator.engine import Engine
from services.simulator.events import EngineRequest
from services.simulator.exposition import Gauges
from services.simulator.profile import EngineProfile
from services.simulator.sglang_page import SglangPage, sglang_tallies
from tests.simulator.profiles import TINY, drain
from tests.simulator.test_vllm_page import Sample, parsed, value

NOW, WALL_MS = Instant(0), WallMs(0)


def loaded_engine(profile: EngineProfile = TINY, requests: int = 6) -> Engine:
    engine = Engine(profile, Instant(0), tallies=sglang_tallies())
    for index in range(requests):
        engine.submit(EngineRequest(f"r{index}", 20, 5, (b"h",)), Instant(0))
    engine.advance(Instant(4_000_000))
    return engine


def shown(*engines: Engine, gauges: Gauges = Gauges.TRUE) -> dict[Sample, float]:
    return parsed(SglangPage("m", engines).render(NOW, WALL_MS, gauges))


def test_the_page_tells_the_engines_load_and_totals() -> None:
    engine = loaded_engine()
    samples = shown(engine)
    labels = {"model_name": "m", "engine_type": "unified", "tp_rank": "0", "pp_rank": "0"}
    assert value(samples, "sglang:num_running_reqs", **labels) == engine.running == 4
    assert value(samples, "sglang:num_queue_reqs", **labels) == engine.waiting == 2
    assert value(samples, "sglang:token_usage", **labels) == engine.kv_usage > 0
    assert value(samples, "sglang:num_used_tokens") == engine.kv_used_blocks * 16
    assert value(samples, "sglang:max_total_num_tokens") == 24 * 16
    assert value(samples, "sglang:gen_throughput") == engine.decode_tokens_per_s > 0
    assert value(samples, "sglang:cache_config_info", page_size="16", num_pages="24") == 1
    assert value(samples, "sglang:num_grammar_queue_reqs") == 0


def test_an_idle_engine_has_no_hit_rate_and_a_busy_one_its_share() -> None:
    idle = Engine(TINY, Instant(0), tallies=sglang_tallies())
    assert value(shown(idle), "sglang:cache_hit_rate") == 0
    engine = loaded_engine()
    drain(engine)
    tallies = engine.tallies
    assert value(shown(engine), "sglang:cache_hit_rate") == tallies.prefix_hits / tallies.prefix_queries > 0


@pytest.mark.parametrize(
    "name",
    [
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "queue_time_seconds",
    ],
)
def test_a_histogram_is_one_series_for_all_ranks(name: str) -> None:
    one, other = loaded_engine(), loaded_engine()
    drain(one)
    drain(other)
    samples = shown(one, other)
    assert value(samples, f"sglang:{name}_count", model_name="m") >= 12
    assert value(samples, f"sglang:{name}_bucket", le="+Inf") == value(samples, f"sglang:{name}_count")


def test_ranks_are_told_apart_in_what_the_scheduler_says() -> None:
    one, other = loaded_engine(), loaded_engine(requests=1)
    samples = shown(one, other)
    assert value(samples, "sglang:num_running_reqs", dp_rank="0") == 4
    assert value(samples, "sglang:num_running_reqs", dp_rank="1") == 1
    assert value(samples, "sglang:cache_config_info", dp_rank="1") == 1
    assert value(samples, "sglang:prompt_tokens_total") == (
        one.tallies.prompt_tokens + other.tallies.prompt_tokens
    )


def test_finished_and_aborted_requests_are_counted_apart() -> None:
    engine = loaded_engine()
    engine.abort("r5", Instant(4_000_000))
    drain(engine)
    samples = shown(engine)
    assert value(samples, "sglang:num_requests_total") == 5
    assert value(samples, "sglang:num_aborted_requests_total") == 1


def test_adapter_slots_are_shown_where_adapters_are_served() -> None:
    engine = loaded_engine(replace(TINY, max_loras=3), requests=0)
    engine.submit(EngineRequest("a", 4, 1, lora="x"), Instant(4_000_000))
    drain(engine)
    samples = shown(engine)
    assert value(samples, "sglang:lora_pool_slots_used") == 1
    assert value(samples, "sglang:lora_pool_slots_total") == 3
    assert not any("lora" in name for name, _ in shown(loaded_engine()))


def test_wrong_gauges_are_wrong_as_asked_and_counters_stay_true() -> None:
    engine = loaded_engine()
    for gauges, expected in ((Gauges.NAN, math.nan), (Gauges.ZERO, 0.0)):
        samples = shown(engine, gauges=gauges)
        for name in ("num_running_reqs", "num_queue_reqs", "token_usage"):
            assert value(samples, f"sglang:{name}") == pytest.approx(expected, nan_ok=True)
        assert value(samples, "sglang:generation_tokens_total") > 0
    missing = {name for name, _ in shown(engine, gauges=Gauges.MISSING_KV)}
    assert "sglang:token_usage" not in missing
    assert "sglang:num_running_reqs" in missing
