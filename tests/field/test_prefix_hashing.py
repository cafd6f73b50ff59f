"""Field cases of prefix-hashing, from request bodies to what a picker believes of its pods."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from services.core.pods.reading import EngineReading
from services.core.prefix.blocks import Prompt
from services.endpoint_picker.prefix import PrefixIndexes
from services.wire.openai.prompts import read_prompt
from tests.support.wait import eventually

MODEL = "llama"
TEXT = "What is in this picture, and why? " * 120


def chat(*content: Any) -> Prompt:
    body = {"model": MODEL, "messages": [{"role": "user", "content": list(content)}]}
    return read_prompt(orjson.dumps(body))[1]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def image(data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def reading(block_tokens: int) -> EngineReading:
    return EngineReading("vllm", block_tokens=block_tokens)


class Picker:
    """Indexes that record; pods `a` and `b` serve one pool."""

    def __init__(self) -> None:
        self.indexes = PrefixIndexes(b"s" * 32)
        for pod in ("a", "b"):
            self.indexes.observe(pod, "chat", reading(16))

    def matched(self, prompt: Prompt) -> dict[str, int]:
        return self.indexes.signals("chat", MODEL, prompt).matched

    def total(self, prompt: Prompt) -> int:
        return self.indexes.signals("chat", MODEL, prompt).total_blocks

    async def send(self, pod: str, prompt: Prompt) -> None:
        self.indexes.sent(pod, self.indexes.signals("chat", MODEL, prompt))
        await eventually(lambda: self.matched(prompt).get(pod))


@asynccontextmanager
async def picker() -> AsyncIterator[Picker]:
    made = Picker()
    async with asyncio.TaskGroup() as scope:
        task = scope.create_task(made.indexes.run())
        yield made
        task.cancel()


async def test_f022_an_image_is_part_of_the_prompt() -> None:
    first = chat(text(TEXT), image("AAAA"), text(TEXT))
    other = chat(text(TEXT), image("AAAB"), text(TEXT))
    async with picker() as here:
        await here.send("a", first)
        assert here.matched(chat(text(TEXT), image("AAAA"), text(TEXT))) == {"a": here.total(first)}
        shared = here.matched(other)["a"]
        # All blocks before the image, none from the image on.
        assert shared == len(TEXT) // 256
        assert shared < here.total(other) / 2


async def test_f023_text_after_another_image_shares_nothing() -> None:
    async with picker() as here:
        await here.send("a", chat(image("AAAA"), text(TEXT)))
        assert here.matched(chat(image("AAAB"), text(TEXT))) == {}
        assert here.matched(chat(text(TEXT))) == {}


async def test_f025_blocks_may_end_within_a_character() -> None:
    """Characters of three and four bytes, and halves of pairs, at every alignment of a block's end."""
    async with picker() as here:
        for shift in range(5):
            words = "." * shift + ("\u200c" * 5_000 + "\U0001f600" * 500)
            prompt = chat(text(words))
            await here.send("b", prompt)
            assert here.matched(chat(text(words))) == {"b": here.total(prompt)}
        lone = b'{"model":"llama","messages":[{"role":"user","content":"' + rb"\ud83d" * 900 + b'"}]}'
        read, prompt = read_prompt(lone)
        assert read.model == MODEL
        await here.send("a", prompt)
        assert here.matched(read_prompt(lone)[1]) == {"a": here.total(prompt)}


async def test_f026_a_pod_that_restarts_with_another_block_size_scores_again_beside_others() -> None:
    prompt = chat(text(TEXT * 2))
    async with picker() as here:
        for pod in ("a", "b"):
            await here.send(pod, prompt)
        here.indexes.observe("a", "chat", reading(128))
        # Its former cache is gone; the other pod's is not.
        assert here.matched(prompt) == {"b": here.total(prompt)}
        await here.send("a", prompt)
        assert here.matched(prompt) == {"a": here.total(prompt), "b": here.total(prompt)}
        here.indexes.observe("a", "chat", reading(64))
        await here.send("a", prompt)
        assert here.matched(prompt) == {"a": here.total(prompt), "b": here.total(prompt)}


async def test_salts_as_long_as_bodies_are_not_kept() -> None:
    """A client chooses its salt: a long one works as any other and stays in no memory."""
    async with picker() as here:
        salts = [str(number) + "s" * 100_000 for number in range(50)]
        tracemalloc.start()
        for salt in salts:
            here.total(Prompt(b"x" * 300, 4, False, salt))
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 1_000_000
        await here.send("a", Prompt(TEXT.encode(), 4, False, salts[0]))
        assert here.matched(Prompt(TEXT.encode(), 4, False, salts[1])) == {}
