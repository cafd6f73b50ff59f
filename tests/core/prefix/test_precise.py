import struct
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from services.core.prefix.blocks import SLICE_BLOCKS, complete, root
from services.core.prefix.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EventBatch,
    EventSource,
    KvEvent,
)
from services.core.prefix.precise import ENTRY_BYTES, PreciseIndex
from tests.core.prefix.test_blocks import hash_block

MODEL = "llama"
A, B = EventSource("a", MODEL), EventSource("b", MODEL)


def roots(model: str, salt: str, block_tokens: int) -> int:
    return root(b"secret", model, salt, block_tokens)


def ids(*tokens: int) -> bytes:
    return struct.pack(f"<{len(tokens)}I", *tokens)


def new_index(max_blocks: int = 1000) -> PreciseIndex:
    return PreciseIndex(hash_block, roots, max_blocks)


def tell(index: PreciseIndex, source: EventSource, *events: KvEvent) -> None:
    complete(index.apply(source, EventBatch(events)))


def stored(
    hashes: tuple[EngineHash, ...],
    tokens: tuple[int, ...],
    parent: EngineHash | None = None,
    *,
    block_tokens: int = 2,
    medium: str = "gpu",
    adapter: str | None = None,
    group: int = 0,
    extras: tuple[tuple[str, ...], ...] = (),
) -> BlockStored:
    return BlockStored(hashes, parent, ids(*tokens), block_tokens, adapter, False, medium, group, extras)


def found(index: PreciseIndex, *tokens: int, model: str = MODEL, salt: str = "") -> dict[str, float]:
    return {pod: blocks for pod, (blocks, _) in complete(index.match(ids(*tokens), model, salt)).items()}


def test_a_stored_chain_is_found_by_its_tokens_whatever_the_engine_calls_it() -> None:
    index = new_index()
    assert not index.covers("a")
    tell(index, A, stored((11, 12), (1, 2, 3, 4)), stored((13,), (5, 6), 12))
    tell(index, B, stored((b"\xff" * 32,), (1, 2)))
    assert index.covers("a")
    assert (index.block_tokens("a"), index.block_tokens("c")) == (2, None)
    assert found(index, 1, 2, 3, 4, 5, 6, 7, 8) == {"a": 3, "b": 1}
    # The last block of the prompt is not whole: no engine caches it.
    assert found(index, 1, 2, 3) == {"a": 1, "b": 1}
    assert found(index, 1, 2, 9, 9, 5, 6) == {"a": 1, "b": 1}
    assert found(index, 9, 9) == {}
    assert found(index) == {}
    assert index.bytes_estimate == 4 * ENTRY_BYTES


def test_removed_blocks_end_the_prefix_and_unknown_ones_change_nothing() -> None:
    index = new_index()
    tell(index, A, stored((1, 2, 3), (1, 2, 3, 4, 5, 6)))
    tell(index, A, BlockRemoved((2, 99)), BlockRemoved((1,), "disk"), BlockRemoved((3,), "cpu"))
    assert found(index, 1, 2, 3, 4, 5, 6) == {"a": 1}
    assert index.entries == 2
    tell(index, A, AllBlocksCleared())
    assert found(index, 1, 2) == {}
    assert index.entries == 0
    assert index.covers("a")


def test_copies_of_a_block_are_counted_over_names_ranks_and_stores() -> None:
    index = new_index()
    rank = EventSource("a", MODEL, 1)
    tell(index, A, stored((1,), (1, 2)), stored((1,), (1, 2)), stored((2,), (1, 2)))
    tell(index, rank, stored((1,), (1, 2)))
    for event, source in ((BlockRemoved((1,)), A), (BlockRemoved((1,)), A), (BlockRemoved((1,)), rank)):
        tell(index, source, event)
        assert found(index, 1, 2) == {"a": 1}
    tell(index, A, BlockRemoved((2,)))
    assert found(index, 1, 2) == {}
    assert index.entries == 0


def test_host_memory_counts_less_and_holds_on_when_the_gpu_lets_go() -> None:
    index = new_index()
    tell(index, A, stored((1, 2), (1, 2, 3, 4)))
    # Told by names alone, as offloading engines do; an unknown name is an orphan.
    tell(index, A, BlockStored((1, 77), None, b"", 2, medium="cpu"))
    assert index.orphans == 1
    assert found(index, 1, 2, 3, 4) == {"a": 2}
    tell(index, A, BlockRemoved((1,)))
    assert found(index, 1, 2, 3, 4) == {"a": 1.8}
    tell(index, A, BlockRemoved((1,), "cpu"))
    assert found(index, 1, 2, 3, 4) == {}


def test_adapters_and_salts_keep_caches_apart() -> None:
    index = new_index()
    tell(index, A, stored((1,), (1, 2), adapter="sql-lora"))
    tell(index, B, stored((1, 2), (1, 2, 3, 4), extras=(("tenant-7",), ())))
    assert found(index, 1, 2) == {}
    assert found(index, 1, 2, model="sql-lora") == {"a": 1}
    assert found(index, 1, 2, 3, 4, salt="tenant-7") == {"b": 2}


def test_f023_blocks_after_an_image_match_no_text_and_no_other_image() -> None:
    index = new_index()
    tell(index, A, stored((1, 2, 3), (1, 2, 3, 4, 5, 6), extras=((), ("image-1", "0"), ())))
    tell(index, B, stored((1, 2, 3), (1, 2, 3, 4, 5, 6), extras=((), ("image-2", "0"), ())))
    assert found(index, 1, 2, 3, 4, 5, 6) == {"a": 1, "b": 1}


def test_events_that_no_request_can_match_are_counted() -> None:
    index = new_index()
    tell(
        index,
        A,
        BlockStored((1,), None, ids(1, 2), 2, adapter_unnamed=True),
        BlockStored((1,), None, ids(1, 2), 2, full_attention=False),
        BlockStored((1,), None, ids(1, 2), 2, medium="disk"),
        BlockStored((1,), None, ids(1, 2), 0),
    )
    assert (index.unusable, index.entries) == (4, 0)
    tell(index, A, stored((2, 3), (1, 2, 3, 4), 99))
    assert (index.orphans, index.entries) == (2, 0)


def test_f026_a_pod_that_returns_with_another_block_size_is_learnt_anew_and_mixed_pools_match() -> None:
    index = new_index()
    tell(index, A, stored((1, 2), (1, 2, 3, 4)))
    tell(index, B, stored((1,), (1, 2, 3, 4), block_tokens=4))
    assert complete(index.match(ids(1, 2, 3, 4), MODEL, "")) == {"a": (2, 2), "b": (1, 4)}
    tell(index, EventSource("a", MODEL, 1), stored((7,), (1, 2)))
    tell(index, A, stored((5,), (1, 2, 3, 4), block_tokens=4))
    assert complete(index.match(ids(1, 2, 3, 4), MODEL, "")) == {"a": (1, 4), "b": (1, 4)}
    assert index.entries == 2


def test_one_publisher_is_cleared_alone_and_a_pod_with_all_of_its_own() -> None:
    index = new_index()
    rank = EventSource("a", MODEL, 1)
    tell(index, A, stored((1,), (1, 2)))
    tell(index, rank, stored((1,), (3, 4)))
    tell(index, B, stored((1,), (1, 2)))
    complete(index.clear(A))
    complete(index.clear(A))
    assert (found(index, 1, 2), found(index, 3, 4)) == ({"b": 1}, {"a": 1})
    assert index.covers("a")
    complete(index.clear(B))
    assert not index.covers("b")
    tell(index, B, stored((1,), (1, 2)))
    complete(index.forget("a"))
    complete(index.forget("never seen"))
    assert (index.covers("a"), index.block_tokens("a")) == (False, None)
    assert (found(index, 3, 4), index.entries) == ({}, 1)
    tell(index, EventSource("c", MODEL), stored((1,), (5, 6)))
    assert found(index, 5, 6) == {"c": 1}


def test_a_name_used_again_for_other_content_leads_to_the_new_one() -> None:
    index = new_index()
    tell(index, A, stored((1,), (1, 2)), stored((1,), (3, 4)))
    assert (found(index, 1, 2), found(index, 3, 4), index.entries) == ({}, {"a": 1}, 1)


def test_a_full_index_forgets_the_oldest_of_whoever_has_more_than_a_share() -> None:
    index = new_index(max_blocks=10)
    tell(index, A, stored(tuple(range(10)), tuple(range(20))))
    tell(index, B, stored((1, 2), (50, 51, 52, 53)))
    assert index.entries == 10
    assert found(index, 50, 51, 52, 53) == {"b": 2}
    assert found(index, *range(20)) == {}
    for number in range(20):
        tell(index, B, stored((100 + number,), (number, 1000 + number)))
    assert index.entries == 10
    assert found(index, 19, 1019) == {"b": 1}


def test_long_prompts_and_large_pods_are_worked_off_in_slices() -> None:
    index = new_index(max_blocks=10_000)
    count = 2 * SLICE_BLOCKS
    tell(index, A, stored(tuple(range(count)), tuple(range(count)), block_tokens=1))
    assert found(index, *range(count)) == {"a": count}
    assert sum(1 for _ in index.match(ids(*range(count)), MODEL, "")) == 2
    assert sum(1 for _ in index.forget("a")) == 2
    assert index.entries == 0


events = st.lists(
    st.one_of(
        st.tuples(
            st.just("store"), st.sampled_from((A, B)), st.lists(st.integers(0, 2), min_size=1, max_size=4)
        ),
        st.tuples(
            st.just("remove"), st.sampled_from((A, B)), st.lists(st.integers(0, 2), min_size=1, max_size=4)
        ),
        st.tuples(st.just("clear"), st.sampled_from((A, B)), st.just([])),
    ),
    max_size=30,
)


@given(events, st.lists(st.integers(0, 2), max_size=5))
def test_it_says_what_sets_of_prefixes_say(
    events: list[tuple[str, EventSource, list[int]]], prompt: list[int]
) -> None:
    """A pod matches as deep as a naive multiset of whole prefixes, told by the same events, goes without a gap."""
    index = new_index()
    naive: dict[EventSource, Counter[tuple[int, ...]]] = {A: Counter(), B: Counter()}
    for what, source, tokens in events:
        prefix = tuple(tokens)
        if what == "store":
            # One event per block; the engine's hash is the prefix itself, spelt as bytes.
            for end in range(1, len(prefix) + 1):
                parent = bytes(prefix[: end - 1]) if end > 1 else None
                known = parent is None or naive[source][prefix[: end - 1]] > 0
                tell(
                    index, source, stored((bytes(prefix[:end]),), (prefix[end - 1],), parent, block_tokens=1)
                )
                naive[source][prefix[:end]] += known
        elif what == "remove":
            tell(index, source, BlockRemoved((bytes(prefix),)))
            naive[source][prefix] = max(0, naive[source][prefix] - 1)
        else:
            tell(index, source, AllBlocksCleared())
            naive[source].clear()
    expected = {}
    for source, prefixes in naive.items():
        depth = next(
            (end for end in range(len(prompt)) if not prefixes[tuple(prompt[: end + 1])]), len(prompt)
        )
        if depth:
            expected[source.pod] = float(depth)
    assert found(index, *prompt) == expected
