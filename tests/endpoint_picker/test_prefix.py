import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.adapters.metric_names.catalogue import METRICS
from services.adapters.telemetry.histogram import Histogram
from services.core.pods.reading import EngineReading
from services.core.prefix.blocks import MAX_PREFIX_TOKENS, SLICE_BLOCKS, Prompt, complete
from services.core.prefix.events import BlockStored, EventBatch, EventSource
from services.endpoint_picker import prefix as module
from services.endpoint_picker.prefix import NOTHING, PrefixIndexes
from tests.support.wait import eventually

SECRET = b"s" * 32
MODEL = "llama"


def text(tokens: int, *, letter: bytes = b"x", salt: str = "") -> Prompt:
    return Prompt(letter * (4 * tokens), salt=salt)


def reading(block_tokens: int | None = 16, kv_blocks: int | None = None) -> EngineReading:
    return EngineReading("vllm", block_tokens=block_tokens, kv_blocks=kv_blocks)


def indexes(*pods: str, precise: bool = False, max_blocks: int = 10_000) -> PrefixIndexes:
    made = PrefixIndexes(SECRET, precise=precise, max_blocks=max_blocks)
    for pod in pods:
        made.observe(pod, "chat", reading())
    return made


@asynccontextmanager
async def recording(prefix: PrefixIndexes) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as scope:
        task = scope.create_task(prefix.run())
        yield
        task.cancel()


async def test_what_was_sent_is_found_there_and_nowhere_else() -> None:
    prefix = indexes("a", "b")
    async with recording(prefix):
        prompt = text(64 * 10 + 3)
        cold = prefix.signals("chat", MODEL, prompt)
        assert (cold.matched, cold.total_blocks, cold.block_tokens) == ({}, 11, 64)
        prefix.sent("a", cold)
        await eventually(lambda: prefix.signals("chat", MODEL, prompt).matched)
        assert prefix.signals("chat", MODEL, prompt).matched == {"a": 11}
        assert prefix.signals("chat", MODEL, text(64 * 4)).matched == {"a": 4}
        # Another model, adapter or salt is another cache.
        assert prefix.signals("chat", "sql-lora", prompt).matched == {}
        assert prefix.signals("chat", MODEL, text(64 * 10, salt="tenant")).matched == {}
        assert (await prefix.lookup("chat", MODEL, prompt)).matched == {"a": 11}


async def test_pods_of_other_pools_and_empty_prompts_match_nothing() -> None:
    prefix = indexes("a")
    prefix.observe("z", "other", reading())
    async with recording(prefix):
        found = prefix.signals("chat", MODEL, text(640))
        prefix.sent("a", found)
        prefix.sent("never seen", found)
        await eventually(lambda: prefix.signals("chat", MODEL, text(640)).matched)
        assert prefix.signals("other", MODEL, text(640)).matched == {}
    assert prefix.signals("no such pool", MODEL, text(640)) == NOTHING
    assert prefix.signals("chat", MODEL, text(0)) == NOTHING
    prefix.sent("a", NOTHING)


async def test_mixed_block_sizes_are_told_in_one_unit() -> None:
    prefix = indexes("a")
    prefix.observe("b", "chat", reading(128))
    async with recording(prefix):
        found = prefix.signals("chat", MODEL, text(640))
        prefix.sent("a", found)
        prefix.sent("b", found)
        await eventually(lambda: len(prefix.signals("chat", MODEL, text(640)).matched) == 2)
        again = prefix.signals("chat", MODEL, text(640))
    assert (again.matched, again.total_blocks, again.block_tokens) == ({"a": 10, "b": 10}, 10, 64)
    assert {size: len(hashes) for size, hashes in again.chains.items()} == {64: 10, 128: 5}


async def test_a_pod_that_is_gone_is_forgotten_also_while_it_is_recorded() -> None:
    prefix = indexes("a", "b", precise=True)
    prompt = text(64 * SLICE_BLOCKS * 3)
    async with recording(prefix):
        prefix.sent("a", prefix.signals("chat", MODEL, prompt))
        await eventually(lambda: prefix.approximate.entries)
        complete(prefix.remove("a"))
        assert not prefix.knows("a")
        prefix.sent("a", prefix.signals("chat", MODEL, prompt))
        await eventually(lambda: prefix.approximate.entries == 0)
        assert prefix.signals("chat", MODEL, prompt).matched == {}


async def test_sent_prompts_wait_bounded() -> None:
    prefix = indexes("a")
    found = prefix.signals("chat", MODEL, text(64))
    for _ in range(module.MAX_WAITING_PROMPTS + 5):
        prefix.sent("a", found)
    assert prefix.counters.dropped_records == 5


async def test_long_prompts_are_looked_up_in_slices_and_no_further_than_the_limit() -> None:
    prefix = indexes("a")
    long = text(200_000)
    assert sum(1 for _ in prefix.look("chat", MODEL, long)) == 4
    assert prefix.signals("chat", MODEL, long).total_blocks == 2048


async def test_capacity_follows_the_pods_cache() -> None:
    prefix = PrefixIndexes(SECRET)
    prefix.observe("a", "chat", None)
    prefix.observe("a", "chat", reading(16, 40))
    async with recording(prefix):
        prefix.sent("a", prefix.signals("chat", MODEL, text(64 * 30)))
        await eventually(lambda: prefix.approximate.blocks_of("a") == 10)
        # A scrape that brings nothing changes nothing.
        prefix.observe("a", "chat", None)
        assert prefix.signals("chat", MODEL, text(64 * 30)).matched == {"a": 10}


async def test_pods_with_kv_events_are_answered_by_them_and_the_others_by_what_was_sent() -> None:
    prefix = indexes("a", "b", precise=True)
    assert prefix.precise is not None
    ids = bytes(range(256)) * 8  # 512 tokens.
    prompt = text(512)
    stored = BlockStored(tuple(range(16)), None, ids[: 16 * 64], 16)
    complete(prefix.precise.apply(EventSource("a", MODEL), EventBatch((stored,))))
    async with recording(prefix):
        cold = prefix.signals("chat", MODEL, prompt)
        prefix.sent("b", cold)
        await eventually(lambda: prefix.signals("chat", MODEL, prompt).matched)
        found = prefix.signals("chat", MODEL, prompt, ids)
    assert (found.matched, found.total_blocks, found.precise) == ({"a": 4, "b": 8}, 8, frozenset({"a"}))


async def test_memory_is_flat_under_prompts_that_never_repeat() -> None:
    prefix = indexes("a", "b", max_blocks=500)
    sizes = set()
    async with recording(prefix):
        for number in range(400):
            found = prefix.signals("chat", f"model-{number % 3}", Prompt(b"%08d" % number * 32 * 20))
            assert found.total_blocks == 20
            prefix.sent("ab"[number % 2], found)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if number > 100:
                sizes.add(prefix.approximate.entries)
        await eventually(lambda: not prefix._waiting)
    assert max(sizes) == 500
    assert prefix.approximate.bytes_estimate <= 500 * 250


async def test_roots_are_remembered_bounded() -> None:
    prefix = indexes("a")
    for number in range(module.ROOTS_KEPT + 10):
        prefix.root(f"model-{number}", "", 64)
    assert len(prefix._roots) <= module.ROOTS_KEPT
    assert prefix.root("m", "", 64) == prefix.root("m", "", 64)


async def test_sizes_and_hits_are_exported_under_names_of_the_closed_list() -> None:
    prefix = indexes("a", precise=True)
    async with recording(prefix):
        prefix.sent("a", prefix.signals("chat", MODEL, text(640)))
        await eventually(lambda: prefix.approximate.entries == 10)
        prefix.signals("chat", MODEL, text(640))
    values = {(value.name, value.labels): value.value for value in prefix.values()}
    assert values["gir_picker_prefix_entries", ("approximate",)] == 10
    assert values["gir_picker_prefix_entries", ("precise",)] == 0
    assert values["gir_picker_prefix_lookups_total", ("hit",)] == 1
    assert values["gir_picker_prefix_lookups_total", ("miss",)] == 1
    assert values["gir_picker_prefix_blocks_total", ("matched",)] == 10
    for generation in ("llm_d_epp_", "inference_extension_"):
        assert values[f"{generation}prefix_indexer_size", ()] == 10
        ratio = values[f"{generation}prefix_indexer_hit_ratio", ()]
        assert isinstance(ratio, Histogram)
        assert (ratio.counts[0], sum(ratio.counts), ratio.total) == (1, 2, 1.0)
    assert {name for name, _ in values} <= set(METRICS)


async def test_declared_sizes_go_before_what_pods_report() -> None:
    prefix = PrefixIndexes(SECRET, block_tokens=128, blocks_per_pod=3, match_tokens=128 * 5)
    prefix.observe("a", "chat", reading(16, 10_000))
    async with recording(prefix):
        found = prefix.signals("chat", MODEL, text(128 * 9))
        assert (found.total_blocks, found.block_tokens) == (5, 128)
        prefix.sent("a", found)
        await eventually(lambda: prefix.approximate.entries)
    assert prefix.approximate.entries == 3


def test_blocks_are_never_smaller_than_the_floor_nor_prompts_read_beyond_the_bound() -> None:
    prefix = PrefixIndexes(SECRET, block_tokens=16, match_tokens=1 << 40)
    prefix.observe("a", "chat", None)
    found = prefix.signals("chat", MODEL, text(MAX_PREFIX_TOKENS + 6400))
    assert (found.total_blocks, found.block_tokens) == (MAX_PREFIX_TOKENS // 64, 64)
