"""KV events as values: what an engine says it has stored in its cache and removed from it.

How they are encoded is `wire/kv_events`; what they mean for the index is `precise`. Names are the engine's
(vLLM `vllm/distributed/kv_events.py`).
"""

from dataclasses import dataclass

from services.core.values import value

EngineHash = int | bytes
"""The engine's own name of a block. Never compared between pods: its seed differs from process to process."""


@value
class BlockStored:
    """Blocks that follow `parent` (None: the first of a prompt) are in the cache.

    `tokens`: the token ids of all blocks, 4 bytes each, little-endian; empty where blocks that are known already
    came into another medium. `extras`: per block what beside the
    tokens decides its content (images, cache salt), each in one canonical spelling; empty: nothing.
    `full_attention` is False for blocks of sliding-window or state layers, which alone let no prefix be reused.
    """

    hashes: tuple[EngineHash, ...]
    parent: EngineHash | None
    tokens: bytes
    block_tokens: int
    adapter: str | None = None
    adapter_unnamed: bool = False
    medium: str = "gpu"
    group: int = 0
    extras: tuple[tuple[str, ...], ...] = ()
    full_attention: bool = True


@value
class BlockRemoved:
    """Blocks left one medium of the cache."""

    hashes: tuple[EngineHash, ...]
    medium: str = "gpu"
    group: int = 0


@value
class AllBlocksCleared:
    """The cache is empty."""


KvEvent = BlockStored | BlockRemoved | AllBlocksCleared


@value
class EventBatch:
    """Events of one message, in order. `rank` is the data-parallel rank that sent it."""

    events: tuple[KvEvent, ...]
    rank: int = 0


@dataclass(frozen=True, slots=True)
class EventSource:
    """One publisher of events: a data-parallel rank of a pod, which serves `model`."""

    pod: str
    model: str
    rank: int = 0
