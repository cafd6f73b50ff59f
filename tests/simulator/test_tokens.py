from hypothesis import given
from hypothesis import strategies as st

from services.simulator.tokens import (
    LONGEST_NATURAL_ANSWER,
    SHORTEST_NATURAL_ANSWER,
    block_hashes,
    count_tokens,
    natural_answer_tokens,
    stable_hash,
    word,
    words,
)


def test_a_token_is_four_bytes_rounded_up_and_a_prompt_has_one() -> None:
    assert [count_tokens(b"x" * n) for n in (0, 1, 4, 5, 400)] == [1, 1, 1, 2, 100]


def test_only_full_blocks_have_hashes() -> None:
    assert len(block_hashes(b"x" * 63, 16)) == 0
    assert len(block_hashes(b"x" * 64, 16)) == 1
    assert len(block_hashes(b"x" * 200, 16)) == 3


def test_hashes_are_the_same_in_every_process() -> None:
    assert stable_hash("pod", "request") == 0x871F461D16BBACA3
    assert stable_hash("a", "b") != stable_hash("ab", "")


@given(st.binary(max_size=600), st.binary(max_size=600), st.integers(0, 600))
def test_equal_hashes_mean_equal_prefixes(one: bytes, other: bytes, common: int) -> None:
    """Invariant: the number of equal leading hashes is the number of equal leading full blocks."""
    other = one[:common] + other
    mine, theirs = block_hashes(one, 16), block_hashes(other, 16)
    equal = sum(1 for a, b in zip(mine, theirs, strict=False) if a == b)
    blocks = 0
    while (blocks + 1) * 64 <= min(len(one), len(other)) and one[: (blocks + 1) * 64] == other[
        : (blocks + 1) * 64
    ]:
        blocks += 1
    assert equal == blocks


def test_a_salt_keeps_caches_apart() -> None:
    prompt = b"x" * 128
    assert not set(block_hashes(prompt, 16, "one")) & set(block_hashes(prompt, 16, "other"))


@given(st.text(max_size=40))
def test_an_answer_has_a_natural_length_of_its_own(request_id: str) -> None:
    """Invariant: the natural length is a function of the id and lies within the stated bounds."""
    length = natural_answer_tokens(request_id)
    assert SHORTEST_NATURAL_ANSWER <= length <= LONGEST_NATURAL_ANSWER
    assert length == natural_answer_tokens(request_id)


def test_a_text_is_its_words() -> None:
    assert words(45) == "".join(word(index) for index in range(45))
