"""KV events as vLLM publishes them: payloads in both encodings, sequence numbers, and the replay buffer.

Bytes only; sockets are in `kv_publisher`. The engine side by itself, so that what a consumer reads was not
written by the consumer's own code. Source: vllm/distributed/kv_events.py (KVEventBatch, ZmqEventPublisher);
the positional form is the one before the events became maps (pull request 42892).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack

from services.simulator.events import AllBlocksCleared, BlocksRemoved, BlocksStored, KvChange
from services.simulator.tokens import token_ids

MEDIUM = "GPU"
SEQUENCE_BYTES = 8
END_OF_REPLAY = b"\xff" * SEQUENCE_BYTES
"""vLLM's sequence number -1, which ends a replay."""


class KvEventLog:
    """The published batches of one rank. Numbers start at 0; the last `kept` batches can be had again.

    `as_maps` chooses maps with a "type" over arrays with the tag first, for events and batches alike.
    """

    def __init__(self, block_size: int, rank: int, *, as_maps: bool, kept: int) -> None:
        self._block_size = block_size
        self._rank = rank
        self._as_maps = as_maps
        self._next = 0
        self._batches: deque[tuple[int, bytes]] = deque(maxlen=kept)
        self._adapters: dict[str, int] = {}

    def append(self, changes: Sequence[KvChange], at_s: float) -> tuple[bytes, bytes]:
        """Keep a batch observed at wall time `at_s` (seconds); return its sequence number and payload as sent."""
        fields = [dict(self._fields(change)) for change in changes]
        if self._as_maps:
            batch: Any = {"ts": at_s, "events": fields, "data_parallel_rank": self._rank}
        else:
            batch = [at_s, [list(event.values()) for event in fields], self._rank]
        payload: bytes = msgpack.packb(batch)
        number = self._next
        self._next += 1
        self._batches.append((number, payload))
        return number.to_bytes(SEQUENCE_BYTES, "big"), payload

    def since(self, start: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield (sequence number, payload) of the kept batches from `start` on; older ones are simply missing."""
        for number, payload in self._batches:
            if number >= start:
                yield number.to_bytes(SEQUENCE_BYTES, "big"), payload

    def _fields(self, change: KvChange) -> Iterator[tuple[str, object]]:
        """Yield the fields of one event in vLLM's order; trailing ones that have their default are left out."""
        match change:
            case BlocksStored():
                yield "type", "BlockStored"
                yield "block_hashes", [_number(block_hash) for block_hash in change.hashes]
                yield "parent_block_hash", None if change.parent is None else _number(change.parent)
                yield "token_ids", token_ids(change.content)
                yield "block_size", self._block_size
                yield "lora_id", self._lora_id(change.lora)
                yield "medium", MEDIUM
                yield "lora_name", change.lora or None
                extra = _extra_keys(change)
                if any(extra):
                    yield "extra_keys", extra
            case BlocksRemoved():
                yield "type", "BlockRemoved"
                yield "block_hashes", [_number(block_hash) for block_hash in change.hashes]
                yield "medium", MEDIUM
            case AllBlocksCleared():
                yield "type", "AllBlocksCleared"

    def _lora_id(self, lora: str) -> int | None:
        return self._adapters.setdefault(lora, len(self._adapters) + 1) if lora else None


def _number(block_hash: bytes) -> int:
    """Return a hash as vLLM shows it outside by default: an unsigned number of 64 bits."""
    return int.from_bytes(block_hash, "big")


def _extra_keys(change: BlocksStored) -> list[tuple[str, ...] | None]:
    """Return what beside its tokens goes into each block's hash: the adapter, and at the root the cache salt."""
    keys: list[tuple[str, ...] | None] = []
    for index in range(change.first, change.first + len(change.hashes)):
        key = tuple(filter(None, (change.lora, change.cache_salt if index == 0 else "")))
        keys.append(key or None)
    return keys
