"""Shares placements between the pickers of a cluster, so that each knows what the others sent where.

Batches go out sealed every 50 ms and come in from a bounded history, at the start from its beginning. The feed is
never on a request's path: with it away, each picker knows its own placements only, and a metric says so; what was
sent meanwhile follows when it is back, as far as there is room.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from services.adapters.metric_names import prefix as names
from services.adapters.ports import Clock, Ids, UnreachableError
from services.adapters.prefix_ports import PrefixFeed
from services.adapters.telemetry.prometheus import Value
from services.core.units import ms, seconds
from services.endpoint_picker.prefix import PrefixIndexes
from services.wire.prefix_batches import NONCE_BYTES, Placement, PrefixBatchError, PrefixSeal

BATCH_INTERVAL = ms(50)
"""Placements wait at most as long: an engine needs longer to fill the blocks that they speak of."""
BATCH_BLOCKS = 4096
"""Blocks of one batch, 32 KiB; what exceeds it goes into the next one of the same round trip."""
WAITING_BLOCKS = 262_144
"""Blocks that wait for the feed (two thousand prompts of 8,000 tokens); beyond it the oldest are dropped."""
RETRY_AFTER = seconds(1)
TAIL_WAIT = seconds(1)


class PrefixSharing:
    """Runs `send` and `receive` for ever. Give `announce` to the indexes; it takes a microsecond."""

    def __init__(
        self, feed: PrefixFeed, seal: PrefixSeal, indexes: PrefixIndexes, clock: Clock, ids: Ids
    ) -> None:
        self._feed = feed
        self._seal = seal
        self._indexes = indexes
        self._clock = clock
        self._ids = ids
        self._sender = ids.token(8).hex()
        self._waiting: deque[Placement] = deque()
        self._waiting_blocks = 0
        self._wake = asyncio.Event()
        self._sends = True
        self._receives = False
        self.dropped = 0
        self.unreadable = 0
        indexes.announce = self.announce

    @property
    def connected(self) -> bool:
        """Whether the last calls of both directions were answered."""
        return self._sends and self._receives

    def announce(self, pod: str, hashes: Sequence[int]) -> None:
        """Queue one placement."""
        self._waiting.append(Placement(pod, tuple(hashes)))
        self._waiting_blocks += len(hashes)
        while self._waiting_blocks > WAITING_BLOCKS:
            self._waiting_blocks -= len(self._waiting.popleft().blocks)
            self.dropped += 1
        self._wake.set()

    async def send(self) -> None:
        """Announce what waits, for ever."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(BATCH_INTERVAL)
            self._wake.clear()
            batches = self._take()
            while not await self._announced(batches):
                # Kept and tried again: what was sent during an outage is worth knowing after it, and whether
                # the feed is back must not have to wait for the next request.
                await self._clock.sleep(RETRY_AFTER)

    async def _announced(self, batches: list[bytes]) -> bool:
        try:
            await self._feed.announce(batches)
        except UnreachableError:
            self._sends = False
        else:
            self._sends = True
        return self._sends

    async def receive(self) -> None:
        """Record what others announce, for ever."""
        after = ""
        while True:
            try:
                after, batches = await self._feed.tail(after, TAIL_WAIT)
                self._receives = True
            except UnreachableError:
                self._receives = False
                await self._clock.sleep(RETRY_AFTER)
                continue
            for batch in batches:
                await self._record(batch)

    def values(self) -> Iterable[Value]:
        """Return state and counts as metrics."""
        yield Value(names.PICKER_PREFIX_FEED_CONNECTED, self.connected)
        yield Value(names.PICKER_PREFIX_DROPPED, self.dropped, ("announce",))
        yield Value(names.PICKER_PREFIX_DROPPED, self.unreadable, ("unreadable",))

    def _take(self) -> list[bytes]:
        """Seal all that waits."""
        placements, self._waiting = self._waiting, deque()
        self._waiting_blocks = 0
        batches: list[bytes] = []
        batch: list[Placement] = []
        blocks = 0
        for placement in placements:
            if batch and blocks + len(placement.blocks) > BATCH_BLOCKS:
                batches.append(self._seal.seal(self._sender, batch, self._ids.token(NONCE_BYTES)))
                batch, blocks = [], 0
            batch.append(placement)
            blocks += len(placement.blocks)
        if batch:
            batches.append(self._seal.seal(self._sender, batch, self._ids.token(NONCE_BYTES)))
        return batches

    async def _record(self, batch: bytes) -> None:
        try:
            told = self._seal.open(batch)
        except PrefixBatchError:
            self.unreadable += 1
            return
        if told.sender != self._sender:
            for placement in told.placements:
                await self._indexes.record(placement.pod, placement.blocks)
