"""`trtllm-serve`: both generations of its page, blocks as prefix look-ups, and JSON where a page should be."""

from dataclasses import replace

import pytest

from services.adapters.model_server.trtllm import KV_USE, RUNNING, WAITING, TrtllmReader, identify
from services.core.pods.reading import EngineIdentity, TokenTotals
from tests.adapters.model_server.releases import Release

PAGE = Release("trtllm-serve", "1.3.0").page


def test_a_whole_page() -> None:
    reader = TrtllmReader()
    reading = reader.read(PAGE)
    assert (reading.waiting, reading.running, reading.kv_use) == (3, 12, 0.43)
    assert (reading.kv_blocks, reading.block_tokens) == (13920, 32)
    assert reading.models == {"meta-llama/Llama-3.1-8B-Instruct"}
    assert reading.totals == TokenTotals(812450.0, 96213.0, 15879.0 + 9511.0, 15879.0)
    assert reading.ttft is not None
    assert reading.ttft.counts[-1] == 380.0
    assert reader.read(PAGE, with_ttft=False) == replace(reading, ttft=None, totals=None)


def test_a_release_before_the_gauges_lacks_them_by_name() -> None:
    reading = TrtllmReader().read(Release("trtllm-serve", "1.1.0").page)
    assert reading.missing == (WAITING, RUNNING, KV_USE)
    assert (reading.waiting, reading.running, reading.kv_use) == (None, None, None)


def test_iteration_statistics_in_json_are_no_page() -> None:
    page = b'[{"iter": 7, "numActiveRequests": 3, "trtllm_num_requests_waiting": 0}]'
    assert TrtllmReader().read(page).missing == (WAITING, RUNNING, KV_USE)


@pytest.mark.parametrize("gone", [b"reused", b"missed"])
def test_half_of_the_look_ups_tells_no_number_of_them(gone: bytes) -> None:
    reading = TrtllmReader().read(PAGE.replace(b"trtllm_kv_cache_" + gone, b"other_" + gone))
    assert reading.totals is not None
    assert reading.totals.prefix_queries is None


def test_every_version_is_served() -> None:
    assert identify("1.1.0") == EngineIdentity("trtllm-serve", "1.1.0")
