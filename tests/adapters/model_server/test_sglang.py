"""SGLang: ranks that repeat one scheduler, priorities, adapter slots, both places of the cache sizes."""

import itertools
from dataclasses import replace

import pytest

from services.adapters.model_server.sglang import KV_USE, RUNNING, WAITING, SglangReader, identify
from services.core.pods.reading import EngineIdentity, EngineReading, TokenTotals
from tests.adapters.model_server.releases import Release


def read(page: str | bytes) -> EngineReading:
    return SglangReader().read(page.encode() if isinstance(page, str) else page)


def test_only_data_parallel_ranks_add_up() -> None:
    """Tensor and pipeline ranks that all publish each count the same requests."""
    lines = [
        f'sglang:num_queue_reqs{{model_name="m",dp_rank="{dp}",tp_rank="{tp}",pp_rank="{pp}"}} {3 + dp}'
        for dp, tp, pp in itertools.product(range(2), range(2), range(2))
    ]
    assert read("\n".join(lines)).waiting == 7
    assert read("\n".join(reversed(lines))).waiting == 7


def test_the_total_over_priorities_is_not_counted_with_its_parts() -> None:
    page = (
        'sglang:num_queue_reqs{priority=""} 5\nsglang:num_queue_reqs{priority="0"} 3\n'
        'sglang:num_queue_reqs{priority="10"} 2\nsglang:num_running_reqs 4\n'
    )
    reading = read(page)
    assert (reading.waiting, reading.running) == (5, 4)


def test_models_of_one_server_add_up() -> None:
    reading = read('sglang:num_queue_reqs{model_name="a"} 1\nsglang:num_queue_reqs{model_name="b"} 2\n')
    assert reading.waiting == 3
    assert reading.models == {"a", "b"}


@pytest.mark.parametrize(
    ("page", "free"),
    [
        ("sglang:lora_pool_slots_total 8\nsglang:lora_pool_slots_used 3\n", 5),
        ("sglang:lora_pool_slots_total 8\nsglang:lora_pool_slots_used 8\n", 0),
        ("sglang:lora_pool_slots_total 8\nsglang:lora_pool_slots_used 9\n", 0),
        ("sglang:lora_pool_slots_total 8\n", None),
        ("sglang:lora_pool_slots_used 1\n", None),
        ("", None),
    ],
)
def test_adapters_are_told_as_free_slots(page: str, free: int | None) -> None:
    reading = read(page)
    assert (reading.max_adapters, reading.active_adapters) == (free, frozenset[str]())


@pytest.mark.parametrize(
    ("page", "sizes"),
    [
        ('sglang:cache_config_info{page_size="64",num_pages="100"} 1\n', (100, 64)),
        ('sglang:cache_config_info{page_size="1",num_pages="None"} 1\n', (None, 1)),
        ("sglang:page_size 64\nsglang:num_pages 100\n", (100, 64)),
        (
            """sglang:num_pages{dp_rank="0"} 100
            sglang:num_pages{dp_rank="0",tp_rank="1"} 100
            sglang:num_pages{dp_rank="1",tp_rank="2"} 90
            sglang:page_size{dp_rank="0"} 64""",
            (190, 64),
        ),
        ("sglang:page_size 64\nsglang:num_pages NaN\n", (None, 64)),
        ("", (None, None)),
    ],
)
def test_cache_sizes(page: str, sizes: tuple[int | None, int | None]) -> None:
    reading = read(page)
    assert (reading.kv_blocks, reading.block_tokens) == sizes


def test_cached_tokens_of_all_sources_are_hits_among_the_tokens_of_prompts() -> None:
    reading = read(
        "sglang:prompt_tokens_total 100\nsglang:generation_tokens_total 7\n"
        'sglang:cached_tokens_total{cache_source="device"} 30\n'
        'sglang:cached_tokens_total{cache_source="host"} 10\n'
    )
    assert reading.totals == TokenTotals(100, 7, 100, 40)


def test_the_names_needed_are_the_ones_reported_missing() -> None:
    assert read("").missing == (WAITING, RUNNING, KV_USE)


def test_slow_series_are_left_unread_when_nobody_asks_and_nothing_else_changes() -> None:
    reader, page = SglangReader(), Release("sglang", "0.5.11").page
    whole = reader.read(page)
    assert whole.ttft is not None
    assert reader.read(page, with_ttft=False) == replace(whole, ttft=None, totals=None)


@pytest.mark.parametrize(("version", "fault"), [("0.3.5", WAITING), ("0.3.5.post1", ""), ("0.5.11", "")])
def test_versions_below_the_minimum(version: str, fault: str) -> None:
    assert identify(version) == EngineIdentity("sglang", version, fault)
