"""The projector: moves the bus into the regional store, and nothing else.

Each record becomes one compare-and-set, so any number of projectors may do the same work.
Between reading and writing only the newest of each key is kept, so a store that is away
costs no memory and loses nothing. When the store turns out to be another one, everything
is read again before it is declared ready. Judging health is the view's business.
"""

import asyncio
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from services.adapters.ports import (
    TOPICS,
    AdapterError,
    BusPublisher,
    BusReader,
    BusRecord,
    CaughtUp,
    ChangeKind,
    Clock,
    FleetStore,
    StoreMeta,
    Topic,
)
from services.core.fleet import ReportId
from services.core.units import Duration, Instant, ms, seconds, since
from services.wire.errors import UndecodableError
from services.wire.health_codec import decode_report
from services.wire.pods_codec import decode_pods, pods_key
from services.wire.policy_codec import decode_policy

PROJECTED_TOPICS = (Topic.HEALTH, Topic.PODS, Topic.POLICY)

SNAPSHOT_KEY = "snapshot"
"""The key of `gir.policy` that holds the whole policy; other keys belong to later kinds of policy event."""

LOOK_INTERVAL = ms(500)
"""How often the store's identity is asked for: a flushed store is being refilled this soon."""

BACKOFF_FIRST = ms(100)
BACKOFF_MAX = seconds(1)

KNOWN_POISON_MAX = 1000
"""Undecodable records remembered so that a replay neither counts nor reports them again."""

DEAD_LETTER_TEXT_MAX = 200
"""Characters of key and error kept in a dead letter."""

_KIND_OF = {Topic.HEALTH: ChangeKind.HEALTH, Topic.PODS: ChangeKind.PODS, Topic.POLICY: ChangeKind.POLICY}
_QUOTED = re.compile(r"'.*'|\".*\"", re.DOTALL)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ProjectorCounters:
    """Plain counters, read at scrape time. `superseded` were older or equal to what the store had."""

    applied: int = 0
    superseded: int = 0
    removed: int = 0
    undecodable: int = 0
    ignored: int = 0
    replays: int = 0
    store_failures: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """The newest of one key that is not in the store yet: a report, a removal, or a removal then a report."""

    report_id: ReportId | None
    payload: bytes
    live: bool
    remove_first: bool
    read_at: Instant


def order_of(record: BusRecord) -> ReportId:
    """Return what orders a record among those of its key; raise `UndecodableError` if it says nothing valid.

    A record whose content belongs to another key is undecodable too: it would overwrite its neighbour.
    """
    value = record.value or b""
    if record.topic is Topic.HEALTH:
        report = decode_report(value)
        named, report_id = str(report.cluster), report.id
    elif record.topic is Topic.PODS:
        pods = decode_pods(value)
        named, report_id = pods_key(pods.cluster, pods.pool), pods.id
    else:
        named, report_id = SNAPSHOT_KEY, ReportId(decode_policy(value).revision, 0)
    if named != record.key:
        raise UndecodableError(record.topic.value, "the key is not that of the content")
    return report_id


def merged(before: Pending | None, record: BusRecord, report_id: ReportId | None, now: Instant) -> Pending:
    """Return what is left to do for a key when `record` follows `before`; `report_id` None is a tombstone.

    Live records act in the order of the log. In a replay only the outcome counts: a removal that a
    later report overtook must not make a living cluster vanish for a moment.
    """
    if report_id is None:
        return Pending(None, b"", record.live, True, now)
    if before is not None and before.report_id is not None and report_id <= before.report_id:
        return before
    removed_before = before is not None and before.remove_first and before.live and record.live
    return Pending(report_id, record.value or b"", record.live, removed_before, now)


def dead_letter(record: BusRecord, error: UndecodableError) -> bytes:
    """Return what is said of an undecodable record: where it lies and why, and nothing of its content."""
    return orjson.dumps(
        {
            "topic": record.topic.value,
            "key": record.key[:DEAD_LETTER_TEXT_MAX],
            "partition": record.partition,
            "offset": record.offset,
            "size_bytes": len(record.value or b""),
            "error": _QUOTED.sub("'…'", str(error))[:DEAD_LETTER_TEXT_MAX],
        }
    )


class Projector:
    """One projector of a region; run two or more. `run` ends when the reader is closed."""

    def __init__(
        self, reader: BusReader, store: FleetStore, dead_letters: BusPublisher, clock: Clock
    ) -> None:
        self._reader = reader
        self._store = store
        self._dead_letters = dead_letters
        self._clock = clock
        self._pending: dict[tuple[ChangeKind, str], Pending] = {}
        self._known_poison: dict[tuple[Topic, int, int], None] = {}
        self._wake = asyncio.Event()
        self._look_due = True
        self._claimed: StoreMeta | None = None
        self._awaited_pass = 0
        self._passed = -1
        self._filled = False
        self.counters = ProjectorCounters()

    @property
    def ready(self) -> bool:
        """Whether the whole bus has been projected into the store as it is now."""
        return self._filled

    @property
    def bus_connected(self) -> bool:
        """Whether the bus answered lately; a region stays ready without it."""
        return self._reader.connected

    async def run(self) -> None:
        """Project until the reader is closed."""
        async with asyncio.TaskGroup() as scope:
            ticking = scope.create_task(self._tick())
            writing = scope.create_task(self._write())
            async for batch in self._reader.records():
                self._take(batch)
            ticking.cancel()
            writing.cancel()

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(LOOK_INTERVAL)
            self._look_due = True
            self._wake.set()

    def _take(self, batch: Iterable[BusRecord | CaughtUp]) -> None:
        now = self._clock.now()
        for item in batch:
            if isinstance(item, CaughtUp):
                self._passed = item.number
            else:
                self._take_record(item, now)
        self._wake.set()

    def _take_record(self, record: BusRecord, now: Instant) -> None:
        kind = _KIND_OF[record.topic]
        if kind is ChangeKind.POLICY and (record.key != SNAPSHOT_KEY or record.value is None):
            # A region never loses its policy to a tombstone; other keys are for builds that know them.
            self.counters.ignored += 1
            return
        try:
            report_id = None if record.value is None else order_of(record)
        except UndecodableError as error:
            self._set_aside(record, error)
            return
        key = (kind, record.key)
        self._pending[key] = merged(self._pending.get(key), record, report_id, now)

    def _set_aside(self, record: BusRecord, error: UndecodableError) -> None:
        place = (record.topic, record.partition, record.offset)
        if place in self._known_poison:
            return
        self._known_poison[place] = None
        if len(self._known_poison) > KNOWN_POISON_MAX:
            del self._known_poison[next(iter(self._known_poison))]
        self.counters.undecodable += 1
        key = f"{record.topic.value}/{record.partition}/{record.offset}"
        self._dead_letters.offer(Topic.DEAD_LETTER, key, dead_letter(record, error))

    async def _write(self) -> None:
        backoff = BACKOFF_FIRST
        while True:
            self._wake.clear()
            try:
                await self._look_and_drain()
            except AdapterError as failure:
                self.counters.store_failures += 1
                _log.warning("projector: %s", failure)
                await self._clock.sleep(backoff)
                backoff = Duration(min(2 * backoff, BACKOFF_MAX))
                self._look_due = True
            else:
                backoff = BACKOFF_FIRST
                await self._wake.wait()

    async def _look_and_drain(self) -> None:
        """Write everything that waits, looking at the store's identity first and whenever it is due.

        Nothing is written before the first look: what went into a store nobody had looked at could be
        lost with it unnoticed.
        """
        while self._look_due or self._pending:
            if self._look_due:
                self._look_due = False
                await self._look()
            elif self._pending:
                await self._write_one(*next(iter(self._pending.items())))
        if not self._filled and self._passed >= self._awaited_pass and self._claimed is not None:
            self._filled = await self._store.set_ready(self._claimed)
            self._look_due = not self._filled

    async def _look(self) -> None:
        meta = await self._store.claim()
        known, self._claimed = self._claimed, meta
        if known is None:
            return
        same = (known.incarnation, known.run_id) == (meta.incarnation, meta.run_id)
        if not same or meta.version < known.version:
            self._filled = False
            self._awaited_pass = self._reader.replay()
            self.counters.replays += 1
            _log.warning("the store is another one (%s, was %s): replaying the bus", meta, known)
        elif not meta.ready:
            self._filled = False

    async def _write_one(self, target: tuple[ChangeKind, str], pending: Pending) -> None:
        kind, key = target
        if pending.remove_first and await self._store.remove(kind, key):
            self.counters.removed += 1
        if pending.report_id is not None:
            live = pending.live and self._fresh(pending)
            if await self._store.put(kind, key, pending.report_id, pending.payload, live=live):
                self.counters.applied += 1
            else:
                self.counters.superseded += 1
        # Only now, and only if nothing newer came meanwhile: a failure above leaves it to be written again.
        if self._pending.get(target) is pending:
            del self._pending[target]

    def _fresh(self, pending: Pending) -> bool:
        """Whether a live record has not outlived its use while the store was away."""
        life = TOPICS[Topic.HEALTH].useful_life
        return life is None or since(pending.read_at, self._clock.now()) <= life
