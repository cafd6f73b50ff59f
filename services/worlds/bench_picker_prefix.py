"""What the prefix work of one prompt of 100,000 tokens costs, and the longest it holds the event loop.

All of it counts: making the prompt's bytes from the body (beyond the parse that every request needs), hashing
and matching, recording. CPU time of the thread, so that what else the machine does is not counted. Judging is the
figures' own.
"""

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import thread_time_ns
from typing import TypeVar

from services.core.pods.reading import EngineReading
from services.core.prefix.blocks import Sliced
from services.core.units import NS_PER_MS
from services.endpoint_picker.prefix import Found, PrefixIndexes
from services.wire.openai.prompts import read_prompt
from services.wire.openai.requests import read_body
from services.worlds.bench_picker_figures import Figure, at_most
from services.worlds.bench_picker_stage import MODEL, POOL

CPU_MS_MAX = 3.0
BLOCK_MS_MAX = 1.0
TEXT_BYTES_PER_TOKEN = 4
KINDS = ("chat", "ids")
_T = TypeVar("_T")
_WORDS = ("river ", "steel ", "seven ", "light ", "under ", "stone ", "quiet ", "paper ")


@dataclass(frozen=True, slots=True)
class PrefixOptions:
    """How much is measured. `pods` hold the first half of every prompt."""

    pods: int = 100
    prompt_tokens: int = 100_000
    rounds: int = 15


@dataclass(slots=True)
class Spans:
    """CPU nanoseconds of one prompt's steps; each is one stay on the event loop."""

    steps: list[int] = field(default_factory=list)

    def whole(self, work: Callable[[], _T]) -> _T:
        """Do work that is not cut and return its result."""
        began = thread_time_ns()
        try:
            return work()
        finally:
            self.steps.append(thread_time_ns() - began)

    def sliced(self, work: Sliced[_T]) -> _T:
        """Do sliced work, each slice a step of its own, and return its result."""
        while True:
            try:
                self.whole(lambda: next(work))
            except StopIteration as end:
                result: _T = end.value
                return result


def body_of(kind: str, tokens: int, number: int) -> bytes:
    """Return a body of about `tokens` tokens: the first half is the same in all, the rest is `number`'s own."""
    half = tokens // 2
    if kind == "ids":
        ids = [(place * 7919) % 90_000 + 10_000 for place in range(half)]
        ids += [(place * 104_729 + number * 31) % 90_000 + 10_000 for place in range(tokens - half)]
        return json.dumps({"model": MODEL, "prompt": ids, "max_tokens": 16}, separators=(",", ":")).encode()
    shared = "".join(_words(half * TEXT_BYTES_PER_TOKEN, 0))
    own = "".join(_words((tokens - half) * TEXT_BYTES_PER_TOKEN, number + 1))
    messages = [{"role": "system", "content": shared}, {"role": "user", "content": own}]
    return json.dumps({"model": MODEL, "messages": messages, "max_tokens": 16}).encode()


def _words(count: int, seed: int) -> Iterator[str]:
    made = 0
    while made < count:
        word = _WORDS[(made * 2_654_435_761 + seed * 40_503 >> 7) % len(_WORDS)]
        yield word
        made += len(word)


def indexes_of(pods: int) -> PrefixIndexes:
    """Return indexes that know `pods` pods of one block size."""
    indexes = PrefixIndexes(b"0123456789abcdef")
    for number in range(pods):
        indexes.observe(f"pod-{number}", POOL, EngineReading("vllm", block_tokens=16, kv_blocks=24_000))
    return indexes


def measure(indexes: PrefixIndexes, body: bytes, pod: str) -> tuple[float, float, Found]:
    """Return CPU ms of all prefix work of one prompt, its longest step in ms, and what was found."""
    parse, spans = Spans(), Spans()
    parse.whole(lambda: read_body(body))
    _, prompt = spans.whole(lambda: read_prompt(body))
    read = spans.steps[0]
    found = spans.sliced(indexes.look(POOL, MODEL, prompt))
    spans.sliced(indexes.approximate.record(pod, found.chains[found.block_tokens]))
    # The parse is not the prefix's, but while it lasts the loop does nothing else either.
    cpu = sum(spans.steps) - min(read, parse.steps[0])
    return cpu / NS_PER_MS, max(spans.steps) / NS_PER_MS, found


def run(options: PrefixOptions, progress: Callable[[str], None]) -> list[Figure]:
    """Measure a chat of text and a prompt of token ids. Raises nothing of its own."""
    figures: list[Figure] = []
    for kind in KINDS:
        indexes = indexes_of(options.pods)
        # Every pod has been sent the shared half, so that a match walks it for all of them.
        _, prompt = read_prompt(body_of(kind, options.prompt_tokens, -1))
        for number in range(options.pods):
            found = indexes.signals(POOL, MODEL, prompt)
            for _ in indexes.approximate.record(f"pod-{number}", found.chains[found.block_tokens]):
                pass
        costs, blocks = [], []
        for number in range(options.rounds):
            body = body_of(kind, options.prompt_tokens, number)
            cost, block, _ = measure(indexes, body, f"pod-{number % options.pods}")
            costs.append(cost)
            blocks.append(block)
        figures += _figures(f"prefix.{kind}.{options.prompt_tokens}", costs, blocks)
        progress(f"{kind} of {options.prompt_tokens} tokens: {statistics.median(costs):.2f} ms of CPU")
    return figures


def _figures(name: str, costs: Sequence[float], blocks: Sequence[float]) -> list[Figure]:
    return [
        at_most(f"{name}.cpu", statistics.median(costs), "ms", CPU_MS_MAX),
        at_most(f"{name}.longest_block", statistics.median(blocks), "ms", BLOCK_MS_MAX),
        Figure(f"{name}.longest_block_worst", max(blocks), "ms"),
    ]
