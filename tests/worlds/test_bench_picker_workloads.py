"""Workloads: the same for every profile, and of the shape they claim."""

from dataclasses import replace

from services.core.units import NS_PER_S, Instant
from services.worlds.bench_picker_workloads import ONE_SHOT, SHARED, UNIFORM, Arrivals, Turn, Workload

START = Instant(5 * NS_PER_S)


def turns_of(workload: Workload) -> list[Turn]:
    arrivals = Arrivals(workload, START)
    turns = []
    for turn in arrivals:
        turns.append(turn)
        arrivals.answered(turn)
    return turns


def test_requests_come_at_their_rate_in_their_time() -> None:
    turns = turns_of(replace(UNIFORM, seconds=20.0))
    assert 1_800 < len(turns) < 2_200
    assert all(START <= turn.at < START + 20 * NS_PER_S for turn in turns)
    assert [turn.at for turn in turns] == sorted(turn.at for turn in turns)
    assert [turn.number for turn in turns] == list(range(len(turns)))


def test_a_seed_gives_the_same_requests_again_and_another_gives_others() -> None:
    short = replace(SHARED, seconds=2.0)
    first, again, other = turns_of(short), turns_of(short), turns_of(replace(short, seed=4))
    assert [turn.prompt for turn in first] == [turn.prompt for turn in again]
    assert [turn.prompt for turn in first] != [turn.prompt for turn in other]


def test_four_fifths_of_the_requests_begin_with_the_one_prefix() -> None:
    for workload in (SHARED, ONE_SHOT):
        turns = turns_of(replace(workload, seconds=15.0))
        openings = [turn.prompt[: 4 * workload.opening_tokens] for turn in turns]
        most = max(set(openings), key=openings.count)
        assert 0.74 < openings.count(most) / len(openings) < 0.86


def test_no_prompts_of_the_uniform_workload_begin_alike() -> None:
    turns = turns_of(replace(UNIFORM, seconds=5.0))
    assert len({turn.prompt[:64] for turn in turns}) == len(turns)
    assert {len(turn.prompt) for turn in turns} == {4 * 1024}


def test_a_turn_repeats_all_that_was_said_and_answered_before() -> None:
    workload = replace(SHARED, conversations=1, seconds=0.5)
    arrivals = Arrivals(workload, START)
    before: Turn | None = None
    for turn in arrivals:
        if before is not None and turn.conversation is before.conversation:
            assert turn.prompt.startswith(before.prompt)
            said = len(before.prompt) + 4 * before.answer_tokens
            assert len(turn.prompt) == said + 4 * workload.question_tokens
        arrivals.answered(turn)
        before = turn
    assert before is not None
    assert 32 <= before.answer_tokens <= 224


def test_a_conversation_that_still_waits_is_not_asked_again() -> None:
    workload = replace(SHARED, conversations=1, seconds=0.5)
    conversations = [turn.conversation for turn in Arrivals(workload, START)]
    assert len(set(map(id, conversations))) == len(conversations) > 10
