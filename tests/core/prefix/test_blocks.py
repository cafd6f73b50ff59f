import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.prefix.blocks import (
    SLICE_BLOCKS,
    Sliced,
    approximate_block_tokens,
    capacity_blocks,
    chain,
    complete,
    root,
)

SECRET = b"s" * 32


def hash_block(block: bytes, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(block, key=seed.to_bytes(8, "big"), digest_size=8).digest(), "big")


def hashes_of(data: bytes, block_bytes: int, seed: int = 1) -> list[int]:
    return [key for keys in chain(data, block_bytes, seed, hash_block) for key in keys]


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(1, 40))
def test_equal_hashes_are_equal_prefixes(first: bytes, second: bytes, block_bytes: int) -> None:
    """Two chains agree on block i exactly when the two texts agree up to the end of block i."""
    one, other = hashes_of(first, block_bytes), hashes_of(second, block_bytes)
    assert len(one) == -(-len(first) // block_bytes)
    for index in range(min(len(one), len(other))):
        end = (index + 1) * block_bytes
        assert (one[index] == other[index]) == (first[:end] == second[:end])


def test_a_chain_comes_in_slices_and_does_not_depend_on_them() -> None:
    data = bytes(range(256)) * SLICE_BLOCKS
    slices = list(chain(data, 100, 7, hash_block))
    assert [len(keys) for keys in slices[:-1]] == [SLICE_BLOCKS] * (len(slices) - 1)
    seed, expected = 7, []
    for at in range(0, len(data), 100):
        seed = hash_block(data[at : at + 100], seed)
        expected.append(seed)
    assert [key for keys in slices for key in keys] == expected
    assert list(chain(b"", 100, 7, hash_block)) == []


def test_whatever_tells_two_caches_apart_tells_their_roots_apart() -> None:
    roots = {
        root(SECRET, "llama", "", 64),
        root(SECRET, "llama", "", 128),
        root(SECRET, "llama", "tenant", 64),
        root(SECRET, "llamatenant", "", 64),
        root(SECRET, "sql-lora", "", 64),
        root(b"t" * 32, "llama", "", 64),
        # A name that UTF-8 cannot carry.
        root(SECRET, "llama\ud83d", "", 64),
    }
    assert len(roots) == 7
    assert root(SECRET, "llama", "", 64) == root(SECRET, "llama", "", 64)


@pytest.mark.parametrize(
    ("reported", "used"), [(None, 64), (0, 64), (-1, 64), (16, 64), (64, 64), (128, 128), (10**9, 64)]
)
def test_the_block_size_of_a_pod_is_its_own_above_the_floor(reported: int | None, used: int) -> None:
    assert approximate_block_tokens(reported) == used


@pytest.mark.parametrize(
    ("kv_blocks", "reported", "held"),
    [(None, 16, None), (0, 16, None), (1000, 16, 250), (1000, None, 250), (1, 16, 1), (500, 64, 500)],
)
def test_a_cache_holds_as_many_tokens_in_blocks_of_any_size(
    kv_blocks: int | None, reported: int | None, held: int | None
) -> None:
    assert capacity_blocks(kv_blocks, reported, 64) == held


def test_sliced_work_completes_with_its_result() -> None:
    done = []

    def work() -> Sliced[str]:
        for step in range(3):
            done.append(step)
            yield
        return "result"

    assert complete(work()) == "result"
    assert done == [0, 1, 2]
