from types import SimpleNamespace
from typing import Any, cast

from services.adapters.memory.clock import VirtualClock
from services.core.fleet import HealthState
from services.core.inference import ModelName, RequestId, TenantId, TrafficClass
from services.core.units import Instant, WallMs
from services.global_router.records import AttemptRecord, DecisionRecord
from services.worlds.tour_evidence import Watch, dispatches_of

REQUEST = RequestId("r1")


def record(*attempts: AttemptRecord, ended_at: int | None, first_byte_at: int | None) -> DecisionRecord:
    return DecisionRecord(
        REQUEST,
        "",
        "http",
        TenantId("acme"),
        ModelName("m"),
        TrafficClass.INTERACTIVE,
        Instant(1),
        WallMs(1),
        1,
        1,
        attempts=list(attempts),
        ended_at=None if ended_at is None else Instant(ended_at),
        first_byte_at=None if first_byte_at is None else Instant(first_byte_at),
    )


def router(*, finished: list[DecisionRecord], running: list[DecisionRecord]) -> Any:
    return SimpleNamespace(
        settings=SimpleNamespace(region="eu"),
        log=SimpleNamespace(recent=lambda: finished),
        life=SimpleNamespace(live=[SimpleNamespace(record=each) for each in running]),
    )


def test_each_attempt_is_a_dispatch_and_the_last_one_lasts_as_long_as_the_request() -> None:
    first = AttemptRecord(1, "us-1", False, Instant(10), ended_at=Instant(20))
    second = AttemptRecord(2, "ap-1", True, Instant(21), ended_at=Instant(25))
    found = dispatches_of(
        [router(finished=[record(first, second, ended_at=90, first_byte_at=25)], running=[])], {REQUEST}
    )
    assert [(d.cluster, d.number, d.redispatch, d.sent_at, d.ended_at) for d in found] == [
        ("us-1", 1, False, 10, 20),
        ("ap-1", 2, True, 21, 90),
    ]
    assert {(d.router, d.model, d.stream, d.first_byte_at) for d in found} == {("eu", "m", True, 25)}


def test_requests_under_way_count_and_refused_ones_dispatch_nothing() -> None:
    running = record(AttemptRecord(1, "us-1", False, Instant(10)), ended_at=None, first_byte_at=None)
    refused = record(ended_at=5, first_byte_at=None)
    found = dispatches_of([router(finished=[refused], running=[running])], ())
    assert [(d.cluster, d.ended_at, d.stream) for d in found] == [("us-1", None, False)]


class Views:
    """A world of one router whose beliefs a test sets."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.clusters: dict[str, Any] = {}
        state = SimpleNamespace(clusters=self.clusters)
        view = SimpleNamespace(state=state)
        self.regions = {"eu": SimpleNamespace(router=SimpleNamespace(view=view))}

    def believe(self, cluster: str, state: HealthState, heard_at: int) -> None:
        self.clusters[cluster] = SimpleNamespace(state=state, quiet_since=Instant(heard_at))


def test_only_changes_of_belief_are_noted() -> None:
    views = Views()
    watch = Watch(cast("Any", views))
    views.believe("us-1", HealthState.HEALTHY, 5)
    watch.look()
    watch.look()
    views.believe("us-1", HealthState.STALE, 5)
    watch.look()
    assert [(s.cluster, s.state, s.heard_at) for s in watch.sightings] == [
        ("us-1", HealthState.HEALTHY, 5),
        ("us-1", HealthState.STALE, 5),
    ]
    assert watch.sees("eu", ["us-1"], {HealthState.STALE})
    assert not watch.sees("eu", ["us-1", "us-2"], {HealthState.STALE})


def test_a_cluster_is_heard_again_only_when_trusted_by_a_newer_report() -> None:
    views = Views()
    watch = Watch(cast("Any", views))
    for state, heard_at, expected in (
        (HealthState.STALE, 20, False),
        (HealthState.HEALTHY, 9, False),
        (HealthState.HEALTHY, 20, True),
    ):
        views.believe("us-1", state, heard_at)
        watch.look()
        assert watch.heard_since(Instant(10), [("eu", "us-1")]) is expected
    assert not watch.heard_since(Instant(10), [("eu", "us-1"), ("eu", "us-2")])
