"""Vocabulary of the simulator: how text becomes token counts, block hashes and answers.

No tokenizer is involved: a token is four bytes of UTF-8 text, rounded up, which is the usual estimate for
English. Everything is a pure function of its arguments, so a request repeated under the same id gets the
same answer.
"""

import hashlib

BYTES_PER_TOKEN = 4
"""Average bytes of English text per token; a change moves every simulated prompt length."""

SHORTEST_NATURAL_ANSWER = 64
LONGEST_NATURAL_ANSWER = 512

_WORDS = (
    " the", " request", " was", " routed", " to", " a", " healthy", " cluster", " and", " answered",
    " by", " this", " simulated", " model", " server", " with", " one", " word", " per", " token",
)  # fmt: skip


def count_tokens(text: bytes) -> int:
    """Return ceil(bytes / 4), at least 1."""
    return max(1, -(-len(text) // BYTES_PER_TOKEN))


def stable_hash(*parts: str) -> int:
    """Return a 64-bit hash of `parts` that is the same in every process."""
    digest = hashlib.blake2b("\x1f".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def block_hashes(prompt: bytes, block_size: int, salt: str = "") -> tuple[bytes, ...]:
    """Return the chained hash of each full block of `block_size` tokens of `prompt`.

    Each hash covers everything before it, as vLLM's do, so equal hashes mean equal prefixes. `salt`
    (model and cache salt) keeps caches of different models and tenants apart.
    """
    block_bytes = block_size * BYTES_PER_TOKEN
    previous = hashlib.blake2b(salt.encode(), digest_size=8).digest()
    hashes = []
    for start in range(0, len(prompt) - block_bytes + 1, block_bytes):
        previous = hashlib.blake2b(previous + prompt[start : start + block_bytes], digest_size=8).digest()
        hashes.append(previous)
    return tuple(hashes)


def natural_answer_tokens(request_id: str) -> int:
    """Return the length at which the answer to `request_id` ends by itself (finish reason `stop`)."""
    span = LONGEST_NATURAL_ANSWER - SHORTEST_NATURAL_ANSWER + 1
    return SHORTEST_NATURAL_ANSWER + stable_hash("answer", request_id) % span


def word(index: int) -> str:
    """Return the text of the token at `index` of any answer; answers differ in length, not in words."""
    return _WORDS[index % len(_WORDS)]


def words(count: int) -> str:
    """Return the text of an answer of `count` tokens."""
    rounds, rest = divmod(count, len(_WORDS))
    return "".join(_WORDS) * rounds + "".join(_WORDS[:rest])
