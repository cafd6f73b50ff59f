import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from services.wire.prefix_batches import (
    MAX_BATCH_BYTES,
    MAX_BLOCKS,
    NONCE_BYTES,
    Placement,
    PrefixBatch,
    PrefixBatchError,
    PrefixSeal,
)

SECRET = b"s" * 32
NONCE = b"n" * NONCE_BYTES
placements = st.lists(
    st.builds(Placement, st.text(max_size=20), st.lists(st.integers(0, 2**64 - 1), max_size=20).map(tuple)),
    max_size=5,
)


@given(st.text(max_size=20), placements)
def test_what_is_sealed_is_opened_as_it_was(sender: str, told: list[Placement]) -> None:
    """Opening a sealed batch gives back its sender and placements, in order."""
    batch = PrefixSeal(SECRET).seal(sender, told, NONCE)
    assert PrefixSeal(SECRET).open(batch) == PrefixBatch(sender, tuple(told))


def test_a_batch_shows_nothing_of_what_it_says() -> None:
    batch = PrefixSeal(SECRET).seal("picker-a", [Placement("pod-1", (0x4142434445464748,))], NONCE)
    assert b"pod-1" not in batch
    assert b"picker-a" not in batch
    assert b"HGFEDCBA" not in batch


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_batch_is_refused(at: int, flip: int) -> None:
    """No byte of a batch can be changed without its being refused."""
    batch = bytearray(PrefixSeal(SECRET).seal("a", [Placement("pod", tuple(range(20)))], NONCE))
    batch[at % len(batch)] ^= flip
    with pytest.raises(PrefixBatchError):
        PrefixSeal(SECRET).open(bytes(batch))


def test_what_another_secret_sealed_or_nobody_is_refused() -> None:
    seal = PrefixSeal(SECRET)
    for batch in (
        PrefixSeal(b"t" * 32).seal("a", [], NONCE),
        b"",
        b"\x01",
        b"\x02" + bytes(40),
        bytes(MAX_BATCH_BYTES + 1),
    ):
        with pytest.raises(PrefixBatchError):
            seal.open(batch)


def test_the_secret_that_keys_the_chains_is_not_the_key_of_the_seal() -> None:
    batch = PrefixSeal(SECRET).seal("a", [], NONCE)
    with pytest.raises(InvalidTag):
        AESGCM(SECRET).decrypt(NONCE, batch[1 + NONCE_BYTES :], b"\x01")


def test_too_many_blocks_are_refused_before_they_are_kept() -> None:
    seal = PrefixSeal(SECRET)
    with pytest.raises(PrefixBatchError):
        seal.open(seal.seal("a", [Placement("pod", tuple(range(MAX_BLOCKS + 1)))], NONCE))
