from dataclasses import replace

from services.core.units import Instant
from services.simulator.events import EngineRequest
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


def request(name: str, prompt: int, output: int = 8, *, shared: tuple[bytes, ...] = ()) -> EngineRequest:
    return EngineRequest(request_id=name, prompt_tokens=prompt, output_tokens=output, block_hashes=shared)


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
