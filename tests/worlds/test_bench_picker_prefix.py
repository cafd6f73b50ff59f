"""What is measured of a prefix: bodies of their size, half of each known, and every step counted."""

from collections.abc import Iterator

import pytest

from services.wire.openai.prompts import read_prompt
from services.worlds.bench_picker_prefix import (
    KINDS,
    PrefixOptions,
    Spans,
    body_of,
    indexes_of,
    measure,
    run,
)
from services.worlds.bench_picker_stage import MODEL, POOL


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_has_its_tokens_and_its_first_half_is_everyones(kind: str) -> None:
    prompts = [read_prompt(body_of(kind, 8_000, number))[1] for number in (0, 1)]
    for prompt in prompts:
        assert 7_800 < len(prompt.data) / prompt.unit_bytes < 8_200
    half = len(prompts[0].data) * 9 // 20
    assert prompts[0].data[:half] == prompts[1].data[:half]
    assert prompts[0].data[-1_000:] != prompts[1].data[-1_000:]
    assert prompts[0].token_ids is (kind == "ids")


@pytest.mark.parametrize("kind", KINDS)
def test_all_work_of_a_prompt_is_counted_and_recorded(kind: str) -> None:
    indexes = indexes_of(3)
    body = body_of(kind, 6_400, 1)
    cpu, longest, found = measure(indexes, body, "pod-1")
    assert cpu > 0
    assert longest > 0
    assert found.matched == {}
    _, prompt = read_prompt(body)
    again = indexes.signals(POOL, MODEL, prompt)
    assert again.matched == {"pod-1": again.total_blocks}
    assert 98 <= again.total_blocks <= 104


def test_every_slice_is_a_step_of_its_own() -> None:
    def work() -> Iterator[None]:
        yield
        yield
        return "done"  # type: ignore[return-value]  # a generator's result is not its iterator's type

    spans = Spans()
    assert spans.sliced(work()) == "done"  # type: ignore[arg-type]  # as above
    assert len(spans.steps) == 3
    assert spans.whole(lambda: 7) == 7
    assert len(spans.steps) == 4


def test_cpu_and_the_longest_block_have_their_limits() -> None:
    lines: list[str] = []
    figures = run(PrefixOptions(pods=3, prompt_tokens=2_000, rounds=2), lines.append)
    limits = {figure.name: figure.reference for figure in figures if figure.limited}
    assert limits == {
        f"prefix.{kind}.2000.{name}": limit
        for kind in KINDS
        for name, limit in (("cpu", 3.0), ("longest_block", 1.0))
    }
    assert len(lines) == len(KINDS)
