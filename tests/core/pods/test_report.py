"""The cluster's account: sums over pods, unknown kept apart from 0, and when each record is due."""

from dataclasses import replace

import pytest

from services.core.fleet import (
    Candidate,
    FleetSnapshot,
    HealthReport,
    PodRecord,
    PodState,
    PoolReport,
    ReportId,
)
from services.core.health.loads import load_of
from services.core.inference import ModelName
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.pods.discovered import DiscoveredEndpoint, StartPhase
from services.core.pods.reading import BucketCounts, EngineIdentity, EngineReading
from services.core.pods.report import (
    PoolSpec,
    pod_records,
    pods_due,
    pool_reports,
    report_due,
    warming_eta_ms,
)
from services.core.pods.starting import StartTimes
from services.core.pods.table import Pod, PodTable, ScrapeFailure
from services.core.scheduling.members import members_of
from services.core.units import Instant, WallMs, ms, seconds

MODEL = ModelName("m")
CLUSTER = ClusterId("eu-west-1")
EU = Locality(Region("eu-west"), Jurisdiction("eu"))
SPEC = PoolSpec("pool", (MODEL,), tier="reserved")


def at(second: float) -> Instant:
    return Instant(seconds(second))


def table_with(*readings: EngineReading | None, declared: int | None = 8) -> PodTable:
    pods = [
        Pod(
            str(number),
            f"h{number}:1",
            "pool",
            declared_requests=declared,
            declared_tokens_per_s=None if declared is None else 100.0,
        )
        for number in range(len(readings))
    ]
    table = PodTable(pods, at(0))
    for number, reading in enumerate(readings):
        if reading is not None:
            table.read(str(number), reading, at(0))
    return table


def report(table: PodTable, *, draining: bool = False) -> PoolReport:
    return pool_reports(table, [SPEC], draining=draining)[0]


def test_a_report_sums_ready_pods_and_averages_saturation() -> None:
    table = table_with(
        EngineReading("vllm", 10, 4, 0.4, active_adapters=frozenset("b"), waiting_adapters=frozenset("w")),
        EngineReading("vllm", 0, 2, 0.8, active_adapters=frozenset("ab")),
        None,
    )
    assert report(table) == PoolReport(
        pool="pool",
        model=MODEL,
        ready_endpoints=2,
        total_endpoints=3,
        waiting=10,
        running=6,
        capacity_requests=24,
        capacity_tokens_per_s=300.0,
        kv_use_mean=(0.4 + 0.8) / 2,
        kv_use_max=0.8,
        saturation=1.5,
        resident_adapters=("a", "b"),
        waiting_adapters=("w",),
        engine="vllm",
        tier="reserved",
        warming_endpoints=1,
    )


def test_unknown_is_never_zero() -> None:
    """A pod that does not say counts as the mean of those that do; when nobody says, nobody knows."""
    half = report(table_with(EngineReading("vllm", 4, 3, 0.5), EngineReading("vllm", None, 1, None)))
    assert (half.waiting, half.running, half.kv_use_mean, half.saturation) == (8, 4, 0.5, 0.8)
    nobody = report(table_with(EngineReading("vllm"), declared=None))
    assert (nobody.waiting, nobody.running, nobody.kv_use_mean, nobody.kv_use_max) == (None,) * 4
    assert (nobody.saturation, nobody.capacity_requests, nobody.capacity_tokens_per_s) == (None,) * 3


def test_a_stale_pool_serves_and_says_that_its_load_is_unknown() -> None:
    table = table_with(EngineReading("vllm", 4, 3, 0.5))
    table.tick(at(3))
    stale = report(table, draining=True)
    assert (stale.ready_endpoints, stale.waiting, stale.saturation, stale.engine) == (1, None, None, "")
    assert stale.draining


def test_capacity_is_that_of_all_pods_so_that_the_ready_share_counts_once() -> None:
    """Tier 2 weighs a cluster by capacity x ready share; of 4 pods with 8 each, 1 ready carries 8."""
    one_of_four = report(table_with(EngineReading("vllm", 0, 0, 0.0), None, None, None))
    load = load_of(
        HealthReport(CLUSTER, ReportId(1, 1), EU.region, EU.jurisdiction, WallMs(0), (one_of_four,))
    )
    assert load.whole.capacity_requests == 32
    candidate = Candidate(CLUSTER, EU, frozenset((MODEL,)), load.whole)
    (member,) = members_of(FleetSnapshot(1, 1, EU, (candidate,)), MODEL)
    assert (member.capacity, member.weight) == (32, 8)


def test_a_pool_with_an_undeclared_pod_has_an_unknown_capacity() -> None:
    nobody_ready = report(table_with(None))
    assert (nobody_ready.ready_endpoints, nobody_ready.capacity_requests) == (0, 8)
    assert report(table_with(None, declared=None)).capacity_requests is None


def test_time_to_first_token_is_merged_over_pods() -> None:
    def reading(count: float) -> EngineReading:
        return EngineReading("vllm", 0, 0, 0.0, ttft=BucketCounts((0.1, float("inf")), (count, count)))

    table = table_with(reading(0), reading(0))
    table.read("0", reading(50), at(1))
    table.read("1", reading(50), at(1))
    assert report(table).ttft_ms_p50 == pytest.approx(50.0)
    assert report(table).ttft_ms_p95 == pytest.approx(95.0)


def test_every_model_of_every_pool_has_its_report() -> None:
    table = PodTable([Pod("a", "a:1", "one"), Pod("b", "b:1", "two")], at(0))
    pools = [PoolSpec("one", (ModelName("x"), ModelName("y"))), PoolSpec("two", (ModelName("x"),))]
    found = [(item.pool, item.model) for item in pool_reports(table, pools, draining=False)]
    assert found == [("one", "x"), ("one", "y"), ("two", "x")]


def test_pod_records_carry_wall_time_of_entry_engine_and_reason() -> None:
    table = table_with(EngineReading("vllm", 0, 0, 0.0), None)
    table.identified("0", EngineIdentity("vllm", "0.10.1"), at(0))
    assert pod_records(table, at(2), WallMs(10_000)) == (
        PodRecord("0", "h0:1", PodState.READY, "vllm", "0.10.1", WallMs(8_000)),
        PodRecord("1", "h1:1", PodState.WARMING, "", "", WallMs(8_000), "no answer yet"),
    )


def test_an_engine_seen_only_on_its_page_is_named_without_a_version() -> None:
    records = pod_records(table_with(EngineReading("vllm", 0, 0, 0.0)), at(0), WallMs(1))
    assert (records[0].engine, records[0].version) == ("vllm", "")


BASE = PoolReport(
    "pool", MODEL, 2, 2, waiting=0, running=50, capacity_requests=64, saturation=0.5, resident_adapters=("a",)
)


@pytest.mark.parametrize(
    ("age_ms", "current", "due"),
    [
        (499, BASE, False),
        (500, BASE, True),
        (99, replace(BASE, ready_endpoints=1), False),
        (100, replace(BASE, ready_endpoints=1), True),
        (100, replace(BASE, draining=True), True),
        (100, replace(BASE, saturation=None), True),
        (100, replace(BASE, resident_adapters=("a", "b")), True),
        (100, replace(BASE, running=56), False),
        (100, replace(BASE, running=57), True),
        (100, replace(BASE, waiting=7), True),
        (100, replace(BASE, saturation=0.61), True),
        (100, replace(BASE, saturation=0.59), False),
    ],
)
def test_a_report_is_due_every_half_second_and_earlier_on_news(
    age_ms: int, current: PoolReport, *, due: bool
) -> None:
    assert report_due((BASE,), at(1), (current,), Instant(at(1) + ms(age_ms))) is due


def test_the_first_report_and_another_set_of_pools_are_news() -> None:
    assert report_due(None, at(1), (BASE,), at(1))
    assert report_due((BASE,), at(1), (BASE, BASE), at(1.1))


def test_idle_clusters_do_not_chatter() -> None:
    """Without a declared capacity one request more or less is no news; unknown loads compare as none."""
    idle = replace(BASE, running=0, capacity_requests=None)
    assert not report_due((idle,), at(1), (replace(idle, running=1),), at(1.2))
    assert report_due((idle,), at(1), (replace(idle, running=2),), at(1.2))
    unknown = replace(BASE, waiting=None, running=None, saturation=None)
    assert not report_due((unknown,), at(1), (unknown,), at(1.2))


RECORD = PodRecord("a", "a:1", PodState.READY, "vllm", "1", WallMs(5))


@pytest.mark.parametrize(
    ("age_ms", "current", "due"),
    [
        (4999, RECORD, False),
        (5000, RECORD, True),
        (200, replace(RECORD, since_ms=WallMs(6)), False),
        (200, replace(RECORD, state=PodState.STALE), True),
        (99, replace(RECORD, state=PodState.STALE), False),
    ],
)
def test_pod_lists_are_due_on_change_and_every_five_seconds(
    age_ms: int, current: PodRecord, *, due: bool
) -> None:
    assert pods_due((RECORD,), at(1), (current,), Instant(at(1) + ms(age_ms))) is due


def test_the_first_pod_list_is_due() -> None:
    assert pods_due(None, at(1), (), at(1))


def test_a_missed_scrape_of_a_ready_pod_changes_no_report() -> None:
    table = table_with(EngineReading("vllm", 1, 1, 0.1))
    before = report(table)
    table.missed("0", ScrapeFailure.TIMEOUT, at(1))
    assert report(table) == before


def warming(seen: StartTimes | None, phase: StartPhase | None = StartPhase.LOADING) -> PodTable:
    """A table with one pod 10 s into its start, which began with this phase."""
    table = PodTable([], at(0))
    endpoint = DiscoveredEndpoint("a", "10.0.0.1", (1,), ready=False, phase=phase, phase_age=seconds(4))
    table.set_pods("pool", [endpoint], at(4))
    if seen is not None:
        table.starts["pool"] = seen
    return table


def measured(took: float) -> StartTimes:
    times = StartTimes()
    times.advanced(StartPhase.LOADING, StartPhase.READY, seconds(took))
    return times


@pytest.mark.parametrize(
    ("seen", "declared_s", "eta_ms"),
    [
        (None, None, None),
        (None, 30, 20_000),
        (None, 5, None),
        (measured(60), 30, 50_000),
        (measured(5), 30, 20_000),
        (measured(5), None, None),
    ],
)
def test_a_warming_pool_says_when_it_will_serve_if_it_can_know(
    seen: StartTimes | None, declared_s: float | None, eta_ms: int | None
) -> None:
    table = warming(seen)
    spec = replace(SPEC, start_takes=None if declared_s is None else seconds(declared_s))
    told = pool_reports(table, [spec], draining=False, now=at(10))[0]
    assert (told.ready_endpoints, told.warming_endpoints, told.warming_eta_ms) == (0, 1, eta_ms)
    assert pool_reports(table, [spec], draining=False)[0].warming_eta_ms is None


def test_the_declared_start_of_a_pod_without_phases_counts_from_its_appearance() -> None:
    table = PodTable([Pod("a", "h:1", "pool")], at(1))
    spec = replace(SPEC, start_takes=seconds(30))
    assert warming_eta_ms(table, spec, at(11)) == 20_000


def test_a_pod_that_is_being_deleted_is_no_part_of_the_pool() -> None:
    table = PodTable([], at(0))
    pair = [
        DiscoveredEndpoint("a", "10.0.0.1", (1,), terminating=True, capacity_requests=8),
        DiscoveredEndpoint("b", "10.0.0.2", (1,), capacity_requests=8),
    ]
    table.set_pods("pool", pair, at(0))
    told = report(table)
    assert (told.total_endpoints, told.capacity_requests) == (1, 8)
