"""Picking among pods: fresh before stale, least load, own requests counted, spread within a scrape."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.fleet import PodState
from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.locality import Jurisdiction, Locality, Region
from services.core.outcomes import DropReason, Rejected
from services.core.pods.discovered import DiscoveredEndpoint
from services.core.pods.reading import BucketCounts, EngineReading
from services.core.pods.report import PoolSpec
from services.core.pods.table import Pod, PodTable, ScrapeFailure
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.scheduling.profile import Picker, SchedulingProfile, Weighted, endpoint_profile
from services.core.scheduling.scorers.affinity import ColdSpread
from services.core.scheduling.scorers.fit import HeaderLabel
from services.core.scheduling.scorers.latency import Latency
from services.core.scheduling.scorers.load import TokenLoad
from services.core.scheduling.signals import Signals
from services.core.units import Instant, ms, seconds
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.pick import LocalScheduler, Pick

MODEL = ModelName("m")
PLACE = Locality(Region("eu-west"), Jurisdiction("eu"))
IDLE = EngineReading("vllm", 0, 0, 0.1)


def at(milliseconds: float) -> Instant:
    return Instant(ms(milliseconds))


SOON = at(1)


def scheduler(*readings: EngineReading | None) -> LocalScheduler:
    table = PodTable([Pod(f"p{n}", f"h{n}:1", "pool") for n in range(len(readings))], at(0))
    for number, reading in enumerate(readings):
        if reading is not None:
            table.read(f"p{number}", reading, at(0))
    return LocalScheduler(table, (PoolSpec("pool", (MODEL,)),), PLACE, Counters())


def request(number: int = 0, **changes: object) -> InferenceRequest:
    fields: dict[str, object] = {
        "request_id": RequestId(f"id-{number}"),
        "tenant": Tenant(TenantId("t"), Grants()),
        "model": MODEL,
        "residency": ANYWHERE,
    }
    return InferenceRequest(**(fields | changes))  # type: ignore[arg-type] # the fields' names are checked by the class


def picked(
    found: LocalScheduler, number: int = 0, now: Instant = SOON, pool: str = "pool", **changes: object
) -> Pick:
    pick = found.pick(request(number, **changes), now, pool=pool)
    assert isinstance(pick, Pick)
    return pick


def refused(found: LocalScheduler, now: Instant = SOON, **changes: object) -> DropReason:
    decision = found.pick(request(0, **changes), now, pool="pool")
    assert isinstance(decision, Rejected)
    return decision.reason


def test_the_idlest_pod_is_picked_and_the_others_follow_in_order() -> None:
    found = scheduler(EngineReading("vllm", 9, 9, 0.9), IDLE, EngineReading("vllm", 3, 1, 0.4))
    pick = picked(found)
    assert pick.pod.id == "p1"
    assert [pod.id for pod in pick.fallbacks] == ["p2", "p0"]


def test_requests_within_one_scrape_interval_spread_over_equal_pods() -> None:
    """No herd: what this picker has sent since a reading counts as waiting there."""
    found = scheduler(IDLE, IDLE, IDLE, IDLE)
    counts = Counter(picked(found, number).pod.id for number in range(100))
    assert set(counts.values()) == {25}


def test_own_requests_count_until_they_end_and_only_once() -> None:
    found = scheduler(IDLE, IDLE)
    first = picked(found)
    assert (first.pod.in_flight, first.pod.since_reading) == (1, 1)
    second = picked(found)
    assert second.pod is not first.pod
    found.complete(first)
    found.complete(first)
    assert (first.pod.in_flight, first.pod.since_reading) == (0, 0)
    assert found.counters.picks == 2
    assert picked(found).pod is first.pod


def test_a_moved_request_counts_where_it_went() -> None:
    found = scheduler(IDLE, IDLE)
    pick = picked(found)
    before, after = pick.pod, pick.fallbacks[0]
    found.move(pick, after)
    assert (before.in_flight, after.in_flight, pick.pod) == (0, 1, after)


def test_stale_pods_are_not_picked_while_a_fresh_one_exists() -> None:
    found = scheduler(IDLE, EngineReading("vllm", 50, 50, 0.99))
    found.table.read("p1", EngineReading("vllm", 50, 50, 0.99), at(1_900))
    found.table.tick(at(2_100))
    pick = picked(found, now=at(2_101))
    assert (pick.pod.id, pick.fallbacks) == ("p1", ())


def test_f016_all_stale_means_the_least_own_in_flight_and_never_a_refusal() -> None:
    found = scheduler(IDLE, IDLE, IDLE)
    busy = [picked(found, number) for number in range(3)]
    found.complete(busy[1])
    found.table.tick(at(5_000))
    assert {pod.state for pod in found.table} == {PodState.STALE}
    assert picked(found, now=at(5_001)).pod is busy[1].pod
    counts = Counter(picked(found, number, at(5_002)).pod.id for number in range(30))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_servers_without_metrics_serve_by_own_requests() -> None:
    found = scheduler(None, None)
    for pod in ("p0", "p1"):
        found.table.missed(pod, ScrapeFailure.STATUS, at(1))
    counts = Counter(picked(found, number, at(2)).pod.id for number in range(10))
    assert counts == {"p0": 5, "p1": 5}


def test_f001_a_pod_that_does_not_tell_its_cache_use_is_not_preferred_for_the_gap() -> None:
    """The pod without the metric scores as the others' mean: behind the idle one, before the full one."""
    no_kv = EngineReading("vllm", 0, 0, None, missing=("vllm:kv_cache_usage_perc",))
    found = scheduler(no_kv, EngineReading("vllm", 0, 0, 0.10), EngineReading("vllm", 0, 0, 0.97))
    pick = picked(found)
    assert [pick.pod.id, *(pod.id for pod in pick.fallbacks)] == ["p1", "p0", "p2"]


def test_f020_a_pod_that_joins_gets_no_more_than_its_share() -> None:
    """Warming it gets nothing while others are fresh; ready and idle it fills up to the others and no further."""
    found = scheduler(*[EngineReading("vllm", 4, 20, 0.5)] * 3, None)
    before = Counter(picked(found, number).pod.id for number in range(30))
    assert before["p3"] == 0
    for pod in ("p0", "p1", "p2"):
        found.table.read(pod, EngineReading("vllm", 14, 20, 0.5), at(100))
    found.table.read("p3", EngineReading("vllm", 0, 0, 0.5), at(100))
    after = Counter(picked(found, number, at(200)).pod.id for number in range(200))
    assert 0 < after["p3"] <= 14 + 200 / 4 + 1


def test_new_readings_are_laid_out_at_most_every_twenty_milliseconds_and_moves_at_once() -> None:
    found = scheduler(IDLE, EngineReading("vllm", 5, 5, 0.5))
    assert picked(found, now=at(1)).pod.id == "p0"
    found.table.read("p0", EngineReading("vllm", 90, 90, 0.9), at(2))
    assert picked(found, now=at(3)).pod.id == "p0"
    assert picked(found, now=at(30)).pod.id == "p1"
    found.table.connect_failed("p1", at(31))
    assert picked(found, now=at(31)).pod.id == "p0"


def test_only_pods_that_were_read_or_changed_are_laid_out_anew() -> None:
    found = scheduler(IDLE, IDLE)
    before = found._current("pool", at(1)).snapshot.candidates
    found.table.read("p1", EngineReading("vllm", 3, 4, 0.5), at(2))
    after = found._current("pool", at(30)).snapshot.candidates
    assert after[0] is before[0]
    assert (before[1].load_for(MODEL).waiting, after[1].load_for(MODEL).waiting) == (0, 3)
    declared = [
        DiscoveredEndpoint(name, f"h{name[1:]}", (1,), labels={"tier": "gold"}) for name in ("p0", "p1")
    ]
    found.table.set_pods("pool", declared, at(31))
    changed = found._current("pool", at(31)).snapshot.candidates
    assert [candidate.labels for candidate in changed] == [{"tier": "gold"}] * 2


def test_refusals() -> None:
    us_only = ResidencyRule(allow_jurisdictions=frozenset({Jurisdiction("us")}))
    assert refused(scheduler()) is DropReason.NO_ENDPOINTS
    assert refused(scheduler(IDLE), residency=us_only) is DropReason.RESIDENCY_UNSATISFIABLE
    full = scheduler(EngineReading("vllm", 50, 50, 1.0))
    assert refused(full, priority=-1) is DropReason.SATURATED
    assert picked(full, priority=0).pod.id == "p0"
    assert full.counters.rejections == {"saturated": 1}


def test_failed_and_draining_pods_are_never_picked() -> None:
    found = scheduler(IDLE, IDLE)
    for _ in range(3):
        found.table.missed("p0", ScrapeFailure.REFUSED, at(1))
    assert {picked(found, number, at(2)).pod.id for number in range(5)} == {"p1"}
    found.table["p1"].draining = True
    found.table.tick(at(3))
    assert refused(found, at(4)) is DropReason.NO_ENDPOINTS
    for _ in range(2):
        found.table.read("p0", IDLE, at(5))
    found.table["p0"].draining = True
    found.table.tick(at(6))
    assert refused(found, at(7)) is DropReason.DRAINED


def test_an_excluded_pod_is_the_last_resort() -> None:
    found = scheduler(IDLE)
    found.table.connect_failed("p0", at(1))
    assert not found.ready
    assert picked(found, now=at(2)).pod.id == "p0"


def test_what_a_request_already_failed_on_is_left_out() -> None:
    found = scheduler(IDLE, IDLE)
    pick = found.pick(request(), at(1), pool="pool", tried=("p0",))
    assert isinstance(pick, Pick)
    assert (pick.pod.id, pick.fallbacks) == ("p1", ())
    rejected = found.pick(request(), at(1), pool="pool", tried=("p0", "p1"))
    assert isinstance(rejected, Rejected)
    assert rejected.reason is DropReason.ATTEMPTS_EXHAUSTED


def test_an_explained_pick_says_why_of_every_pod() -> None:
    found = scheduler(IDLE, None)
    pick = found.pick(request(), at(1), pool="pool", verbose=True)
    assert isinstance(pick, Pick)
    assert [(verdict.candidate, verdict.reason) for verdict in pick.explanation.verdicts] == [
        ("p0", None),
        ("p1", DropReason.NO_ENDPOINTS),
    ]


def test_only_pods_of_the_asked_pool_are_picked() -> None:
    table = PodTable([Pod("a", "a:1", "one"), Pod("b", "b:1", "two")], at(0))
    for pod in "ab":
        table.read(pod, IDLE, at(0))
    pools = (PoolSpec("one", (MODEL,)), PoolSpec("two", (MODEL,)))
    found = LocalScheduler(table, pools, PLACE, Counters())
    assert {picked(found, n, pool="two").pod.id for n in range(5)} == {"b"}
    assert {picked(found, n, pool="one").pod.id for n in range(5)} == {"a"}
    unknown = found.pick(request(), SOON, pool="three")
    assert isinstance(unknown, Rejected)
    assert unknown.reason is DropReason.NO_ENDPOINTS


def test_a_pool_with_a_profile_of_its_own_is_picked_by_it() -> None:
    table = PodTable(
        [Pod(f"{pool}{n}", f"{pool}{n}:1", pool) for pool in ("one", "two") for n in range(3)], at(0)
    )
    for pod in list(table):
        table.read(pod.id, IDLE, at(0))
    pools = (PoolSpec("one", (MODEL,)), PoolSpec("two", (MODEL,)))
    found = LocalScheduler(
        table,
        pools,
        PLACE,
        Counters(),
        endpoint_profile(Picker.RANDOM),
        {"two": endpoint_profile(Picker.ROUND_ROBIN)},
    )
    assert [picked(found, n, pool="two").pod.id for n in range(6)] == ["two0", "two1", "two2"] * 2
    drawn = [picked(found, n, pool="one").pod.id for n in range(30)]
    assert drawn != ["one0", "one1", "one2"] * 10
    assert set(drawn) == {"one0", "one1", "one2"}


@pytest.mark.parametrize("pods", [1, 7])
def test_readiness_is_one_ready_endpoint(pods: int) -> None:
    assert scheduler(*[IDLE] * pods).ready
    assert not scheduler(*[None] * pods).ready


@given(
    st.lists(
        st.tuples(st.sampled_from(["pick", "complete", "move", "read", "tick", "fail"]), st.integers(0, 3)),
        max_size=60,
    )
)
def test_in_flight_is_exactly_the_picks_that_have_not_ended(steps: list[tuple[str, int]]) -> None:
    """Invariant: over any interleaving, each pod's in-flight count is the number of open picks that stand on it."""
    found = scheduler(IDLE, IDLE, IDLE, IDLE)
    open_picks: list[Pick] = []
    for number, (step, pod) in enumerate(steps):
        now = at(number * 300)
        if step == "pick":
            pick = found.pick(request(number), now, pool="pool")
            if isinstance(pick, Pick):
                open_picks.append(pick)
        elif step == "complete" and open_picks:
            found.complete(open_picks.pop(pod % len(open_picks)))
        elif step == "move" and open_picks:
            found.move(open_picks[0], found.table[f"p{pod}"])
        elif step == "read":
            found.table.read(f"p{pod}", IDLE, now)
        elif step == "fail":
            found.table.connect_failed(f"p{pod}", now)
        else:
            found.table.tick(Instant(now + seconds(pod)))
        counts = Counter(pick.pod.id for pick in open_picks)
        assert {pod.id: pod.in_flight for pod in found.table} == {f"p{n}": counts[f"p{n}"] for n in range(4)}


def decided(found: LocalScheduler, number: int = 0, now: Instant = SOON, **options: Any) -> Pick:
    pick = found.pick(request(number), now, pool="pool", **options)
    assert isinstance(pick, Pick)
    return pick


def test_signals_reach_the_scorers() -> None:
    found = scheduler(IDLE, IDLE, IDLE)
    assert decided(found, signals=Signals({"p2": 8}, total_blocks=8, block_tokens=64)).pod.id == "p2"


def test_only_pods_among_those_allowed_are_picked() -> None:
    found = scheduler(IDLE, IDLE, IDLE)
    pick = decided(found, among=frozenset({"p1"}))
    assert (pick.pod.id, pick.fallbacks) == ("p1", ())
    empty = found.pick(request(), SOON, pool="pool", among=frozenset())
    assert isinstance(empty, Rejected)
    assert empty.reason is DropReason.NO_ENDPOINTS


def with_profile(profile: SchedulingProfile, *readings: EngineReading | None) -> LocalScheduler:
    found = scheduler(*readings)
    found.profile = profile
    return found


def test_prompt_tokens_in_flight_follow_the_request() -> None:
    found = with_profile(endpoint_profile(scorers=(Weighted(TokenLoad(10_000)),)), IDLE, IDLE)
    first = decided(found, signals=Signals(prompt_tokens=5_000))
    second = decided(found, 1, signals=Signals(prompt_tokens=1_000))
    assert first.pod is not second.pod
    assert (first.pod.in_flight_tokens, second.pod.in_flight_tokens) == (5_000, 1_000)
    before = first.pod
    found.move(first, second.pod)
    assert (before.in_flight_tokens, second.pod.in_flight_tokens) == (0, 6_000)
    assert decided(found, 2).pod is before
    found.complete(first)
    found.complete(second)
    assert second.pod.in_flight_tokens == 0


def test_cold_requests_take_turns_and_warm_ones_do_not_count() -> None:
    found = with_profile(endpoint_profile(scorers=(Weighted(ColdSpread()),)), IDLE, IDLE, IDLE)
    first = [decided(found, number).pod.id for number in range(3)]
    assert set(first) == {"p0", "p1", "p2"}
    for number in range(3, 6):
        decided(found, number, signals=Signals({"p0": 1}, total_blocks=2))
    assert [decided(found, number).pod.id for number in range(6, 9)] == first


def test_round_robin_counts_picks_over_layouts() -> None:
    found = with_profile(endpoint_profile(Picker.ROUND_ROBIN), IDLE, IDLE, IDLE)
    picked_ids = []
    for number in range(6):
        found.table.read("p0", IDLE, at(100 * number))
        picked_ids.append(decided(found, number, at(100 * number + 1)).pod.id)
    assert picked_ids == ["p0", "p1", "p2"] * 2


def test_labels_and_measured_latency_are_offered_to_the_profile() -> None:
    profile = endpoint_profile(scorers=(Weighted(Latency()), Weighted(HeaderLabel("x-tier", "tier"), 0.5)))
    found = with_profile(profile, IDLE, IDLE)
    found.table["p1"].labels = {"tier": "gold"}
    asked = Signals(headers={"x-tier": "gold"})
    assert decided(found, signals=asked).pod.id == "p1"
    bounds = (0.1, 1.0, float("inf"))
    for pod, counts in (("p0", (9.0, 9.0, 9.0)), ("p1", (0.0, 9.0, 9.0))):
        for milliseconds, seen in ((1_000, (0.0, 0.0, 0.0)), (1_200, counts)):
            reading = replace(IDLE, ttft=BucketCounts(bounds, seen))
            found.table.read(pod, reading, at(milliseconds))
    assert decided(found, 1, at(1_300), signals=asked).pod.id == "p0"


def test_a_request_that_outlives_its_pod_leaves_the_pods_successor_alone() -> None:
    found = scheduler(IDLE, IDLE)
    pick = decided(found, signals=Signals({"p0": 8}, total_blocks=8))
    old = pick.pod
    found.table.set_pods("pool", [DiscoveredEndpoint("p0", "h9", (1,))], at(10))
    found.table.read("p0", IDLE, at(11))
    assert found.table["p0"] is not old
    decided(found, 1, at(12))
    found.complete(pick)
    assert (old.in_flight, found.table["p0"].in_flight) == (0, 1)
    assert found._own == {"p0": 1}
