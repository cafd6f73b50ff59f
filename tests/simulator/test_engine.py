from dataclasses import replace

import pytest

from services.core.units import Duration, Instant
from services.simulator.engine import LORA_SERIES_MAX, Engine, Slowdown
from services.simulator.events import (
    AllBlocksCleared,
    EngineRequest,
    Finished,
    FinishReason,
    FirstToken,
    Preempted,
    TokensProduced,
)
from tests.simulator.profiles import TINY, drain, finished

MS = 1_000_000
FOREVER = Instant(10**15)


def request(
    name: str,
    prompt: int = 10,
    output: int = 4,
    *,
    shared: tuple[bytes, ...] = (),
    natural_end: bool = False,
    streamed: bool = False,
    lora: str = "",
) -> EngineRequest:
    return EngineRequest(name, prompt, output, shared, natural_end, streamed, lora)


def test_one_request_takes_its_prefill_and_a_step_per_further_token() -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("a", prompt=10, output=4), Instant(5))
    events = engine.advance(FOREVER)
    first_at = 5 + 1_100_000
    assert events == [
        FirstToken("a", Instant(first_at), 0),
        Finished(
            "a",
            Instant(first_at + 3 * 1_100_000),
            FinishReason.LENGTH,
            4,
            0,
            Instant(5),
            Instant(5),
            Instant(first_at),
        ),
    ]
    assert engine.next_deadline() is None


def test_a_streamed_request_reports_each_token_in_its_step() -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("a", output=3, streamed=True, natural_end=True), Instant(0))
    events = drain(engine)
    assert [type(event) for event in events] == [FirstToken, TokensProduced, TokensProduced, Finished]
    assert [event.at for event in events] == [1_100_000, 2_200_000, 3_300_000, 3_300_000]
    assert finished(events)["a"].reason is FinishReason.STOP


def test_an_engine_nobody_streams_from_wakes_once_per_change_of_its_batch() -> None:
    engine = Engine(replace(TINY, num_gpu_blocks=400), Instant(0))
    engine.submit(request("a", output=200), Instant(0))
    wakes = 0
    while (deadline := engine.next_deadline()) is not None:
        engine.advance(deadline)
        wakes += 1
    assert wakes == 2
    assert engine.tallies.steps == 200


def test_the_step_slows_as_the_batch_grows() -> None:
    alone, crowd = Engine(TINY, Instant(0)), Engine(TINY, Instant(0))
    alone.submit(request("a", output=10), Instant(0))
    for name in "abcd":
        crowd.submit(request(name, output=10), Instant(0))
    assert finished(drain(crowd))["a"].at > finished(drain(alone))["a"].at


def test_a_full_batch_makes_others_wait_in_order() -> None:
    engine = Engine(TINY, Instant(0))
    for index in range(6):
        engine.submit(request(f"{index}", output=5), Instant(0))
    engine.advance(Instant(3 * MS))
    assert (engine.running, engine.waiting) == (4, 2)
    ends = finished(drain(engine))
    starts = [ends[f"{index}"].scheduled_at for index in range(6)]
    assert starts == sorted(starts, key=lambda at: at or 0)
    assert (starts[4] or 0) >= ends["0"].at


def test_a_cached_prefix_brings_the_first_token_forward() -> None:
    engine = Engine(TINY, Instant(0))
    shared = (b"1", b"2", b"3")
    engine.submit(request("cold", prompt=56, shared=shared), Instant(0))
    cold = finished(drain(engine))["cold"]
    engine.submit(request("warm", prompt=56, shared=shared), cold.at)
    warm = finished(drain(engine))["warm"]
    assert (cold.cached_tokens, warm.cached_tokens) == (0, 48)
    assert cold.first_token_at is not None
    assert warm.first_token_at is not None
    saved = (cold.first_token_at - cold.submitted_at) - (warm.first_token_at - warm.submitted_at)
    assert saved == 48 * TINY.prefill_token_us * 1000
    assert (engine.tallies.prefix_queries, engine.tallies.prefix_hits) == (112, 48)


def test_a_preempted_request_keeps_its_tokens_and_finishes() -> None:
    engine = Engine(replace(TINY, num_gpu_blocks=8, max_model_len=128), Instant(0))
    for name in "abcd":
        engine.submit(request(name, prompt=16, output=60, streamed=True), Instant(0))
    events = drain(engine)
    assert any(isinstance(event, Preempted) for event in events)
    assert engine.tallies.preemptions == sum(isinstance(event, Preempted) for event in events)
    assert {name: end.output_tokens for name, end in finished(events).items()} == dict.fromkeys("abcd", 60)
    assert engine.tallies.generation_tokens == 240
    assert engine.tallies.inter_token.count == 4 * 59


def test_an_abort_of_a_waiting_request_is_immediate() -> None:
    engine = Engine(replace(TINY, max_num_seqs=1), Instant(0))
    engine.submit(request("runs"), Instant(0))
    engine.submit(request("waits"), Instant(0))
    engine.abort("waits", Instant(10))
    (end,) = engine.advance(Instant(10))
    assert isinstance(end, Finished)
    assert (end.reason, end.scheduled_at, end.output_tokens) == (FinishReason.ABORT, None, 0)
    assert engine.waiting == 0


@pytest.mark.parametrize("at_ms", [0, 1, 3])
def test_an_abort_of_a_running_request_ends_with_its_step(at_ms: int) -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("a", prompt=100, output=50, streamed=True), Instant(0))
    engine.submit(request("b", output=50, streamed=True), Instant(0))
    engine.advance(Instant(at_ms * MS))
    engine.abort("a", Instant(at_ms * MS))
    engine.abort("a", Instant(at_ms * MS))
    events = drain(engine)
    assert not any(isinstance(e, FirstToken) and e.request_id == "a" for e in events)
    assert not any(isinstance(e, TokensProduced) and "a" in e.request_ids for e in events)
    end = finished(events)["a"]
    assert end.reason is FinishReason.ABORT
    assert end.at - at_ms * MS < 3 * MS
    assert engine.kv_used_blocks == 0


def test_a_running_request_outside_the_step_can_be_aborted_too() -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("first", prompt=200), Instant(0))
    engine.submit(request("second", prompt=200), Instant(0))
    engine.advance(Instant(6 * MS))
    engine.abort("first", Instant(6 * MS))
    engine.abort("second", Instant(6 * MS))
    assert set(finished(drain(engine))) == {"first", "second"}
    assert engine.tallies.finished == {"stop": 0, "length": 0, "abort": 2}


def test_an_abort_of_a_decoding_request_leaves_the_others_tokens_alone() -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("a", output=50), Instant(0))
    engine.submit(request("b", output=50), Instant(0))
    engine.advance(Instant(20 * MS))
    engine.abort("a", Instant(20 * MS))
    ends = finished(drain(engine))
    assert ends["b"].output_tokens == 50
    assert 0 < ends["a"].output_tokens < 50


def test_extra_latency_delays_the_first_token_and_slow_decoding_the_rest() -> None:
    engine = Engine(TINY, Instant(0))
    engine.slow_down(Slowdown(extra_ttft=Duration(50 * MS), inter_token_factor=2.0), Instant(0))
    engine.submit(request("a", output=3), Instant(0))
    assert engine.next_deadline() == 50 * MS
    assert (engine.running, engine.waiting) == (0, 1)
    end = finished(drain(engine))["a"]
    assert end.first_token_at == 50 * MS + 2_000_000 + 100_000
    assert end.at - end.first_token_at == 2 * 2_200_000


def test_a_slowdown_acts_from_the_next_step_on() -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("a", output=4), Instant(0))
    engine.slow_down(Slowdown(inter_token_factor=10.0), Instant(1_500_000))
    assert finished(drain(engine))["a"].at == 2 * 1_100_000 + 2 * 11_000_000


def test_a_delayed_request_can_be_aborted_before_it_is_seen() -> None:
    engine = Engine(TINY, Instant(0))
    engine.slow_down(Slowdown(extra_ttft=Duration(50 * MS)), Instant(0))
    engine.submit(request("a"), Instant(0))
    engine.abort("a", Instant(1))
    events = drain(engine)
    assert finished(events)["a"].at == 1
    assert engine.tallies.steps == 0


def test_an_abort_of_an_unknown_request_is_ignored() -> None:
    engine = Engine(TINY, Instant(0))
    engine.abort("gone", Instant(0))
    assert engine.advance(Instant(0)) == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (request("a"), "already in flight"),
        (request("b", prompt=0), "at least one prompt"),
        (request("b", output=0), "at least one prompt"),
        (request("b", prompt=250, output=7), "exceeds max_model_len 256"),
    ],
)
def test_an_impossible_request_is_refused(bad: EngineRequest, message: str) -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("a"), Instant(0))
    with pytest.raises(ValueError, match=message):
        engine.submit(bad, Instant(1))


def test_time_does_not_go_back() -> None:
    engine = Engine(TINY, Instant(0))
    engine.advance(Instant(10))
    with pytest.raises(ValueError, match="time went back from 10 to 9"):
        engine.advance(Instant(9))


def test_events_of_a_submission_are_due_at_once() -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("a", output=1), Instant(0))
    engine.submit(request("b", output=1), Instant(5 * MS))
    assert engine.next_deadline() == 5 * MS
    assert engine.kv_usage == 1 / 24
    assert [event.at for event in engine.advance(Instant(5 * MS))] == [1_100_000, 1_100_000]


def test_a_later_turn_reuses_the_prompt_and_the_answer_of_the_former() -> None:
    engine = Engine(TINY, Instant(0))
    chain = tuple(bytes([index]) for index in range(6))
    engine.submit(request("first", prompt=40, output=30, shared=chain[:4]), Instant(0))
    first = finished(drain(engine))["first"]
    assert engine.kv_used_blocks == 0
    engine.submit(request("second", prompt=90, output=4, shared=chain[:5]), first.at)
    # 40 + 30 tokens were known, the last one never computed: four full blocks.
    assert finished(drain(engine))["second"].cached_tokens == 64
    assert engine.tallies.prefix_hits == 64
    assert engine.tallies.prefix_queries == 130


LORA = replace(TINY, max_loras=1, lora_load_us=5_000)


def test_bringing_in_an_adapter_holds_up_the_step_for_everybody() -> None:
    engine = Engine(LORA, Instant(0))
    engine.submit(request("a", output=1, lora="x"), Instant(0))
    engine.submit(request("base", output=1), Instant(0))
    ends = finished(drain(engine))
    assert ends["a"].at == 6_100_000
    engine.submit(request("again", output=1, lora="x"), ends["base"].at)
    again = finished(drain(engine))["again"]
    assert again.at - ends["base"].at == 1_100_000
    assert engine.resident_adapters == ("x",)


def test_the_pairs_of_adapters_seen_end_with_the_newest() -> None:
    engine = Engine(LORA, Instant(0))
    engine.submit(request("a", output=3, lora="x"), Instant(0))
    engine.submit(request("b", output=3, lora="y"), Instant(0))
    drain(engine)
    assert list(engine.adapters_seen) == [("x", ""), ("x", "y"), ("y", ""), ("", "")]
    moments = list(engine.adapters_seen.values())
    assert moments == sorted(moments)


def test_the_pairs_of_adapters_seen_are_bounded() -> None:
    engine = Engine(LORA, Instant(0))
    now = Instant(0)
    for number in range(LORA_SERIES_MAX):
        engine.submit(request(f"r{number}", output=1, lora=f"a{number}"), now)
        now = finished(drain(engine))[f"r{number}"].at
    assert len(engine.adapters_seen) == LORA_SERIES_MAX
    assert list(engine.adapters_seen)[-1] == ("", "")


def test_an_engine_without_adapters_remembers_none() -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("a"), Instant(0))
    drain(engine)
    assert engine.adapters_seen == {}


def test_the_decode_rate_is_that_of_the_step_in_progress() -> None:
    engine = Engine(TINY, Instant(0))
    assert engine.decode_tokens_per_s == 0
    engine.submit(request("a"), Instant(0))
    assert engine.decode_tokens_per_s == 0
    engine.advance(Instant(1_200_000))
    assert engine.decode_tokens_per_s == pytest.approx(1 / 0.0011)
    drain(engine)
    assert engine.decode_tokens_per_s == 0


def test_a_sleeping_engine_finishes_its_step_and_goes_on_when_woken() -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("a", output=4), Instant(0))
    engine.sleep(Instant(MS))
    engine.submit(request("b", output=1), Instant(2 * MS))
    asleep = engine.advance(Instant(50 * MS))
    assert [event.at for event in asleep] == [1_100_000]
    states = [engine.asleep]
    assert engine.next_deadline() is None
    engine.wake(Instant(100 * MS))
    states.append(engine.asleep)
    engine.wake(Instant(100 * MS))
    ends = finished(drain(engine))
    assert states == [True, False]
    assert ends["a"].at > 100 * MS
    assert ends["b"].output_tokens == 1


def test_an_engine_woken_within_its_step_loses_no_time() -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("a", output=4), Instant(0))
    engine.sleep(Instant(MS // 2))
    engine.wake(Instant(MS))
    assert finished(drain(engine))["a"].at == 4_400_000


def test_cached_blocks_are_forgotten_only_when_nobody_holds_any() -> None:
    engine = Engine(TINY, Instant(0), journal=True)
    engine.submit(request("a", prompt=32, shared=(b"0", b"1")), Instant(0))
    assert not engine.reset_prefix_cache(Instant(0))
    at = finished(drain(engine))["a"].at
    engine.kv_changes()
    assert engine.reset_prefix_cache(at)
    assert engine.kv_changes() == [AllBlocksCleared()]
    engine.submit(request("b", prompt=32, shared=(b"0", b"1")), at)
    assert finished(drain(engine))["b"].cached_tokens == 0
    engine.sleep(Instant(FOREVER))
    assert AllBlocksCleared() in engine.kv_changes()


def test_an_engine_without_journal_tells_nothing_of_its_blocks() -> None:
    engine = Engine(TINY, Instant(0))
    engine.submit(request("a", prompt=32, shared=(b"0", b"1")), Instant(0))
    drain(engine)
    assert engine.kv_changes() == []
