"""The precise prefix index: what engines say is in their caches, under keys of our own.

An engine's block hashes are seeded per process, so each block is named by our own chain over its token ids and
the engine's hash only leads back to that name. Token ids are hashed in `apply` and kept nowhere. Blocks are
counted per pod and tier, because ranks and copies of one pod hold the same content. Memory is bounded.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from services.core.prefix.blocks import MAX_BLOCK_TOKENS, SLICE_BLOCKS, HashBlock, Sliced, chain
from services.core.prefix.events import (
    BlockRemoved,
    BlockStored,
    EngineHash,
    EventBatch,
    EventSource,
)
from services.core.prefix.slots import Slots

TIERS = ("gpu", "cpu")
"""Media that count, the nearest first."""
CPU_WEIGHT = 0.8
"""A block in host memory is worth this much of one on the GPU: it has to be copied (the field's weight)."""
MAX_BLOCKS = 1_000_000
"""Blocks kept over all publishers; beyond it the oldest of the one that stores are forgotten."""
ENTRY_BYTES = 400
"""Memory of one block of one publisher, estimated."""

Roots = Callable[[str, str, int], int]
"""Seed of a chain by model or adapter, cache salt and block size."""

_TOKEN_BYTES = 4


class _Tier:
    """Who holds which key in one medium, copies counted."""

    __slots__ = ("copies", "holders")

    def __init__(self) -> None:
        self.holders: dict[int, int] = {}
        self.copies: dict[tuple[int, int], int] = {}
        """Further copies, where one pod holds a key more than once."""

    def hold(self, key: int, bit: int) -> None:
        held = self.holders.get(key, 0)
        if held & bit:
            self.copies[bit, key] = self.copies.get((bit, key), 0) + 1
        else:
            self.holders[key] = held | bit

    def release(self, key: int, bit: int) -> None:
        copies = self.copies.get((bit, key), 0)
        if copies > 1:
            self.copies[bit, key] = copies - 1
        elif copies:
            del self.copies[bit, key]
        elif left := self.holders[key] & ~bit:
            self.holders[key] = left
        else:
            del self.holders[key]


@dataclass(slots=True, eq=False)
class _Held:
    """One engine block: our key for it, and how often it was stored per tier."""

    key: int
    copies: list[int] = field(default_factory=lambda: [0] * len(TIERS))


_Blocks = OrderedDict[tuple[int, EngineHash], _Held]


class PreciseIndex:
    """Takes event batches in and answers which pods hold how much of a prompt.

    `orphans` counts blocks whose parent is unknown, `unusable` events that cannot be matched by any request
    (adapters without a name, media that do not count, layers without full attention).
    """

    def __init__(self, hash_block: HashBlock, roots: Roots, max_blocks: int = MAX_BLOCKS) -> None:
        self._hash = hash_block
        self._roots = roots
        self._max_blocks = max_blocks
        self._slots = Slots()
        self._tiers = tuple(_Tier() for _ in TIERS)
        self._sources: dict[EventSource, _Blocks] = {}
        self._block_tokens: dict[str, int] = {}
        self.entries = 0
        self.orphans = 0
        self.unusable = 0

    @property
    def bytes_estimate(self) -> int:
        """Memory used, estimated from the number of entries."""
        return self.entries * ENTRY_BYTES

    def covers(self, pod: str) -> bool:
        """Return whether a publisher of the pod is heard: one that has told something and was not cleared since."""
        return pod in self._slots

    def block_tokens(self, pod: str) -> int | None:
        """Return the pod's own block size; None before its first block."""
        return self._block_tokens.get(pod)

    def apply(self, source: EventSource, batch: EventBatch) -> Sliced[None]:
        """Take in one batch of `source`, in slices of one event."""
        bit = self._slots.take(source.pod)
        blocks = self._sources.get(source)
        if blocks is None:
            blocks = self._sources[source] = OrderedDict()
        for event in batch.events:
            if isinstance(event, BlockStored):
                if self._usable(event):
                    yield from self._note_size(source, event.block_tokens)
                    self._store(source, blocks, bit, event)
                else:
                    self.unusable += 1
            elif isinstance(event, BlockRemoved):
                self._remove(blocks, bit, event)
            else:
                yield from self._clear(blocks, bit)
            yield

    def clear(self, source: EventSource) -> Sliced[None]:
        """Forget, in slices, what one publisher said; the pod's other ranks keep theirs."""
        blocks = self._sources.pop(source, None)
        if blocks is not None:
            yield from self._clear(blocks, self._slots.bit(source.pod))
            if not any(other.pod == source.pod for other in self._sources):
                self._block_tokens.pop(source.pod, None)
                self._slots.release(self._slots.retire(source.pod))

    def forget(self, pod: str) -> Sliced[None]:
        """The pod is gone, or began anew: nothing of it matches any more; in slices its memory is freed."""
        self._block_tokens.pop(pod, None)
        for source in [source for source in self._sources if source.pod == pod]:
            yield from self.clear(source)

    def match(self, tokens: bytes, model: str, salt: str) -> Sliced[dict[str, tuple[float, int]]]:
        """Find, in slices, how far each pod holds the prompt of `tokens` (token ids, 4 bytes each, little-endian).

        The result holds, for each pod that has the first block, its leading blocks, those in host memory counted
        less, and their size in tokens. Only whole blocks are ever cached.
        """
        matched: dict[str, tuple[float, int]] = {}
        sizes: dict[int, int] = {}
        for pod, size in self._block_tokens.items():
            sizes[size] = sizes.get(size, 0) | self._slots.bit(pod)
        for size, alive in sizes.items():
            yield from self._match_size(tokens, size, alive, self._roots(model, salt, size), matched)
        return matched

    def _match_size(
        self, tokens: bytes, size: int, alive: int, seed: int, matched: dict[str, tuple[float, int]]
    ) -> Sliced[None]:
        gpu, cpu = self._tiers[0].holders.get, self._tiers[1].holders.get
        block_bytes = size * _TOKEN_BYTES
        whole = tokens[: len(tokens) // block_bytes * block_bytes]
        depth = 0
        in_host: dict[str, int] = {}

        def note(pods: int) -> None:
            for pod in self._slots.names(pods) if depth else ():
                matched[pod] = (depth - (1 - CPU_WEIGHT) * in_host.get(pod, 0), size)

        for hashes in chain(whole, block_bytes, seed, self._hash):
            for key in hashes:
                near = gpu(key, 0)
                still = alive & (near | cpu(key, 0))
                if still != alive:
                    note(alive ^ still)
                    alive = still
                    if not alive:
                        return
                if far := still & ~near:
                    for pod in self._slots.names(far):
                        in_host[pod] = in_host.get(pod, 0) + 1
                depth += 1
            yield
        note(alive)

    @staticmethod
    def _usable(event: BlockStored) -> bool:
        return (
            event.medium in TIERS
            and not event.adapter_unnamed
            and event.full_attention
            and 0 < event.block_tokens <= MAX_BLOCK_TOKENS
        )

    def _store(self, source: EventSource, blocks: _Blocks, bit: int, event: BlockStored) -> None:
        group, tier = event.group, TIERS.index(event.medium)
        if not event.tokens:
            self._copy(blocks, bit, event, tier)
            return
        if event.parent is None:
            salt, extras = _salt_of(event)
            key = self._roots(event.adapter or source.model, salt, event.block_tokens)
        else:
            parent = blocks.get((group, event.parent))
            if parent is None:
                self.orphans += len(event.hashes)
                return
            key, extras = parent.key, event.extras
        block_bytes = event.block_tokens * _TOKEN_BYTES
        tokens = event.tokens
        for index, engine_hash in enumerate(event.hashes):
            content = tokens[index * block_bytes : (index + 1) * block_bytes]
            if index < len(extras) and extras[index]:
                content += repr(extras[index]).encode("utf-8", "surrogatepass")
            key = self._hash(content, key)
            self._keep(blocks, (group, engine_hash), key, tier, bit)

    def _copy(self, blocks: _Blocks, bit: int, event: BlockStored, tier: int) -> None:
        """Blocks came into another medium, told by their names alone."""
        for engine_hash in event.hashes:
            name = (event.group, engine_hash)
            held = blocks.get(name)
            if held is None:
                self.orphans += 1
            else:
                self._keep(blocks, name, held.key, tier, bit)

    def _keep(self, blocks: _Blocks, name: tuple[int, EngineHash], key: int, tier: int, bit: int) -> None:
        held = blocks.get(name)
        if held is not None and held.key != key:
            # The engine reused a name before it told of the removal.
            self._release(held, bit)
            del blocks[name]
            self.entries -= 1
            held = None
        if held is None:
            if self.entries >= self._max_blocks:
                self._make_room(blocks, bit)
            held = blocks[name] = _Held(key)
            self.entries += 1
        held.copies[tier] += 1
        if held.copies[tier] == 1:
            self._tiers[tier].hold(key, bit)

    def _remove(self, blocks: _Blocks, bit: int, event: BlockRemoved) -> None:
        if event.medium not in TIERS:
            return
        tier = TIERS.index(event.medium)
        for engine_hash in event.hashes:
            name = (event.group, engine_hash)
            held = blocks.get(name)
            if held is None or not held.copies[tier]:
                continue
            held.copies[tier] -= 1
            if not held.copies[tier]:
                self._tiers[tier].release(held.key, bit)
                if not any(held.copies):
                    del blocks[name]
                    self.entries -= 1

    def _clear(self, blocks: _Blocks, bit: int) -> Sliced[None]:
        while blocks:
            for _ in range(min(len(blocks), SLICE_BLOCKS)):
                self._drop_oldest(blocks, bit)
            yield

    def _release(self, held: _Held, bit: int) -> None:
        for tier, copies in zip(self._tiers, held.copies, strict=True):
            if copies:
                tier.release(held.key, bit)

    def _make_room(self, blocks: _Blocks, bit: int) -> None:
        """Drop the oldest block of this publisher, or of the largest while this one has less than its share."""
        if len(blocks) * len(self._sources) < self._max_blocks:
            source = max(self._sources, key=lambda source: len(self._sources[source]))
            blocks, bit = self._sources[source], self._slots.bit(source.pod)
        self._drop_oldest(blocks, bit)

    def _drop_oldest(self, blocks: _Blocks, bit: int) -> None:
        _, held = blocks.popitem(last=False)
        self._release(held, bit)
        self.entries -= 1

    def _note_size(self, source: EventSource, block_tokens: int) -> Sliced[None]:
        """Take the pod's block size in; another one than before means that the engine began anew."""
        known = self._block_tokens.get(source.pod)
        if known is not None and known != block_tokens:
            for other in [other for other in self._sources if other.pod == source.pod]:
                yield from self._clear(self._sources[other], self._slots.bit(source.pod))
        self._block_tokens[source.pod] = block_tokens


def _salt_of(event: BlockStored) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """Tell the cache salt apart: the engine puts it, alone, beside the first block of a prompt.

    An image that begins the prompt looks the same and yields a chain that no text has, which is right too.
    """
    extras = event.extras
    if extras and len(extras[0]) == 1:
        return extras[0][0], ((), *extras[1:])
    return "", extras
