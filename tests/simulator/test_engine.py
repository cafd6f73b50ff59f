from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.units import Duration, Instant
from services.simulator.engine import Engine, Slowdown
from services.simulator.events import (
    EngineEvent,
    EngineRequest,
    Finished,
    FinishReason,
    FirstToken,
    Preempted,
    TokensProduced,
)
from services.simulator.profile import EngineProfile
from tests.simulator.profiles import TINY

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
) -> EngineRequest:
    return EngineRequest(name, prompt, output, shared, natural_end, streamed)


def drain(engine: Engine) -> list[EngineEvent]:
    """Advance from deadline to deadline until the engine is idle."""
    events: list[EngineEvent] = []
    while (deadline := engine.next_deadline()) is not None:
        events += engine.advance(deadline)
    return events


def finished(events: list[EngineEvent]) -> dict[str, Finished]:
    return {event.request_id: event for event in events if isinstance(event, Finished)}


# --- examples -----------------------------------------------------------------------------------


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


# --- properties ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrival:
    gap_us: int
    request: EngineRequest
    abort_after_us: int | None


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    drawn = []
    for index in range(draw(st.integers(1, 12))):
        prompt = draw(st.integers(1, 120))
        family = draw(st.sampled_from("xyz"))
        shareable = draw(st.integers(0, prompt // 16))
        drawn.append(
            Arrival(
                gap_us=draw(st.sampled_from([0, 1, 700, 1_100, 5_000, 200_000])),
                request=EngineRequest(
                    request_id=f"r{index}",
                    prompt_tokens=prompt,
                    output_tokens=draw(st.integers(1, 120)),
                    block_hashes=tuple(f"{family}{i}".encode() for i in range(shareable)),
                    natural_end=draw(st.booleans()),
                    streamed=draw(st.booleans()),
                ),
                abort_after_us=draw(st.sampled_from([None, None, None, 0, 900, 30_000])),
            )
        )
    return drawn


PROFILES = st.sampled_from(
    [
        TINY,
        replace(TINY, num_gpu_blocks=16, time_factor_under_load=3.0),
        replace(TINY, max_num_seqs=2, max_num_batched_tokens=8),
        replace(TINY, prefix_caching=False),
    ]
)


@dataclass(frozen=True, order=True)
class Call:
    at: int
    order: int
    arrival: Arrival
    abort: bool


def calls(drawn: list[Arrival]) -> list[Call]:
    result, at = [], 0
    for order, arrival in enumerate(drawn):
        at += arrival.gap_us * 1_000
        result.append(Call(at, 2 * order, arrival, abort=False))
        if arrival.abort_after_us is not None:
            result.append(Call(at + arrival.abort_after_us * 1_000, 2 * order + 1, arrival, abort=True))
    return sorted(result, key=lambda call: (call.at, call.order))


def play(
    profile: EngineProfile, drawn: list[Arrival], pace_us: int | None
) -> tuple[Engine, list[EngineEvent]]:
    """Run a story; with `pace_us` the clock also moves in steps of that size in between."""
    engine = Engine(profile, Instant(0))
    events: list[EngineEvent] = []
    now = 0
    for call in calls(drawn):
        while pace_us is not None and now + pace_us * 1_000 < call.at:
            now += pace_us * 1_000
            events += engine.advance(Instant(now))
            check_capacity(engine, profile)
        now = call.at
        if call.abort:
            engine.abort(call.arrival.request.request_id, Instant(now))
        else:
            engine.submit(call.arrival.request, Instant(now))
        check_capacity(engine, profile)
    if pace_us is None:
        events += engine.advance(FOREVER)
    while pace_us is not None and engine.next_deadline() is not None:
        now += pace_us * 1_000
        events += engine.advance(Instant(now))
        check_capacity(engine, profile)
    return engine, events


def check_capacity(engine: Engine, profile: EngineProfile) -> None:
    assert 0 <= engine.kv_used_blocks <= profile.num_gpu_blocks
    assert engine.running <= profile.max_num_seqs
    # Work conservation: nothing waits beside an empty batch.
    assert engine.running > 0 or engine.waiting == 0


@settings(max_examples=150, deadline=None)
@given(PROFILES, arrivals(), st.sampled_from([90, 1_000, 7_000]))
def test_many_small_steps_equal_one_big_step(
    profile: EngineProfile, drawn: list[Arrival], pace_us: int
) -> None:
    """Invariant: the events and totals are a function of the submissions alone, not of how time was cut."""
    one, big = play(profile, drawn, None)
    other, small = play(profile, drawn, pace_us)
    assert big == small
    assert one.tallies.generation_tokens == other.tallies.generation_tokens
    assert one.tallies.inter_token.counts == other.tallies.inter_token.counts
    assert one.tallies.inter_token.sum_ns == other.tallies.inter_token.sum_ns
    assert one.tallies.steps == other.tallies.steps
    assert one.tallies.busy_ns == other.tallies.busy_ns


@settings(max_examples=150, deadline=None)
@given(PROFILES, arrivals())
def test_no_token_and_no_request_is_lost(profile: EngineProfile, drawn: list[Arrival]) -> None:
    """Invariant: each request ends once, with exactly its tokens unless aborted, and leaves no block behind."""
    engine, events = play(profile, drawn, None)
    ends = finished(events)
    assert len(ends) == len(drawn) == sum(isinstance(event, Finished) for event in events)
    first = Counter(event.request_id for event in events if isinstance(event, FirstToken))
    further = Counter(name for e in events if isinstance(e, TokensProduced) for name in e.request_ids)
    for arrival in drawn:
        wanted = arrival.request
        end = ends[wanted.request_id]
        if end.reason is FinishReason.ABORT:
            assert arrival.abort_after_us is not None
            assert end.output_tokens <= wanted.output_tokens
        else:
            assert end.output_tokens == wanted.output_tokens
            assert first[wanted.request_id] == 1
        if wanted.streamed:
            assert first[wanted.request_id] + further[wanted.request_id] == end.output_tokens
    assert engine.tallies.generation_tokens == sum(end.output_tokens for end in ends.values())
    assert sum(engine.tallies.finished.values()) == len(drawn)
    assert (engine.running, engine.waiting, engine.kv_used_blocks) == (0, 0, 0)


@settings(max_examples=100, deadline=None)
@given(PROFILES, arrivals())
def test_time_only_goes_forward(profile: EngineProfile, drawn: list[Arrival]) -> None:
    """Invariant: events come in order of time, and each request's phases in their order."""
    _, events = play(profile, drawn, None)
    assert all(earlier.at <= later.at for earlier, later in pairwise(events))
    for end in finished(events).values():
        phases = [end.submitted_at, end.scheduled_at, end.first_token_at, end.at]
        reached = [at for at in phases if at is not None]
        assert reached == sorted(reached)


@settings(max_examples=100, deadline=None)
@given(PROFILES, arrivals())
def test_the_engine_works_whenever_there_is_work(profile: EngineProfile, drawn: list[Arrival]) -> None:
    """Invariant: busy time is what the steps cost, and a lone busy period has no gap in it."""
    together = [replace(arrival, gap_us=0, abort_after_us=None) for arrival in drawn]
    engine, events = play(profile, together, None)
    assert engine.tallies.busy_ns == max(event.at for event in events)


@settings(max_examples=100, deadline=None)
@given(PROFILES, arrivals())
def test_the_same_story_gives_the_same_events(profile: EngineProfile, drawn: list[Arrival]) -> None:
    """Invariant: two engines told the same agree in every event and every histogram."""
    one, first = play(profile, drawn, None)
    other, second = play(profile, drawn, None)
    assert first == second
    assert one.tallies.e2e.counts == other.tallies.e2e.counts


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 15), st.integers(1, 60))
def test_prefix_hits_reduce_prefill(blocks: int, output: int) -> None:
    """Invariant: a repeated prompt is never slower to its first token, and skips all full blocks but the last token's."""
    engine = Engine(TINY, Instant(0))
    prompt = blocks * 16
    output = min(output, TINY.max_model_len - prompt)
    shared = tuple(bytes([i]) for i in range(blocks))
    if output < 1:
        return
    engine.submit(EngineRequest("cold", prompt, output, shared), Instant(0))
    cold = finished(drain(engine))["cold"]
    engine.submit(EngineRequest("warm", prompt, output, shared), cold.at)
    warm = finished(drain(engine))["warm"]
    assert warm.cached_tokens == prompt - 16
    assert warm.first_token_at is not None
    assert cold.first_token_at is not None
    assert warm.first_token_at - warm.submitted_at < cold.first_token_at - cold.submitted_at
