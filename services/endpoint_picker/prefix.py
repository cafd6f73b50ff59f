"""What pods have in their caches, asked once per request and told once per pick: the two prefix indexes together.

Approximate for every pod, from what was sent to it; precise for pods whose KV events are heard, where the prompt's
token ids are known. Feeding the indexes from outside is `kv_listener` and `prefix_sharing`; the arithmetic is
`core/prefix`. Work over a millisecond is a generator of slices; nothing is decided here.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from xxhash import xxh3_64_intdigest

from services.adapters.metric_names import field as field_names
from services.adapters.metric_names import prefix as names
from services.adapters.telemetry.histogram import RATIO, Histogram
from services.adapters.telemetry.prometheus import Value
from services.core.pods.reading import EngineReading
from services.core.prefix.approximate import MAX_BLOCKS, ApproximateIndex
from services.core.prefix.blocks import (
    MAX_PREFIX_TOKENS,
    Prompt,
    Sliced,
    approximate_block_tokens,
    capacity_blocks,
    chain,
    complete,
    root,
)
from services.core.prefix.precise import PreciseIndex
from services.core.values import value

T = TypeVar("T")

MAX_WAITING_PROMPTS = 4096
"""Sent prompts that wait to be recorded; beyond it the oldest are dropped and counted. At 500 requests a second
these are eight seconds, and recording the longest takes 2 ms."""
ROOTS_KEPT = 4096
"""Roots of (model, salt, block size) remembered; each costs 2 us to make."""
REMEMBERED_SALT_CHARS = 256
"""A salt is as long as a body may be; the roots of longer ones are made anew, so that they fill no memory."""

Announce = Callable[[str, Sequence[int]], None]
"""Told the pod and the blocks it was sent, for the other pickers of the cluster."""


async def in_slices(work: Sliced[T]) -> T:
    """Do `work` and let others run between its slices; return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


@value
class Found:
    """What the indexes say of one request: `Signals`' fields of the same names, and its chains for `sent`.

    `chains` holds the block hashes by block size. `precise` are the pods answered by the precise index.
    """

    matched: dict[str, int] = field(default_factory=dict)
    total_blocks: int = 0
    block_tokens: int = 0
    chains: dict[int, list[int]] = field(default_factory=dict)
    precise: frozenset[str] = frozenset()


NOTHING = Found()


@dataclass(slots=True, eq=False)
class PrefixCounters:
    """What happened since the process started."""

    lookups: int = 0
    hits: int = 0
    matched_blocks: int = 0
    looked_up_blocks: int = 0
    dropped_records: int = 0
    hit_ratio: Histogram = field(default_factory=lambda: Histogram(RATIO))


@dataclass(slots=True)
class _Pod:
    pool: str
    block_tokens: int
    reported: tuple[int | None, int | None]


class PrefixIndexes:
    """Both indexes. `secret` keys all hashes: the deployment's, or a random one where nothing is shared.

    `announce` hears of every prompt sent. `run` records in the background and must be running for `sent` to show.
    `block_tokens` and `blocks_per_pod` go before what pods report of their caches; blocks are never smaller than
    `FLOOR_BLOCK_TOKENS`. No more than `match_tokens` of a prompt are read, nor than `MAX_PREFIX_TOKENS`.
    """

    def __init__(
        self,
        secret: bytes,
        *,
        precise: bool = False,
        max_blocks: int = MAX_BLOCKS,
        announce: Announce | None = None,
        block_tokens: int | None = None,
        blocks_per_pod: int | None = None,
        match_tokens: int = MAX_PREFIX_TOKENS,
    ) -> None:
        self._secret = secret
        self._block_tokens = block_tokens
        self._blocks_per_pod = blocks_per_pod
        self._match_tokens = min(match_tokens, MAX_PREFIX_TOKENS)
        self._roots: dict[tuple[str, str, int], int] = {}
        self.approximate = ApproximateIndex(max_blocks)
        self.precise = PreciseIndex(xxh3_64_intdigest, self.root, max_blocks) if precise else None
        self.announce = announce
        self.counters = PrefixCounters()
        self._pods: dict[str, _Pod] = {}
        self._sizes: dict[str, tuple[int, ...]] = {}
        self._waiting: deque[tuple[str, Sequence[int]]] = deque()
        self._work = asyncio.Event()

    def observe(self, pod: str, pool: str, reading: EngineReading | None) -> None:
        """Take in what the pod says of its cache; a new block size makes its blocks unknown (field case F026)."""
        reported = (None, None) if reading is None else (reading.block_tokens, reading.kv_blocks)
        known = self._pods.get(pod)
        if known is not None and (known.reported == reported or reading is None) and known.pool == pool:
            return
        block_tokens = approximate_block_tokens(self._block_tokens or reported[0])
        if known is not None and known.block_tokens != block_tokens:
            self.approximate.forget(pod)
            self._work.set()
        self._pods[pod] = _Pod(pool, block_tokens, reported)
        capacity = self._blocks_per_pod or capacity_blocks(reported[1], reported[0], block_tokens)
        self.approximate.resize(pod, capacity)
        self._resize_pools()

    def remove(self, pod: str) -> Sliced[None]:
        """The pod is gone; the slices free what the precise index held of it."""
        self._pods.pop(pod, None)
        self._resize_pools()
        self.approximate.forget(pod)
        self._work.set()
        if self.precise is not None:
            yield from self.precise.forget(pod)

    def knows(self, pod: str) -> bool:
        """Return whether the pod is one of this picker's."""
        return pod in self._pods

    def signals(self, pool: str, target: str, prompt: Prompt, ids: bytes | None = None) -> Found:
        """Look a prompt up at once; see `look`. For prompts of a slice or less, and where nobody waits."""
        return complete(self.look(pool, target, prompt, ids))

    async def lookup(self, pool: str, target: str, prompt: Prompt, ids: bytes | None = None) -> Found:
        """Look a prompt up and let others run between slices."""
        return await in_slices(self.look(pool, target, prompt, ids))

    def look(self, pool: str, target: str, prompt: Prompt, ids: bytes | None = None) -> Sliced[Found]:
        """Find, in slices, which pods of `pool` hold how much of `prompt` for the model or adapter `target`.

        `ids`: the prompt's token ids, 4 bytes each, where they are known. Pods with no block are left out.
        """
        sizes = self._sizes.get(pool)
        if sizes is None or not prompt.data:
            return NOTHING
        unit = sizes[0]
        data = prompt.data[: self._match_tokens * prompt.unit_bytes]
        chains: dict[int, list[int]] = {}
        matched: dict[str, int] = {}
        for size in sizes:
            block_bytes = size * prompt.unit_bytes
            hashes: list[int] = []
            for part in chain(data, block_bytes, self.root(target, prompt.salt, size), xxh3_64_intdigest):
                hashes += part
                yield
            chains[size] = hashes
            for pod, blocks in self.approximate.match(hashes).items():
                known = self._pods.get(pod)
                if known is not None and known.pool == pool and known.block_tokens == size:
                    matched[pod] = blocks * size // unit
        total = -(-len(data) // (unit * prompt.unit_bytes))
        precise: frozenset[str] = frozenset()
        if self.precise is not None and ids is not None:
            ids = ids[: self._match_tokens * 4]
            held = yield from self.precise.match(ids, target, prompt.salt)
            precise = frozenset(
                pod for pod, known in self._pods.items() if known.pool == pool and self.precise.covers(pod)
            )
            scale = total / max(1.0, len(ids) / 4 / unit)
            for pod in precise:
                whole, own = held.get(pod, (0.0, unit))
                matched[pod] = round(whole * own / unit * scale)
        matched = {pod: min(blocks, total) for pod, blocks in matched.items() if blocks}
        self._count(matched, total)
        return Found(matched, total, unit, chains, precise)

    def sent(self, pod: str, found: Found) -> None:
        """The request was given to `pod`: in a moment its blocks count as held there, here and at other pickers."""
        known = self._pods.get(pod)
        hashes = found.chains.get(known.block_tokens) if known is not None else None
        if hashes:
            if len(self._waiting) >= MAX_WAITING_PROMPTS:
                self._waiting.popleft()
                self.counters.dropped_records += 1
            self._waiting.append((pod, hashes))
            self._work.set()
            if self.announce is not None:
                self.announce(pod, hashes)

    async def run(self) -> None:
        """Record and sweep for ever, a slice at a time."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting or self.approximate.sweep():
                if self._waiting:
                    await self.record(*self._waiting.popleft())
                await asyncio.sleep(0)

    async def record(self, pod: str, hashes: Sequence[int]) -> None:
        """Record what `pod` was sent, a slice at a time, for as long as it is one of this picker's."""
        if pod in self._pods:
            for _ in self.approximate.record(pod, hashes):
                await asyncio.sleep(0)
                if pod not in self._pods:
                    return

    def root(self, model: str, salt: str, block_tokens: int) -> int:
        """Return the seed of a chain."""
        key = (model, salt, block_tokens)
        seed = self._roots.get(key)
        if seed is None:
            seed = root(self._secret, *key)
            if len(salt) <= REMEMBERED_SALT_CHARS:
                if len(self._roots) >= ROOTS_KEPT:
                    self._roots.clear()
                self._roots[key] = seed
        return seed

    def values(self) -> list[Value]:
        """Return sizes and counts as metrics."""
        counters = self.counters
        values = [
            Value(names.PICKER_PREFIX_ENTRIES, self.approximate.entries, ("approximate",)),
            Value(names.PICKER_PREFIX_BYTES, self.approximate.bytes_estimate, ("approximate",)),
            Value(names.PICKER_PREFIX_LOOKUPS, counters.hits, ("hit",)),
            Value(names.PICKER_PREFIX_LOOKUPS, counters.lookups - counters.hits, ("miss",)),
            Value(names.PICKER_PREFIX_BLOCKS, counters.matched_blocks, ("matched",)),
            Value(names.PICKER_PREFIX_BLOCKS, counters.looked_up_blocks, ("looked_up",)),
            Value(names.PICKER_PREFIX_DROPPED, counters.dropped_records, ("record",)),
        ]
        values += [Value(name, self.approximate.entries) for name in field_names.PREFIX_INDEX_SIZE.names]
        values += [Value(name, counters.hit_ratio) for name in field_names.PREFIX_HIT_RATIO.names]
        if self.precise is not None:
            values += [
                Value(names.PICKER_PREFIX_ENTRIES, self.precise.entries, ("precise",)),
                Value(names.PICKER_PREFIX_BYTES, self.precise.bytes_estimate, ("precise",)),
            ]
        return values

    def _count(self, matched: dict[str, int], total: int) -> None:
        counters, best = self.counters, max(matched.values(), default=0)
        counters.lookups += 1
        counters.hits += bool(matched)
        counters.matched_blocks += best
        counters.looked_up_blocks += total
        counters.hit_ratio.observe(best / total)

    def _resize_pools(self) -> None:
        sizes: dict[str, set[int]] = {}
        for pod in self._pods.values():
            sizes.setdefault(pod.pool, set()).add(pod.block_tokens)
        self._sizes = {pool: tuple(sorted(found)) for pool, found in sizes.items()}
