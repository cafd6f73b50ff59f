"""The regional view on Redis: atomic compare-and-set by Lua, change stream, identity.

Layout, under one hash tag `gir:{<fleet>.<region>}`: `:meta` (incarnation, version, ready), `:changes`
(stream, entry id `<version>-0`), one hash per kind (key -> `<epoch> <sequence>\\n<bytes>`). The
server must not evict these keys (`noeviction`). Decoding reports is not done here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

from redis.asyncio import Redis

from services.adapters.ports import (
    Change,
    ChangeKind,
    Ids,
    Listing,
    StoreMeta,
    StreamGapError,
)
from services.adapters.redis.connection import connect, place_of, reaching
from services.core.fleet import ReportId
from services.core.units import NS_PER_MS, Duration

STREAM_MAX_CHANGES = 4096
"""Changes kept for tailing readers; with hundreds of reports a second it spans several seconds, and a
reader further behind lists again."""

TAIL_BATCH_CHANGES = 512
"""Most changes of one tail: at 64 KiB a report it bounds one reply to 32 MiB."""

BLOCK_MAX_MS = 1000
"""Longest wait of one XREAD: below the socket timeout, and the time in which a silent flush is noticed."""

INCARNATION_BYTES = 12

_SCRIPTS = Path(__file__).parent / "scripts"
_HASH_OF = {ChangeKind.HEALTH: "cluster", ChangeKind.PODS: "pods", ChangeKind.POLICY: "policy"}
_KINDS = tuple(_HASH_OF)
_WORDS = frozenset(kind.value for kind in _KINDS)
_FIRST_HASH = 3
"""Position of the first kind's hash among a script's KEYS, counted as Lua does."""


_Hash = Mapping[bytes, bytes]
_Streams = Sequence[tuple[bytes, Sequence[tuple[bytes, _Hash]]]]
"""Reply of XREAD: stream names with their entries."""


class _Script(Protocol):
    async def __call__(
        self, *, keys: Sequence[str], args: Sequence[bytes | str | int], client: "Redis | None" = None
    ) -> object: ...


class RedisFleetStore:
    """`FleetStore` on one Redis. `close` it in the loop that used it."""

    def __init__(
        self, url: str, fleet: str, region: str, ids: Ids, *, stream_max_changes: int = STREAM_MAX_CHANGES
    ) -> None:
        prefix = f"gir:{{{fleet}.{region}}}"
        self._meta_key = f"{prefix}:meta"
        self._changes_key = f"{prefix}:changes"
        self._hash_keys = {kind: f"{prefix}:{name}" for kind, name in _HASH_OF.items()}
        self._keys = (self._meta_key, self._changes_key, *(self._hash_keys[kind] for kind in _KINDS))
        self._ids = ids
        self._stream_max_changes = stream_max_changes
        self._place = place_of(url)
        self._client = connect(url)
        # A blocked XREAD occupies its connection, so the tail has one of its own.
        self._tail_client = connect(url, max_connections=1)
        self._seen: tuple[str, str] | None = None
        self._claim_script = self._script("claim")
        self._put_script = self._script("claim", "put")
        self._remove_script = self._script("claim", "remove")
        self._set_ready_script = self._script("set_ready")
        self._read_script = self._script("read")

    async def put(
        self, kind: ChangeKind, key: str, report_id: ReportId, payload: bytes, *, live: bool
    ) -> bool:
        """Set if `report_id` is newer than what is stored; return whether it was."""
        arguments = (
            self._fresh_incarnation(),
            _FIRST_HASH + _KINDS.index(kind),
            kind.value,
            key,
            report_id.epoch,
            report_id.sequence,
            payload,
            int(live),
            self._stream_max_changes,
        )
        async with reaching(self._client, self._place, f"put {kind.value} {key}"):
            return await self._put_script(keys=self._keys, args=arguments) == 1

    async def remove(self, kind: ChangeKind, key: str) -> bool:
        """Remove an entry; return whether there was one."""
        arguments = (
            self._fresh_incarnation(),
            _FIRST_HASH + _KINDS.index(kind),
            kind.value,
            key,
            self._stream_max_changes,
        )
        async with reaching(self._client, self._place, f"remove {kind.value} {key}"):
            return await self._remove_script(keys=self._keys, args=arguments) == 1

    async def meta(self) -> StoreMeta:
        """Return identity, version and readiness, all true at one moment."""
        meta, _ = await self._read(self._client, "read meta")
        return meta

    async def claim(self) -> StoreMeta:
        """Return the meta after making sure that there is an incarnation."""
        async with reaching(self._client, self._place, "claim"):
            await self._claim_script(keys=self._keys, args=(self._fresh_incarnation(),))
        return await self.meta()

    async def set_ready(self, claimed: StoreMeta) -> bool:
        """Mark the store as filled for the claimed run; False when it is another store or run by now."""
        async with reaching(self._client, self._place, "set ready"):
            await self._set_ready_script(keys=(self._meta_key,), args=(claimed.incarnation, claimed.run_id))
        meta = await self.meta()
        return meta.ready and meta.incarnation == claimed.incarnation

    async def list(self) -> Listing:
        """Return everything, true at `meta.version`."""
        meta, hashes = await self._read(self._client, "list", *(self._hash_keys[kind] for kind in _KINDS))
        self._seen = (meta.incarnation, meta.run_id)
        entries = (
            Change(meta.version, kind, key.decode(), value.partition(b"\n")[2], live=False)
            for kind, flat in zip(_KINDS, hashes, strict=True)
            for key, value in zip(flat[::2], flat[1::2], strict=True)
        )
        return Listing(meta, tuple(entries))

    async def tail(self, after_version: int, wait: Duration) -> Sequence[Change]:
        """Return the changes after `after_version`, waiting for the first up to `wait`, at most 1 s.

        The store's identity is looked at after every wake-up: a stream that was flushed while nobody
        writes would otherwise look like one without news.
        """
        changes = await self._read_stream(after_version, min(wait // NS_PER_MS, BLOCK_MAX_MS))
        meta, _ = await self._read(self._tail_client, "tail")
        if not changes and meta.version > after_version:
            changes = await self._read_stream(after_version, 0)  # Appended between the two readings.
        self._check_continues(meta, after_version, changes)
        return changes

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()
        await self._client.connection_pool.disconnect()
        await self._tail_client.aclose()
        await self._tail_client.connection_pool.disconnect()

    def _check_continues(self, meta: StoreMeta, after_version: int, changes: Sequence[Change]) -> None:
        identity = (meta.incarnation, meta.run_id)
        if self._seen is None:
            self._seen = identity
        if identity != self._seen:
            raise StreamGapError(
                f"redis {self._place}: the store is {identity}, the list came from {self._seen}"
            )
        if meta.version < after_version:
            raise StreamGapError(f"redis {self._place}: at version {meta.version}, below {after_version}")
        if meta.version > after_version and (not changes or changes[0].version != after_version + 1):
            raise StreamGapError(f"redis {self._place}: changes after {after_version} were trimmed")

    async def _read(
        self, client: "Redis", asked: str, *hash_keys: str
    ) -> tuple[StoreMeta, Sequence[Sequence[bytes]]]:
        """Read the meta and whole hashes at one moment; hashes are flat lists of keys and values."""
        async with reaching(client, self._place, asked):
            reply = await self._read_script(keys=(self._meta_key, *hash_keys), args=(), client=client)
        run_id, flat, *hashes = cast("tuple[bytes, Sequence[bytes], *tuple[Sequence[bytes], ...]]", reply)
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        meta = StoreMeta(
            incarnation=fields.get(b"incarnation", b"").decode(),
            run_id=run_id.decode(),
            version=int(fields.get(b"version", 0)),
            ready=fields.get(b"ready") == run_id,
        )
        return meta, hashes

    async def _read_stream(self, after_version: int, block_ms: int) -> Sequence[Change]:
        async with reaching(self._tail_client, self._place, "tail"):
            # BLOCK 0 would wait for ever; no BLOCK asks once.
            reply = await self._tail_client.xread(
                {self._changes_key: f"{after_version}-0"},
                count=TAIL_BATCH_CHANGES,
                block=block_ms if block_ms > 0 else None,
            )
        streams = cast("_Streams", reply)
        return [_change(entry_id, fields) for entry_id, fields in streams[0][1]] if streams else []

    def _script(self, *names: str) -> _Script:
        source = "".join((_SCRIPTS / f"{name}.lua").read_text() for name in names)
        return cast("_Script", self._client.register_script(source))

    def _fresh_incarnation(self) -> str:
        return self._ids.token(INCARNATION_BYTES).hex()


def _change(entry_id: bytes, fields: _Hash) -> Change:
    version, word = int(entry_id.partition(b"-")[0]), fields[b"kind"].decode()
    if word not in _WORDS:
        # A newer build writes here too; what this one understands is in the hashes it lists.
        raise StreamGapError(f"change {version} is of the unknown kind {word!r}")
    return Change(
        version=version,
        kind=ChangeKind(word),
        key=fields[b"key"].decode(),
        payload=fields.get(b"bytes"),
        live=fields[b"live"] == b"1",
    )
