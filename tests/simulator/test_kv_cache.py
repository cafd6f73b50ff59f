from hypothesis import given
from hypothesis import strategies as st

from services.simulator.events import AllBlocksCleared, BlocksRemoved, KvChange
from services.simulator.kv_cache import KvCache


def hashes(*names: str) -> list[bytes]:
    return [name.encode() for name in names]


def cached(cache: KvCache, *names: str) -> None:
    """Leave the named blocks in the cache with nobody holding them."""
    assert cache.take(len(names))
    assert all(cache.share(name) for name in hashes(*names))
    cache.release(hashes(*names), 0)


def test_private_blocks_run_out_at_capacity() -> None:
    cache = KvCache(3)
    assert cache.take(3)
    assert not cache.take(1)
    assert (cache.used_blocks, cache.available_blocks, cache.usage) == (3, 0, 1.0)
    cache.release([], 3)
    assert cache.usage == 0.0


def test_a_released_prompt_block_is_matched_and_counts_as_free() -> None:
    cache = KvCache(4)
    cached(cache, "a", "b")
    assert cache.usage == 0.0
    assert cache.idle_blocks == 2
    assert cache.match(hashes("a", "b", "c"), 3) == 2
    assert cache.match(hashes("a", "b"), 1) == 1
    assert cache.match(hashes("x", "b"), 2) == 0


def test_a_shared_block_is_held_once_however_many_use_it() -> None:
    cache = KvCache(4)
    cached(cache, "a")
    assert cache.admit(hashes("a"), 1)
    assert cache.admit(hashes("a"), 1)
    assert cache.used_blocks == 3
    cache.release(hashes("a"), 1)
    assert cache.used_blocks == 2
    cache.release(hashes("a"), 1)
    assert (cache.used_blocks, cache.idle_blocks) == (0, 1)


def test_a_refused_admission_changes_nothing() -> None:
    cache = KvCache(3)
    cached(cache, "a", "b")
    assert cache.take(1)
    assert not cache.admit(hashes("a", "b"), 1)
    assert (cache.used_blocks, cache.idle_blocks) == (1, 2)


def test_the_tail_of_the_oldest_prefix_is_evicted_first() -> None:
    cache = KvCache(4)
    cached(cache, "a", "b")
    cached(cache, "c")
    assert cache.take(2)
    assert cache.match(hashes("a", "b"), 2) == 1
    assert cache.match(hashes("c"), 1) == 1


def test_equal_content_computed_twice_stays_private_the_second_time() -> None:
    cache = KvCache(4)
    assert cache.take(2)
    assert cache.share(b"a")
    assert not cache.share(b"a")
    assert cache.used_blocks == 2


def test_nothing_is_shared_with_prefix_caching_off() -> None:
    cache = KvCache(4, prefix_caching=False)
    assert cache.take(1)
    assert not cache.share(b"a")
    assert cache.match(hashes("a"), 1) == 0


def test_what_is_evicted_and_cleared_is_in_the_journal() -> None:
    journal: list[KvChange] = []
    cache = KvCache(4, journal=journal)
    cached(cache, "a", "b", "c")
    assert cache.take(2)
    assert journal == [BlocksRemoved((b"c",))]
    assert not cache.clear()
    assert cache.idle_blocks == 2
    cache.release([], 2)
    assert cache.clear()
    assert cache.idle_blocks == 0
    assert journal == [BlocksRemoved((b"c",)), AllBlocksCleared()]


def test_a_cache_without_journal_clears_too() -> None:
    cache = KvCache(4)
    cached(cache, "a")
    assert cache.clear()
    assert cache.match(hashes("a"), 1) == 0


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("abcdefgh"), max_size=4), st.integers(0, 4), st.booleans()),
        max_size=40,
    )
)
def test_use_never_exceeds_capacity_and_all_comes_back(
    steps: list[tuple[list[str], int, bool]],
) -> None:
    """Invariant: used + idle <= capacity at every moment, and 0 used once every holder has let go."""
    cache = KvCache(8)
    holders: list[tuple[list[bytes], int]] = []
    for names, extra, let_go in steps:
        wanted = hashes(*names)
        shared = wanted[: cache.match(wanted, len(wanted))]
        # Holding the same hash twice in one prompt cannot happen with chained hashes.
        shared = shared if len(set(shared)) == len(shared) else []
        if cache.admit(shared, extra):
            own = list(shared)
            private = extra
            for block_hash in wanted[len(shared) :]:
                if private and cache.share(block_hash):
                    own.append(block_hash)
                    private -= 1
            holders.append((own, private))
        if let_go and holders:
            cache.release(*holders.pop(0))
        assert cache.used_blocks >= 0
        assert cache.used_blocks + cache.idle_blocks <= cache.capacity_blocks
    for own, private in holders:
        cache.release(own, private)
    assert cache.used_blocks == 0
