from dataclasses import replace

from services.core.units import Instant
from services.simulator.events import BlocksRemoved, BlocksStored, EngineRequest, KvChange
from services.simulator.profile import EngineProfile
from services.simulator.scheduler import Scheduler, Sequence, StepPlan
from tests.simulator.profiles import TINY


def waiting(scheduler: Scheduler, *requests: EngineRequest) -> list[Sequence]:
    sequences = [Sequence(request, Instant(0)) for request in requests]
    scheduler.waiting.extend(sequences)
    return sequences


def complete(scheduler: Scheduler, plan: StepPlan) -> None:
    """Carry out one step of `plan` as the engine would."""
    for sequence in plan.decode:
        sequence.computed += 1
        sequence.produced += 1
    for sequence, tokens in plan.prefill:
        sequence.computed += tokens
        scheduler.offer_blocks(sequence)
        if sequence.computed == sequence.known_tokens:
            sequence.produced += 1


def request(
    name: str, prompt: int, output: int = 8, *, shared: tuple[bytes, ...] = (), lora: str = ""
) -> EngineRequest:
    return EngineRequest(name, prompt, output, shared, lora=lora)


def small(num_gpu_blocks: int, max_model_len: int) -> EngineProfile:
    return replace(TINY, num_gpu_blocks=num_gpu_blocks, max_model_len=max_model_len)


def test_a_long_prompt_is_cut_to_the_budget_of_each_step() -> None:
    scheduler = Scheduler(TINY)
    (long,) = waiting(scheduler, request("long", 150))
    chunks = []
    for _ in range(3):
        plan = scheduler.plan()
        chunks.append([tokens for _, tokens in plan.prefill])
        complete(scheduler, plan)
    assert chunks == [[64], [64], [22]]
    assert scheduler.plan().decode == [long]


def test_decoding_comes_before_new_prompts_in_the_budget() -> None:
    scheduler = Scheduler(TINY)
    first, second = waiting(scheduler, request("first", 10), request("second", 64))
    complete(scheduler, scheduler.plan())
    plan = scheduler.plan()
    assert plan.decode == [first]
    assert plan.prefill == [(second, 10)]


def test_no_more_run_than_max_num_seqs() -> None:
    scheduler = Scheduler(TINY)
    waiting(scheduler, *(request(str(i), 4) for i in range(6)))
    plan = scheduler.plan()
    assert [s.request.request_id for s in plan.admitted] == ["0", "1", "2", "3"]
    assert len(scheduler.waiting) == 2


def test_a_prompt_without_room_waits_and_holds_up_those_behind_it() -> None:
    scheduler = Scheduler(small(num_gpu_blocks=4, max_model_len=64))
    waiting(scheduler, request("one", 40), request("big", 24), request("small", 4))
    plan = scheduler.plan()
    assert [s.request.request_id for s in plan.admitted] == ["one"]
    assert scheduler.kv.used_blocks == 3


def test_a_cached_prefix_is_not_computed_again_but_its_last_token_is() -> None:
    scheduler = Scheduler(TINY)
    shared = (b"a", b"b")
    (first,) = waiting(scheduler, request("first", 32, shared=shared))
    complete(scheduler, scheduler.plan())
    scheduler.running.remove(first)
    scheduler.release(first)
    same, longer = waiting(
        scheduler, request("same", 32, shared=shared), request("longer", 40, shared=shared)
    )
    plan = scheduler.plan()
    assert plan.prefill == [(same, 16), (longer, 8)]
    assert scheduler.kv.used_blocks == 2 + 1 + 1


def test_the_latest_admitted_is_preempted_when_blocks_run_out() -> None:
    scheduler = Scheduler(small(num_gpu_blocks=2, max_model_len=32))
    old, young = waiting(scheduler, request("old", 16), request("young", 15))
    complete(scheduler, scheduler.plan())
    plan = scheduler.plan()
    assert plan.preempted == [young]
    assert plan.decode == [old]
    assert list(scheduler.waiting) == [young]
    assert (young.computed, young.produced, young.private) == (0, 1, 0)


def test_a_sequence_that_finds_no_block_and_is_the_latest_preempts_itself() -> None:
    scheduler = Scheduler(small(num_gpu_blocks=2, max_model_len=32))
    old, young = waiting(scheduler, request("old", 15), request("young", 16))
    complete(scheduler, scheduler.plan())
    plan = scheduler.plan()
    assert plan.decode == [old]
    assert plan.preempted == [young]


def test_identical_steps_end_with_the_first_answer() -> None:
    scheduler = Scheduler(TINY)
    waiting(scheduler, request("short", 4, 3), request("long", 4, 9))
    plan = scheduler.plan()
    assert scheduler.identical_steps(plan) == 1
    complete(scheduler, plan)
    assert scheduler.identical_steps(scheduler.plan()) == 2


def test_identical_steps_end_before_blocks_can_run_out() -> None:
    scheduler = Scheduler(small(num_gpu_blocks=4, max_model_len=64))
    waiting(scheduler, request("one", 16, 40), request("other", 16, 40))
    complete(scheduler, scheduler.plan())
    plan = scheduler.plan()
    assert scheduler.kv.available_blocks == 0
    assert scheduler.identical_steps(plan) == 1


def test_an_idle_scheduler_plans_nothing() -> None:
    plan = Scheduler(TINY).plan()
    assert (plan.prefill, plan.decode, plan.preempted) == ([], [], [])


def test_a_request_whose_adapter_finds_no_slot_is_passed_by() -> None:
    scheduler = Scheduler(replace(TINY, max_loras=1))
    first, other, same, base = waiting(
        scheduler,
        request("first", 4, lora="a"),
        request("other", 4, lora="b"),
        request("same", 4, lora="a"),
        request("base", 4),
    )
    plan = scheduler.plan()
    assert plan.admitted == [first, same, base]
    assert plan.lora_loads == 1
    assert list(scheduler.waiting) == [other]
    for sequence in plan.admitted:
        scheduler.running.remove(sequence)
        scheduler.release(sequence)
    plan = scheduler.plan()
    assert (plan.admitted, plan.lora_loads) == ([other], 1)


def test_those_passed_by_keep_their_order_when_blocks_run_out_behind_them() -> None:
    roomy = small(num_gpu_blocks=4, max_model_len=64)
    scheduler = Scheduler(replace(roomy, max_loras=1, max_num_batched_tokens=256))
    waiting(
        scheduler,
        request("runs", 32, lora="a"),
        request("b", 4, lora="b"),
        request("c", 4, lora="c"),
        request("big", 48),
    )
    assert [s.request.request_id for s in scheduler.plan().admitted] == ["runs"]
    assert [s.request.request_id for s in scheduler.waiting] == ["b", "c", "big"]


def test_a_preempted_sequence_gives_its_adapters_slot_back() -> None:
    scheduler = Scheduler(replace(small(num_gpu_blocks=2, max_model_len=32), max_loras=2))
    waiting(scheduler, request("old", 16, lora="a"), request("young", 15, lora="b"))
    complete(scheduler, scheduler.plan())
    scheduler.plan()
    assert scheduler.lora.running == ("a",)


def decoding(journal: list[KvChange] | None = None) -> tuple[Scheduler, list[Sequence]]:
    """Three sequences past their prompts, at different places in their blocks, in a cache with idle blocks."""
    scheduler = Scheduler(replace(TINY, num_gpu_blocks=16), journal)
    for name in ("i", "j", "k"):
        assert scheduler.kv.take(1)
        assert scheduler.kv.share(name.encode())
        scheduler.kv.release([name.encode()], 0)
    sequences = waiting(
        scheduler,
        request("p", 10, 60, shared=(b"x0", b"x1", b"x2", b"x3")),
        request("q", 16, 60, shared=(b"y0", b"y1", b"j", b"y3")),
        request("r", 13, 60, shared=(b"x0", b"x1", b"x2", b"x3")),
    )
    complete(scheduler, scheduler.plan())
    scheduler.plan()
    return scheduler, sequences


def test_many_decode_steps_leave_the_cache_as_one_after_the_other_would() -> None:
    journal: list[KvChange] = []
    slow_journal: list[KvChange] = []
    fast, at_once = decoding(journal)
    slow, one_by_one = decoding(slow_journal)
    fast.decode_steps(at_once, 40)
    for step in range(40):
        if step:
            assert all(slow.grow(sequence, 1) for sequence in one_by_one)
        slow.decode_steps(one_by_one, 1)
    assert journal == slow_journal
    assert [(s.computed, s.private, s.shared) for s in at_once] == [
        (s.computed, s.private, s.shared) for s in one_by_one
    ]
    assert (fast.kv.used_blocks, list(fast.kv._idle)) == (slow.kv.used_blocks, list(slow.kv._idle))


def test_blocks_of_the_answer_are_stored_after_those_of_the_prompt() -> None:
    journal: list[KvChange] = []
    scheduler = Scheduler(TINY, journal)
    content = bytes(range(256))
    made = EngineRequest("a", 40, 20, (b"0", b"1", b"2"), lora="", content=content, cache_salt="s")
    (sequence,) = waiting(scheduler, made)
    complete(scheduler, scheduler.plan())
    assert journal == [BlocksStored((b"0", b"1"), None, 0, content[:128], "", "s")]
    scheduler.plan()
    scheduler.decode_steps([sequence], 12)
    assert journal[1:] == [BlocksStored((b"2",), b"1", 2, content[128:192], "", "s")]


def test_a_block_somebody_else_stored_is_not_told_again() -> None:
    journal: list[KvChange] = []
    scheduler = Scheduler(TINY, journal)
    assert scheduler.kv.take(1)
    assert scheduler.kv.share(b"1")
    waiting(scheduler, request("a", 60, shared=(b"0", b"1", b"2")))
    complete(scheduler, scheduler.plan())
    stored = [change for change in journal if isinstance(change, BlocksStored)]
    assert [(change.hashes, change.parent, change.first) for change in stored] == [
        ((b"0",), None, 0),
        ((b"2",), b"1", 2),
    ]
    assert not any(isinstance(change, BlocksRemoved) for change in journal)
