"""The simulator's tokenizer: how text becomes tokens, block hashes and answers.

A token is four bytes of UTF-8 text, the last one padded, which is the usual estimate for English; its id is
those bytes as a big-endian number. So a text and the ids `/tokenize` gives for it are one prompt, and an
answer, whose words have four bytes, is made of the same tokens when it comes back in the next turn.
Everything is a pure function of its arguments.
"""

import hashlib
import struct
from collections.abc import Sequence

BYTES_PER_TOKEN = 4
"""Average bytes of English text per token; a change moves every simulated prompt length."""

SHORTEST_NATURAL_ANSWER = 64
LONGEST_NATURAL_ANSWER = 512

END_OF_MESSAGE = b"\xff\xff\xff\xff"
"""The token that ends a chat message; no UTF-8 text holds the byte 0xff."""

# Each is one token, so that an answer has the same tokens when it is read back as text.
_WORDS = (
    " the", " pod", " was", " set", " for", " one", " fit", " job", " and", " ran",
    " all", " day", " its", " few", " new", " end", " had", " not", " yet", " any",
)  # fmt: skip


def tokens_of(text: bytes) -> bytes:
    """Return `text` as whole tokens: padded with zero bytes to a multiple of four, at least one token."""
    missing = -len(text) % BYTES_PER_TOKEN if text else BYTES_PER_TOKEN
    return text + bytes(missing)


def start_of_message(role: str) -> bytes:
    """Return the token that opens a chat message of `role`."""
    return b"\xff\xfe" + hashlib.blake2b(role.encode("utf-8", "surrogatepass"), digest_size=2).digest()


def token_ids(content: bytes) -> tuple[int, ...]:
    """Return the ids (0 to 2**32 - 1) of `content`, which is whole tokens."""
    return struct.unpack(f">{len(content) // BYTES_PER_TOKEN}I", content)


def content_of(ids: Sequence[int]) -> bytes:
    """Return the tokens with these ids; an id beyond 32 bits is cut to them."""
    return struct.pack(f">{len(ids)}I", *(token_id & 0xFFFFFFFF for token_id in ids))


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


def answer_content(count: int) -> bytes:
    """Return the tokens of an answer of `count` tokens."""
    return words(count).encode()


def words(count: int) -> str:
    """Return the text of an answer of `count` tokens."""
    rounds, rest = divmod(count, len(_WORDS))
    return "".join(_WORDS) * rounds + "".join(_WORDS[:rest])
