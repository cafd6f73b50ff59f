"""Block chains: a prompt cut into blocks, each hashed over everything before it.

Equal hashes mean equal prefixes, so that a cache of prompts is a set of numbers. What a prompt's content is,
`wire/openai/prompts` says; who holds which block, the indexes beside this file. The hash function is an argument:
core has none that is fast enough, and the indexes do not care which it is.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import field
from typing import TypeVar

from services.core.values import value

HashBlock = Callable[[bytes, int], int]
"""Hash of one block's bytes, seeded with the hash before it; 64 bits."""

DEFAULT_BLOCK_TOKENS = 16
"""What vLLM uses unless told otherwise; assumed of a pod that has not said."""
FLOOR_BLOCK_TOKENS = 64
"""Smallest block of the approximate index: finer ones cost four times as much and move no pick."""
MAX_PREFIX_TOKENS = 131_072
"""What lies beyond is neither hashed nor matched: it bounds one request's work, and few contexts are longer."""
SLICE_BLOCKS = 512
"""Blocks of one slice of work: well below a millisecond, after which a caller may let others run."""
MAX_BLOCK_TOKENS = 65_536
"""No engine's page is as large; a larger report is a fault, not a size."""

_ROOT_BYTES = 8

T = TypeVar("T")
Sliced = Generator[None, None, T]
"""Work in slices: each `next` does at most one slice; the result comes with StopIteration."""


@value
class Prompt:
    """What a request asks to be read, as bytes whose equality means equal content.

    `unit_bytes` is how many bytes of `data` stand for one token: 4 of text (an estimate), 6 of token ids in
    decimal. `token_ids`: `data` is token ids in decimal with commas between. `salt` is the caller's cache salt.
    `source` is the body it was read from, for a server's tokenizer; it is no part of the prompt's identity.
    """

    data: bytes
    unit_bytes: int = 4
    token_ids: bool = False
    salt: str = ""
    source: bytes = field(default=b"", compare=False, repr=False)


def complete(work: Sliced[T]) -> T:
    """Do all slices of `work` at once and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def approximate_block_tokens(reported: int | None) -> int:
    """Return the block size used for a pod that reports `reported` tokens a block (None: unknown)."""
    if reported is None or not 0 < reported <= MAX_BLOCK_TOKENS:
        reported = DEFAULT_BLOCK_TOKENS
    return max(reported, FLOOR_BLOCK_TOKENS)


def root(secret: bytes, model: str, salt: str, block_tokens: int) -> int:
    """Return the seed of a chain: a keyed hash (BLAKE2b) of all that keeps two caches apart.

    `model` is the target model or adapter. The key makes every hash of the chain meaningless to whoever lacks it.
    """
    digest = hashlib.blake2b(key=secret, digest_size=_ROOT_BYTES)
    for part in (model, salt):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    digest.update(block_tokens.to_bytes(8, "big"))
    return int.from_bytes(digest.digest(), "big")


def chain(data: bytes, block_bytes: int, seed: int, hash_block: HashBlock) -> Iterator[list[int]]:
    """Yield the hashes of all blocks of `data` in slices; a last, shorter block is hashed too."""
    step = SLICE_BLOCKS * block_bytes
    for start in range(0, len(data), step):
        hashes: list[int] = []
        keep = hashes.append
        for at in range(start, min(start + step, len(data)), block_bytes):
            seed = hash_block(data[at : at + block_bytes], seed)
            keep(seed)
        yield hashes


def capacity_blocks(kv_blocks: int | None, reported: int | None, block_tokens: int) -> int | None:
    """Return how many blocks of `block_tokens` the KV cache of a pod holds; None when it has not said."""
    if kv_blocks is None or kv_blocks <= 0:
        return None
    return max(1, kv_blocks * (reported or DEFAULT_BLOCK_TOKENS) // block_tokens)
