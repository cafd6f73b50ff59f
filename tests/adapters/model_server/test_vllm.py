"""vLLM's names: two generations, ranks, adapters, histograms; field cases by id."""

import itertools
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.adapters.model_server import vllm
from services.adapters.model_server.series import MAX_SAMPLES
from services.adapters.model_server.vllm import CACHE, KV_USE, RUNNING, WAITING, VllmReader, identify
from services.core.pods.reading import BucketCounts, EngineIdentity, EngineReading
from tests.adapters.model_server.pages import vllm_page


def read(page: str | bytes) -> EngineReading:
    return VllmReader().read(page.encode() if isinstance(page, str) else page)


@pytest.mark.parametrize(
    ("page", "kv_use"),
    [
        ('vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.97\n', 0.97),
        ('vllm:gpu_cache_usage_perc{model_name="m"} 0.10\n', 0.10),
        ("vllm:gpu_cache_usage_perc 0.10\nvllm:kv_cache_usage_perc 0.90\n", 0.90),
        ("vllm:kv_cache_usage_perc 0.90\nvllm:gpu_cache_usage_perc 0.10\n", 0.90),
        ("vllm:num_requests_running 1\n", None),
    ],
)
def test_f001_both_generations_of_the_kv_gauge_and_neither(page: str, kv_use: float | None) -> None:
    reading = read(page)
    assert reading.kv_use == kv_use
    assert (KV_USE in reading.missing) is (kv_use is None)


def test_f002_ranks_are_summed_and_kv_is_the_maximum_in_every_order_of_lines() -> None:
    """The case allows mean or maximum for KV; the design decides for the maximum."""
    lines = (
        'vllm:num_requests_waiting{engine="0"} 0',
        'vllm:num_requests_waiting{engine="1"} 40',
        'vllm:num_requests_running{engine="0"} 2',
        'vllm:num_requests_running{engine="1"} 8',
        'vllm:kv_cache_usage_perc{engine="0"} 0.1',
        'vllm:kv_cache_usage_perc{engine="1"} 0.9',
    )
    for order in itertools.permutations(lines):
        reading = read("\n".join(order))
        assert (reading.waiting, reading.running, reading.kv_use) == (40, 10, 0.9)


@pytest.mark.parametrize(
    ("awake", "asleep"), [((1,), False), ((0,), True), ((0, 0), True), ((0, 1), False), ((), False)]
)
def test_a_server_sleeps_when_no_rank_is_awake(awake: tuple[int, ...], asleep: bool) -> None:
    page = "".join(
        f'vllm:engine_sleep_state{{engine="{rank}",model_name="m",sleep_state="{state}"}} {value}.0\n'
        for rank, up in enumerate(awake)
        for state, value in (("awake", up), ("weights_offloaded", 1 - up), ("discard_all", 0))
    )
    assert read(vllm_page() + page.encode()).asleep is asleep
    assert VllmReader().read(page.encode(), with_ttft=False).asleep is asleep


def test_f004_a_server_without_lora_lacks_nothing() -> None:
    reading = read(vllm_page())
    assert reading.missing == ()
    assert (reading.active_adapters | reading.waiting_adapters, reading.max_adapters) == (
        frozenset[str](),
        None,
    )


LORA_LINES = (
    'vllm:lora_requests_info{max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""} 1.7395575723949368e+09',
    'vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters="c"} 1.7395575741949368e+09',
    'vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 1.7395575657589855e+09',
)


def test_f005_the_newest_adapter_set_is_the_one_with_the_largest_value() -> None:
    for order in itertools.permutations(LORA_LINES):
        reading = read("\n".join(order))
        assert reading.active_adapters == {"a", "b"}
        assert reading.waiting_adapters == {"c"}
        assert reading.max_adapters == 4


@pytest.mark.parametrize(
    ("line", "most"),
    [
        ('vllm:lora_requests_info{max_lora="1",running_adapters="",waiting_adapters=""} 1.0', 1),
        ('vllm:lora_requests_info{running_lora_adapters=" , ,"} 1.0', None),
        ('vllm:lora_requests_info{max_lora="many"} 1.0', None),
        ('vllm:lora_requests_info{max_lora="-1"} 1.0', None),
        ("vllm:lora_requests_info NaN", None),
    ],
)
def test_f005_early_shapes_and_broken_limits_are_unknown_not_zero(line: str, most: int | None) -> None:
    reading = read(line)
    assert (reading.active_adapters | reading.waiting_adapters, reading.max_adapters) == (
        frozenset[str](),
        most,
    )


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1"])
def test_f008_a_gauge_that_makes_no_sense_is_unknown(value: str) -> None:
    reading = read(
        f'vllm:num_requests_waiting{{engine="0"}} 2\nvllm:num_requests_waiting{{engine="1"}} {value}\n'
        f"vllm:num_requests_running 3\nvllm:kv_cache_usage_perc {value}\n"
    )
    assert (reading.waiting, reading.running, reading.kv_use) == (None, 3, None)
    assert reading.missing == (WAITING, KV_USE)


def test_several_models_of_one_pod_share_its_load() -> None:
    reading = read(
        'vllm:num_requests_waiting{model_name="a"} 1\nvllm:num_requests_waiting{model_name="b"} 2\n'
        "vllm:num_requests_running 0\n"
    )
    assert reading.models == {"a", "b"}
    assert reading.waiting == 3


@pytest.mark.parametrize(
    ("lines", "sizes"),
    [
        (['{block_size="16",num_gpu_blocks="100"} 1'], (100, 16)),
        (
            [
                '{block_size="16",engine="0",num_gpu_blocks="100"} 1',
                '{block_size="16",engine="1",num_gpu_blocks="50"} 1',
            ],
            (150, 16),
        ),
        (['{block_size="16",num_gpu_blocks="None"} 1'], (None, 16)),
        (['{num_gpu_blocks="5"} 1'], (5, None)),
        ([], (None, None)),
    ],
)
def test_cache_sizes(lines: list[str], sizes: tuple[int | None, int | None]) -> None:
    reading = read("\n".join(CACHE + line for line in lines))
    assert (reading.kv_blocks, reading.block_tokens) == sizes


def test_the_ttft_histogram_is_summed_over_ranks_and_sorted_by_bound() -> None:
    reading = read(
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 4\n'
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 1\n'
        'vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1"} 2\n'
        'vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 6\n'
    )
    assert reading.ttft == BucketCounts((0.1, math.inf), (3.0, 10.0))


@pytest.mark.parametrize("le", ['le="soon"', 'le="nan"', "", 'le="0.1"'])
def test_a_broken_histogram_is_unknown(le: str) -> None:
    assert read(f"vllm:time_to_first_token_seconds_bucket{{{le}}} 4\n").ttft is None


def test_a_histogram_with_a_broken_count_is_unknown() -> None:
    assert read('vllm:time_to_first_token_seconds_bucket{le="+Inf"} NaN\n').ttft is None


def test_a_whole_page() -> None:
    page = vllm_page(waiting=(3, 1), running=(7, 2), kv_use=(0.25, 0.5))
    assert page.count(b"\n") >= 1500
    reading = read(page)
    assert (reading.waiting, reading.running, reading.kv_use) == (4, 9, 0.5)
    assert (reading.kv_blocks, reading.block_tokens) == (27000, 16)
    assert reading.ttft is not None
    assert len(reading.ttft.bounds) == 23


@given(st.integers(0, 2**32))
@settings(max_examples=25)
def test_line_order_means_nothing(seed: int) -> None:
    """Invariant: a page read in any order of its lines gives the same reading."""
    lines = vllm_page(waiting=(3, 1), running=(7, 2), kv_use=(0.25, 0.5)).splitlines(keepends=True)
    random.Random(seed).shuffle(lines)  # noqa: S311 -- a repeatable order, not a secret
    assert read(b"".join(lines)) == read(vllm_page(waiting=(3, 1), running=(7, 2), kv_use=(0.25, 0.5)))


@given(st.integers(0, len(vllm_page())))
def test_a_page_cut_anywhere_is_read_without_an_exception(cut: int) -> None:
    """Invariant: a torn page gives for each signal the whole value, a part of it, or unknown; never an exception."""
    reading = read(vllm_page()[:cut])
    assert reading.kv_use is None or 0 <= reading.kv_use <= 0.25


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("0.9.1", KV_USE),
        ("0.8", KV_USE),
        ("v0.6.3.post1", KV_USE),
        ("0.9.2", ""),
        ("0.9.2rc1", KV_USE),
        ("0.9.2.dev12+g0abc", KV_USE),
        ("0.9.2.post1", ""),
        ("0.9.2+cpu", ""),
        ("0.10.0+cu128", ""),
        ("1.0.0", ""),
        ("dev", ""),
        ("", ""),
    ],
)
def test_versions_below_the_minimum_are_told_with_the_metric_they_get_wrong(version: str, fault: str) -> None:
    assert identify(version) == EngineIdentity("vllm", version, fault)


def test_the_names_needed_are_the_ones_reported_missing() -> None:
    assert read("").missing == (WAITING, RUNNING, KV_USE)


def test_the_histogram_is_left_unread_when_nobody_asks_and_nothing_else_changes() -> None:
    reader = VllmReader()
    page = vllm_page(waiting=(3, 1), running=(7, 2), kv_use=(0.25, 0.5))
    whole = reader.read(page)
    assert whole.ttft is not None
    assert reader.read(page, with_ttft=False) == replace(whole, ttft=None, totals=None)


@pytest.mark.parametrize("value", ["1e300", "1.7e308", "1e10"])
def test_f008_a_finite_number_that_no_server_can_have_is_unknown(value: str) -> None:
    """A sum of such numbers fits no report, or not even a float."""
    reading = read(
        f'vllm:num_requests_waiting{{engine="0"}} {value}\nvllm:num_requests_waiting{{engine="1"}} {value}\n'
        f"vllm:num_requests_running 3\nvllm:kv_cache_usage_perc {value}\n"
        f'vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {value}\n'
    )
    assert (reading.waiting, reading.running, reading.kv_use, reading.ttft) == (None, 3, None, None)


def test_f005_adapter_names_that_no_report_can_carry_are_left_out() -> None:
    long, fits = "x" * 257, "x" * 256
    reading = read(
        f'vllm:lora_requests_info{{max_lora="4",running_lora_adapters="a\\nb,ok,{long},{fits}",'
        'waiting_lora_adapters="\x07,w"} 1\n'
    )
    assert reading.active_adapters == {"ok", fits}
    assert reading.waiting_adapters == {"w"}


def test_f010_adapter_names_and_samples_of_one_page_are_bounded() -> None:
    names = ",".join(f"a{number:05}" for number in range(vllm.MAX_ADAPTERS + 1))
    lora = f'vllm:lora_requests_info{{max_lora="4",running_lora_adapters="{names}"}} 1\n'
    assert len(read(lora).active_adapters) == vllm.MAX_ADAPTERS
    flood = "".join(f'vllm:num_requests_waiting{{engine="{rank}"}} 1\n' for rank in range(MAX_SAMPLES))
    assert read(flood).waiting == MAX_SAMPLES
    assert read(flood.encode() + vllm_page()).missing == (WAITING, RUNNING, KV_USE)
