from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.adapters.ports import BusRecord, Topic
from services.core.fleet import ReportId
from services.core.units import Instant
from services.global_router.project import (
    Pending,
    dead_letter,
    merged,
    order_of,
)
from services.wire.errors import UndecodableError
from tests.support.reports import health_bytes, pods_bytes, policy_bytes

NOW = Instant(5)


def record(topic: Topic, key: str, value: bytes | None, *, live: bool = True, offset: int = 7) -> BusRecord:
    return BusRecord(topic, key, value, partition=3, offset=offset, live=live)


class TestOrderOf:
    def test_each_topic_is_ordered_by_what_its_content_says(self) -> None:
        assert order_of(record(Topic.HEALTH, "eu-1", health_bytes("eu-1", 4, 2))) == ReportId(4, 2)
        assert order_of(record(Topic.PODS, "eu-1/llm", pods_bytes("eu-1", "llm", 9, 1))) == ReportId(9, 1)
        assert order_of(record(Topic.POLICY, "snapshot", policy_bytes(12))) == ReportId(12, 0)

    @pytest.mark.parametrize(
        ("topic", "key", "value"),
        [
            (Topic.HEALTH, "eu-1", b"\xff\xff no message"),
            (Topic.HEALTH, "eu-1", b""),
            (Topic.HEALTH, "eu-2", health_bytes("eu-1", 1, 1)),
            (Topic.PODS, "eu-1", pods_bytes("eu-1", "llm", 1, 1)),
            (Topic.POLICY, "snapshot", b"\x08"),
        ],
    )
    def test_what_is_invalid_or_under_a_foreign_key_is_undecodable(
        self, topic: Topic, key: str, value: bytes
    ) -> None:
        with pytest.raises(UndecodableError):
            order_of(record(topic, key, value))

    @given(st.binary(max_size=200))
    def test_any_bytes_are_either_ordered_or_undecodable(self, value: bytes) -> None:
        """Invariant: no bytes whatever raise anything but `UndecodableError`."""
        for topic, key in ((Topic.HEALTH, "eu-1"), (Topic.PODS, "eu-1/llm"), (Topic.POLICY, "snapshot")):
            with suppress(UndecodableError):
                order_of(record(topic, key, value))


class TestMerged:
    def report(self, sequence: int, *, live: bool = True) -> tuple[BusRecord, ReportId]:
        value = f"r{sequence}".encode()
        return record(Topic.HEALTH, "eu-1", value, live=live), ReportId(1, sequence)

    def tombstone(self, *, live: bool = True) -> tuple[BusRecord, None]:
        return record(Topic.HEALTH, "eu-1", None, live=live), None

    def test_a_newer_report_replaces_a_waiting_one_and_an_older_or_equal_does_not(self) -> None:
        waiting = merged(None, *self.report(5), NOW)
        assert waiting == Pending(ReportId(1, 5), b"r5", live=True, remove_first=False, read_at=NOW)
        assert merged(waiting, *self.report(4), NOW) is waiting
        assert merged(waiting, *self.report(5), NOW) is waiting
        assert merged(waiting, *self.report(6), NOW).payload == b"r6"

    def test_a_tombstone_replaces_whatever_waits(self) -> None:
        removed = merged(merged(None, *self.report(5), NOW), *self.tombstone(), NOW)
        assert (removed.report_id, removed.remove_first) == (None, True)

    def test_a_live_report_after_a_live_tombstone_keeps_the_removal_before_it(self) -> None:
        removed = merged(None, *self.tombstone(), NOW)
        back = merged(removed, *self.report(1), NOW)
        assert (back.report_id, back.remove_first) == (ReportId(1, 1), True)
        assert merged(back, *self.report(2), NOW).remove_first

    @pytest.mark.parametrize(("tombstone_live", "report_live"), [(False, False), (False, True)])
    def test_a_tombstone_read_in_a_replay_is_forgotten_once_a_report_follows(
        self, tombstone_live: bool, report_live: bool
    ) -> None:
        removed = merged(None, *self.tombstone(live=tombstone_live), NOW)
        assert not merged(removed, *self.report(1, live=report_live), NOW).remove_first

    @given(st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1))
    def test_the_outcome_is_that_of_writing_every_record(self, log: list[int | None]) -> None:
        """Invariant: merging live records and writing once leaves what writing each of them leaves."""
        pending: Pending | None = None
        stored: int | None = None
        for entry in log:
            if entry is None:
                stored = None
                pending = merged(pending, *self.tombstone(), NOW)
            else:
                stored = entry if stored is None else max(stored, entry)
                pending = merged(pending, *self.report(entry), NOW)
        assert pending is not None
        outcome = None if pending.report_id is None else pending.report_id.sequence
        assert outcome == stored
        assert pending.remove_first == (None in log)


def test_a_dead_letter_says_where_and_why_and_nothing_of_the_content() -> None:
    poison = record(Topic.HEALTH, "k" * 5000, b"the patient said 'it hurts'")
    letter = orjson.loads(
        dead_letter(poison, UndecodableError("health report", "cluster 'it hurts': must be short"))
    )
    assert letter == {
        "topic": "gir.health",
        "key": "k" * 200,
        "partition": 3,
        "offset": 7,
        "size_bytes": 27,
        "error": "health report: cluster '…': must be short",
    }
