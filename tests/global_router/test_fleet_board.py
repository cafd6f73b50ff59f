"""The board keeps what the feed brings, within bounds, and shows only what it can read."""

import pytest

from services.adapters.memory.clock import VirtualClock
from services.adapters.memory.feed import MemoryFeed
from services.adapters.ports import Change, ChangeKind, FeedListing, FeedReport, Listing, StoreMeta
from services.adapters.system.tasks import TaskScope
from services.core.fleet import PodRecord, PodsReport, PodState, ReportId
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.units import Instant, WallMs
from services.global_router import fleet_board
from services.global_router.fleet_board import FleetBoard
from services.global_router.view import View
from services.wire.pods_codec import encode_pods

NOW = Instant(1)


def pods(cluster: str) -> bytes:
    record = PodRecord("pod-1", "10.0.0.1:8000", PodState.FAILED, "vllm", "0.9.2", WallMs(1), "refused")
    return encode_pods(PodsReport(ClusterId(cluster), "p", ReportId(1, 1), (record,)))


def change(key: str, payload: bytes | None, kind: ChangeKind = ChangeKind.PODS) -> FeedReport:
    return FeedReport(Change(1, kind, key, payload, live=True), NOW)


@pytest.fixture
def board() -> tuple[FleetBoard, MemoryFeed]:
    clock, feed = VirtualClock(), MemoryFeed()
    here = Locality(Region("eu-west"), Jurisdiction("eu"))
    view = View(clock, feed, here, TaskScope(lambda _name, error: pytest.fail(str(error))))
    board = FleetBoard(view, feed)
    board.start()
    return board, feed


def test_lists_and_changes_are_kept_and_removed(board: tuple[FleetBoard, MemoryFeed]) -> None:
    shown, feed = board
    listed = Change(1, ChangeKind.PODS, "b/p", pods("b"), live=False)
    feed.publish(FeedListing(Listing(StoreMeta("i", "r", 1, ready=True), (listed,)), NOW))
    feed.publish(change("a/p", pods("a")))
    assert [report.cluster for report in shown.pods()] == ["a", "b"]
    assert shown.pods()[0].pods[0].reason == "refused"
    feed.publish(change("a/p", None))
    assert [report.cluster for report in shown.pods()] == ["b"]
    shown.stop()
    feed.publish(change("b/p", None))
    assert [report.cluster for report in shown.pods()] == ["b"]


def test_garbage_is_left_out_and_other_kinds_are_no_pods(board: tuple[FleetBoard, MemoryFeed]) -> None:
    shown, feed = board
    feed.publish(change("a/p", b"\xff\xff"))
    feed.publish(change("snapshot", b"x", ChangeKind.POLICY))
    feed.publish(change("a", b"\xff", ChangeKind.HEALTH))
    assert shown.pods() == []
    assert shown.statuses(NOW) == []


def test_it_is_bounded(board: tuple[FleetBoard, MemoryFeed], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_board, "PAYLOADS_MAX", 1)
    shown, feed = board
    feed.publish(change("a/p", pods("a")))
    feed.publish(change("b/p", pods("b")))
    feed.publish(change("a/p", pods("a")))
    assert [report.cluster for report in shown.pods()] == ["a"]
