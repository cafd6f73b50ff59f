import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from services.adapters.metric_names.catalogue import METRICS
from services.adapters.system.tasks import TaskScope
from services.core.pods.reading import EngineReading
from services.core.prefix.blocks import Prompt, complete
from services.core.prefix.events import BlockStored, EventBatch, EventSource
from services.core.units import Duration
from services.endpoint_picker import prefix_requests as module
from services.endpoint_picker.prefix import Found, PrefixIndexes
from services.endpoint_picker.prefix_requests import PrefixRequests
from services.wire.openai.prompts import read_prompt
from tests.support.wait import eventually

IDS = list(range(100, 356))
PACKED = struct.pack("<256I", *IDS)


class Tokens:
    """A tokenizer that answers with `answer`, after `held` where that is set."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Any]] = []
        self.held: asyncio.Event | None = None

    async def tokenize(self, address: str, body: bytes, timeout: Duration) -> bytes | None:
        assert timeout > 0
        self.asked.append((address, orjson.loads(body)))
        if self.held is not None:
            await self.held.wait()
        return self.answer

    async def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
async def tasks() -> AsyncIterator[TaskScope]:
    failed: list[BaseException] = []
    scope = TaskScope(lambda _, failure: failed.append(failure))
    yield scope
    await scope.close()
    assert failed == []


def indexes(*, precise: bool = False) -> PrefixIndexes:
    made = PrefixIndexes(b"s" * 32, precise=precise)
    made.observe("a", "chat", EngineReading("vllm", block_tokens=16))
    if made.precise is not None:
        stored = BlockStored(tuple(range(16)), None, PACKED, 16)
        complete(made.precise.apply(EventSource("a", "llama"), EventBatch((stored,))))
    return made


def prompt(**fields: Any) -> Prompt:
    return read_prompt(orjson.dumps({"model": "llama", **fields}))[1]


async def test_a_short_prompt_is_answered_at_once_and_recorded_where_it_went(tasks: TaskScope) -> None:
    index = indexes()
    requests = PrefixRequests(index, tasks)
    tasks.spawn(index.run(), "record")
    found: list[Found] = []
    requests.match("chat", "llama", prompt(prompt="x" * 2560), found.append)
    assert [one.matched for one in found] == [{}]
    requests.sent("a", found[0])
    requests.sent("a", "nothing of ours")
    await eventually(lambda: index.approximate.entries)
    requests.match("chat", "llama", prompt(prompt="x" * 2560), found.append)
    assert found[1].matched == {"a": found[1].total_blocks}


async def test_a_long_prompt_is_answered_later(tasks: TaskScope) -> None:
    requests = PrefixRequests(indexes(), tasks)
    found: list[Found] = []
    requests.match("chat", "llama", prompt(prompt="x" * 400_000), found.append)
    assert found == []
    await eventually(lambda: found)
    assert found[0].total_blocks == 1563


async def test_a_prompt_of_ids_needs_no_tokenizer(tasks: TaskScope) -> None:
    tokens = Tokens(None)
    requests = PrefixRequests(indexes(precise=True), tasks, tokens, lambda _: "pod:8000")
    found: list[Found] = []
    requests.match("chat", "llama", prompt(prompt=IDS), found.append)
    assert found[0].precise == {"a"}
    assert found[0].matched["a"] == found[0].total_blocks
    long = [*IDS, *range(100_000)]
    requests.match("chat", "llama", prompt(prompt=long), found.append)
    await eventually(lambda: len(found) == 2)
    assert found[1].matched["a"] in {4, 5}
    assert tokens.asked == []


async def test_ids_that_are_none_leave_it_to_the_approximate_index(tasks: TaskScope) -> None:
    requests = PrefixRequests(indexes(precise=True), tasks)
    found: list[Found] = []
    for digits in (b"1,,2", b"1," * 50_000 + b"99999999999"):
        requests.match("chat", "llama", Prompt(digits, 6, True), found.append)
    await eventually(lambda: len(found) == 2)
    assert [one.precise for one in found] == [frozenset(), frozenset()]


async def test_text_is_tokenized_by_a_server_once(tasks: TaskScope) -> None:
    tokens = Tokens(PACKED)
    requests = PrefixRequests(indexes(precise=True), tasks, tokens, lambda pool: f"{pool}:8000")
    found: list[Found] = []
    for count in (1, 2):
        requests.match("chat", "llama", prompt(prompt="y" * 1024), found.append)
        await eventually(lambda count=count: len(found) == count)  # type: ignore[misc]  # bound per turn
    assert tokens.asked == [("chat:8000", {"model": "llama", "prompt": "y" * 1024})]
    assert [one.matched["a"] == one.total_blocks for one in found] == [True, True]
    values = {value.labels[0]: value.value for value in requests.values()}
    assert values == {"asked": 1, "kept": 1}
    assert {value.name for value in requests.values()} <= set(METRICS)


async def test_without_an_answer_the_approximate_index_serves(tasks: TaskScope) -> None:
    tokens = Tokens(None)
    requests = PrefixRequests(indexes(precise=True), tasks, tokens, lambda _: "pod:8000")
    nobody = PrefixRequests(indexes(precise=True), tasks, tokens, lambda _: None)
    found: list[Found] = []
    requests.match("chat", "llama", prompt(prompt="y" * 1024), found.append)
    nobody.match("chat", "llama", prompt(prompt="y" * 1024), found.append)
    requests.match("chat", "llama", prompt(input="y" * 1024), found.append)
    await eventually(lambda: len(found) == 3)
    assert all(one.precise == frozenset() and one.total_blocks for one in found)
    assert len(tokens.asked) == 1
    assert requests.tokenizations["absent"] == 2


async def test_questions_and_what_is_kept_of_them_are_bounded(
    tasks: TaskScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUESTIONS_AT_ONCE", 2)
    monkeypatch.setattr(module, "KEPT_IDS_BYTES", 2 * len(PACKED))
    tokens = Tokens(PACKED)
    tokens.held = asyncio.Event()
    requests = PrefixRequests(indexes(precise=True), tasks, tokens, lambda _: "pod:8000")
    found: list[Found] = []
    for number in range(5):
        requests.match("chat", "llama", prompt(prompt=f"{number}" * 1024), found.append)
    await eventually(lambda: len(found) == 3)
    assert len(tokens.asked) == 2
    tokens.held.set()
    await eventually(lambda: len(found) == 5)
    for number in range(10, 15):
        requests.match("chat", "llama", prompt(prompt=f"{number}" * 512), found.append)
    await eventually(lambda: len(found) == 10)
    assert len(requests._ids) == 2
    assert requests._ids_bytes == 2 * len(PACKED)
