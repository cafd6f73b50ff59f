"""What holds for every story an engine can be told: nothing lost, nothing early, however time is cut."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.units import Instant
from services.simulator.engine import Engine
from services.simulator.events import (
    BlocksRemoved,
    BlocksStored,
    EngineEvent,
    EngineRequest,
    Finished,
    FinishReason,
    FirstToken,
    TokensProduced,
)
from services.simulator.profile import EngineProfile
from tests.simulator.profiles import TINY, drain, finished

FOREVER = Instant(10**15)


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
        output = draw(st.integers(1, 120))
        # The last token of an answer is never fed back, so it fills no block.
        shareable = draw(st.integers(0, (prompt + output - 1) // 16))
        lora = draw(st.sampled_from(["", "", "a", "b", "c"]))
        drawn.append(
            Arrival(
                gap_us=draw(st.sampled_from([0, 1, 700, 1_100, 5_000, 200_000])),
                request=EngineRequest(
                    request_id=f"r{index}",
                    prompt_tokens=prompt,
                    output_tokens=output,
                    block_hashes=tuple(f"{family}{i}{lora}".encode() for i in range(shareable)),
                    lora=lora,
                    natural_end=draw(st.booleans()),
                    streamed=draw(st.booleans()),
                ),
                abort_after_us=draw(st.sampled_from([None, None, None, 0, 900, 30_000])),
            )
        )
    return drawn


LORA = replace(TINY, max_loras=2, lora_load_us=3_000)
PROFILES = st.sampled_from(
    [
        LORA,
        replace(LORA, num_gpu_blocks=16, time_factor_under_load=3.0),
        replace(LORA, max_num_seqs=2, max_num_batched_tokens=8),
        replace(LORA, prefix_caching=False),
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
    engine = Engine(profile, Instant(0), journal=True)
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
    assert len(engine._scheduler.lora.running) <= profile.max_loras
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
    assert one.kv_changes() == other.kv_changes()
    assert one.adapters_seen == other.adapters_seen


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


@settings(max_examples=150, deadline=None)
@given(PROFILES, arrivals())
def test_who_follows_the_journal_knows_what_is_cached(profile: EngineProfile, drawn: list[Arrival]) -> None:
    """Invariant: stored minus removed blocks are exactly those a request could reuse, and none comes twice."""
    engine, _ = play(profile, drawn, None)
    known: set[bytes] = set()
    for change in engine.kv_changes():
        if isinstance(change, BlocksStored):
            assert not known & set(change.hashes)
            known.update(change.hashes)
        elif isinstance(change, BlocksRemoved):
            assert known >= set(change.hashes)
            known.difference_update(change.hashes)
    assert known == set(engine._scheduler.kv._idle)
    assert engine.kv_changes() == []


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
