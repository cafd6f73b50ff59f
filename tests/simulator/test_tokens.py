from hypothesis import given
from hypothesis import strategies as st

from services.simulator.tokens import (
    END_OF_MESSAGE,
    LONGEST_NATURAL_ANSWER,
    SHORTEST_NATURAL_ANSWER,
    answer_content,
    block_hashes,
    content_of,
    natural_answer_tokens,
    stable_hash,
    start_of_message,
    token_ids,
    tokens_of,
    word,
    words,
)


def test_a_token_is_four_bytes_padded_and_a_text_has_one() -> None:
    assert [len(tokens_of(b"x" * n)) for n in (0, 1, 4, 5, 400)] == [4, 4, 4, 8, 400]


@given(st.binary(max_size=200))
def test_ids_and_tokens_are_the_same_thing(text: bytes) -> None:
    """Invariant: the ids of a text's tokens give back those tokens, and each id has 32 bits."""
    content = tokens_of(text)
    ids = token_ids(content)
    assert content_of(ids) == content
    assert content.startswith(text)
    assert all(0 <= token_id < 2**32 for token_id in ids)


def test_an_id_of_more_bits_is_cut() -> None:
    assert content_of([2**32 + 7]) == content_of([7])


@given(st.text(max_size=40))
def test_no_text_holds_the_marks_of_a_message(text: str) -> None:
    """Invariant: the tokens that open and close a message are none that any text has."""
    marks = token_ids(END_OF_MESSAGE + start_of_message("user"))
    assert not set(marks) & set(token_ids(tokens_of(text.encode("utf-8", "surrogatepass"))))


def test_roles_open_differently() -> None:
    assert start_of_message("user") != start_of_message("assistant")


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


def test_an_answer_read_back_as_text_has_the_tokens_it_was_made_of() -> None:
    assert answer_content(45) == tokens_of(words(45).encode())
    assert len(answer_content(45)) == 4 * 45
    assert answer_content(0) == b""
