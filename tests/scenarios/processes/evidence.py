"""What a story is judged by: decision records, reports on the bus, moves in a router's log, the change stream.

All instants are CLOCK_MONOTONIC, which the processes of a host share. A report's send instant is the
`observed_at_ms` it carries: the picker reads that clock right before it hands the report to the bus, so it
lies before the send, and a limit counted from it is the stricter one. Wall time is converted by the
difference of both clocks at the moment of reading.
"""

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import redis

from services.adapters.kafka.reader import KafkaBusReader
from services.adapters.kafka.settings import KafkaSettings
from services.adapters.ports import BusRecord, Topic
from services.adapters.system.clock import SystemClock
from services.core.fleet import ReportId
from services.core.units import NS_PER_MS, Instant
from services.wire.health_codec import decode_report
from tests.scenarios.processes.plan import FLEET
from tests.support.bus import caught_up, kept, read_until

_MOVE = re.compile(r"^(\S+ \S+) INFO (\S+): (\w+) -> (\w+) \((.*)\)$", re.MULTILINE)
_WALL_FORMAT = "%Y-%m-%d %H:%M:%S,%f"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that a router sent, with its request's id and first byte."""

    request_id: str
    model: str
    cluster: str
    number: int
    redispatch: bool
    outcome: str
    sent_at: Instant
    ended_at: Instant
    first_byte_at: Instant | None

    def open_at(self, instant: Instant) -> bool:
        """Whether it was under way at `instant`."""
        return self.sent_at <= instant < self.ended_at

    def unanswered_at(self, instant: Instant) -> bool:
        """Whether it was under way and its client had no byte yet."""
        return self.open_at(instant) and (self.first_byte_at is None or self.first_byte_at > instant)


@dataclass(frozen=True, slots=True)
class Move:
    """One change of a cluster's state, as a router logged it (to the millisecond)."""

    at: Instant
    cluster: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """One health report as it lies on the bus."""

    cluster: str
    id: ReportId
    sent_at: Instant


def attempts_in(file: Path, since: Instant) -> list[Attempt]:
    """Return the attempts sent from `since` on, by records that are complete in the file."""
    found = []
    for line in file.read_bytes().splitlines():
        record: dict[str, Any] = orjson.loads(line)
        received = record["received_at_ns"]
        first_byte = record.get("first_byte_ms")
        first_byte_at = None if first_byte is None else Instant(received + round(first_byte * NS_PER_MS))
        found += [
            Attempt(
                record["request_id"],
                record["model"],
                attempt["cluster"],
                attempt["number"],
                attempt.get("redispatch", False),
                attempt["outcome"],
                Instant(attempt["sent_at_ns"]),
                Instant(attempt.get("ended_at_ns", received + round(record["duration_ms"] * NS_PER_MS))),
                first_byte_at,
            )
            for attempt in record["attempts"]
            if attempt["sent_at_ns"] >= since
        ]
    return found


def moves_in(log: str, since: Instant) -> list[Move]:
    """Return the state changes that a router's log tells of, from `since` on."""
    offset = _wall_offset_ns()
    moves = [
        Move(_logged_at(stamp, offset), cluster, before, after, reason)
        for stamp, cluster, before, after, reason in _MOVE.findall(log)
    ]
    return [move for move in moves if move.at >= since]


def _logged_at(stamp: str, offset_ns: int) -> Instant:
    wall = datetime.strptime(stamp, _WALL_FORMAT).astimezone()
    return Instant(round(wall.timestamp() * 1000) * NS_PER_MS - offset_ns)


def _wall_offset_ns() -> int:
    return time.time_ns() - time.monotonic_ns()


async def reports_on(bootstrap: str) -> list[Report]:
    """Return every health report that the bus retains; the last of each cluster always is."""
    reader = KafkaBusReader(KafkaSettings(bootstrap), [Topic.HEALTH], SystemClock())
    records = kept(await read_until(reader, caught_up))
    await reader.close()
    offset = _wall_offset_ns()
    return [_report(record, offset) for record in records if record.value is not None]


def _report(record: BusRecord, offset_ns: int) -> Report:
    report = decode_report(record.value or b"")
    return Report(report.cluster, report.id, Instant(report.observed_at_ms * NS_PER_MS - offset_ns))


def last_sent(reports: Collection[Report], before: Instant) -> Mapping[str, Instant]:
    """Return when each cluster sent its last report before `before`."""
    last: dict[str, Instant] = {}
    for report in reports:
        if report.sent_at < before:
            last[report.cluster] = max(report.sent_at, last.get(report.cluster, report.sent_at))
    return last


def applied_ids(redis_port: int, region: str) -> Mapping[str, list[ReportId]]:
    """Return, for each cluster, the report ids in the order in which the region's store took them."""
    stream = f"gir:{{{FLEET}.{region}}}:changes"
    applied: dict[str, list[ReportId]] = {}
    with redis.Redis(port=redis_port) as client:
        entries = client.xrange(stream)
    for _, fields in entries:
        if fields[b"kind"] == b"health" and fields.get(b"bytes"):
            report = decode_report(fields[b"bytes"])
            applied.setdefault(report.cluster, []).append(report.id)
    return applied
