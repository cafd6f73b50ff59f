"""The pickers' prefix feed on Redis: one capped stream per cluster.

Key `gir:picker:{<cluster>}:prefix`, field `b`. Batches are sealed before they come here, and nothing is lost
with them but a warm start: the stream may be evicted, flushed or away.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from services.adapters.redis.connection import connect, place_of, reaching
from services.core.units import NS_PER_MS, Duration

HISTORY_BATCHES = 4096
"""Batches kept, near enough (MAXLEN ~): a few MiB, and what a new replica starts from."""
TAIL_BATCHES = 256
"""Most batches of one tail: bounds one reply to a few MiB."""
BLOCK_MAX_MS = 1000
"""Longest wait of one XREAD, below the socket timeout."""

_FIELD = b"b"
_START = "0-0"

_Streams = Sequence[tuple[bytes, Sequence[tuple[bytes, Mapping[bytes, bytes]]]]]


class RedisPrefixFeed:
    """`PrefixFeed` on one Redis. `close` it in the loop that used it."""

    def __init__(self, url: str, cluster: str, *, history_batches: int = HISTORY_BATCHES) -> None:
        self._key = f"gir:picker:{{{cluster}}}:prefix"
        self._history_batches = history_batches
        self._place = place_of(url)
        self._client = connect(url)
        # A blocked XREAD occupies its connection, so the tail has one of its own.
        self._tail_client = connect(url, max_connections=1)

    async def announce(self, batches: Sequence[bytes]) -> None:
        """Append batches in one round trip."""
        async with reaching(self._client, self._place, "announce prefixes"):
            pipeline = self._client.pipeline(transaction=False)
            for batch in batches:
                pipeline.xadd(self._key, {_FIELD: batch}, maxlen=self._history_batches, approximate=True)
            await pipeline.execute()

    async def tail(self, after: str, wait: Duration) -> tuple[str, Sequence[bytes]]:
        """Return at most `TAIL_BATCHES` batches after `after`, waiting up to `wait`, at most 1 s."""
        block_ms = min(wait // NS_PER_MS, BLOCK_MAX_MS)
        async with reaching(self._tail_client, self._place, "tail prefixes"):
            # BLOCK 0 would wait for ever; no BLOCK asks once.
            reply = await self._tail_client.xread(
                {self._key: after or _START}, count=TAIL_BATCHES, block=block_ms if block_ms > 0 else None
            )
        streams = cast("_Streams", reply)
        if not streams:
            return after, []
        entries = streams[0][1]
        return entries[-1][0].decode(), [fields[_FIELD] for _, fields in entries if _FIELD in fields]

    async def close(self) -> None:
        """Close every connection."""
        for client in (self._client, self._tail_client):
            await client.aclose()
            await client.connection_pool.disconnect()
