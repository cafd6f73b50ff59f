from dataclasses import replace
from typing import Any

import pytest

from services.simulator.profile import H100_8B, PROFILES
from tests.simulator.profiles import TINY


def test_presets_are_found_by_their_names() -> None:
    assert {name: profile.name for name, profile in PROFILES.items()} == {
        "h100-8b": "h100-8b",
        "a10-8b": "a10-8b",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1"),
        ({"step_base_us": 0}, "step_base_us must be at least 1"),
        ({"prefill_token_us": -1}, "prefill_token_us must not be negative"),
        ({"max_num_batched_tokens": 3}, "must be at least max_num_seqs"),
        ({"max_model_len": 24 * 16 + 1}, "exceeds the KV cache"),
        ({"time_factor_under_load": 0.5}, "time_factor_under_load must be 1 to 100"),
    ],
)
def test_an_engine_that_could_not_finish_a_request_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TINY, **change)


def test_a_step_costs_its_base_its_prompt_tokens_and_its_decoding_sequences() -> None:
    assert TINY.step_ns(0, 1, 1) == 1_100_000
    assert TINY.step_ns(0, 4, 4) == 1_400_000
    assert TINY.step_ns(50, 0, 1) == 1_500_000


def test_a_slow_gpu_stretches_decoding_and_not_the_prompt() -> None:
    assert TINY.step_ns(50, 1, 2, inter_token_factor=3.0) == 3 * 1_100_000 + 500_000


def test_the_time_factor_reaches_its_value_when_the_batch_is_full() -> None:
    loaded = replace(TINY, time_factor_under_load=2.0)
    assert loaded.step_ns(0, 1, 1) == TINY.step_ns(0, 1, 1)
    assert loaded.step_ns(0, 4, 4) == 2 * TINY.step_ns(0, 4, 4)


def test_an_engine_of_one_sequence_has_no_load_to_stretch_under() -> None:
    single = replace(H100_8B, max_num_seqs=1, time_factor_under_load=3.0)
    assert single.step_ns(0, 1, 1) == H100_8B.step_ns(0, 1, 1)
