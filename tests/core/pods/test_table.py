"""The pod table: every state, every return, the field's staleness cases by id."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.fleet import PodState
from services.core.pods.discovered import (
    DiscoveredEndpoint,
    PodAdded,
    PodChanged,
    PodContested,
    PodRemoved,
    StartPhase,
)
from services.core.pods.reading import BucketCounts, EngineIdentity, EngineReading, TokenTotals
from services.core.pods.table import Pod, PodEffect, PodMoved, PodTable, ScrapeFailure, Serving, SignalMoved
from services.core.units import Instant, seconds

GOOD = EngineReading("vllm", waiting=0, running=1, kv_use=0.1)
KV = "vllm:kv_cache_usage_perc"
NO_KV = EngineReading("vllm", waiting=0, running=1, missing=(KV,))
REFUSED = ScrapeFailure.REFUSED


def at(second: float) -> Instant:
    return Instant(seconds(second))


def table_of(*ids: str, draining: bool = False) -> PodTable:
    return PodTable([Pod(i, f"{i}:8000", "pool", draining=draining) for i in ids], at(0))


def states(effects: tuple[PodEffect, ...]) -> list[PodState]:
    return [effect.after for effect in effects if isinstance(effect, PodMoved)]


def test_a_pod_is_warming_until_it_answers_and_ready_with_its_first_reading() -> None:
    table = table_of("a")
    assert table["a"].state is PodState.WARMING
    assert table.missed("a", ScrapeFailure.TIMEOUT, at(1)) == ()
    effects = table.read("a", GOOD, at(2))
    assert effects == (PodMoved("a", PodState.WARMING, PodState.READY, ""),)
    assert table["a"].since == at(2)


def test_f017_single_misses_move_nothing_and_every_move_is_told_once() -> None:
    table = table_of("a")
    table.read("a", GOOD, at(0))
    now = 0.0
    moves: list[PodState] = []

    def play(sequence: str) -> list[PodState]:
        nonlocal now
        seen: list[PodState] = []
        for letter in sequence:
            now += 0.2
            effects = table.read("a", GOOD, at(now)) if letter == "o" else table.missed("a", REFUSED, at(now))
            seen += states(effects)
        moves.extend(seen)
        return seen

    assert play("ofooffo") == []
    assert play("fff") == [PodState.FAILED]
    assert play("f") == []
    assert play("o") == []
    assert play("o") == [PodState.READY]
    assert moves == [PodState.FAILED, PodState.READY]


def test_f017_a_failed_pod_that_stumbles_while_returning_stays_out() -> None:
    table = table_of("a")
    table.read("a", GOOD, at(0))
    for tenth in range(1, 4):
        table.missed("a", REFUSED, at(tenth / 10))
    table.read("a", GOOD, at(0.5))
    assert table.missed("a", ScrapeFailure.TIMEOUT, at(0.6)) == ()
    assert table.read("a", GOOD, at(0.7)) == ()
    assert states(table.read("a", GOOD, at(0.8))) == [PodState.READY]


def test_a_pod_that_is_still_starting_is_warming_however_often_it_refuses() -> None:
    table = table_of("a")
    for tenth in range(10):
        table.missed("a", REFUSED, at(tenth / 10))
    assert table["a"].state is PodState.WARMING
    assert table.serving("pool") == (Serving.NOBODY, [])


def test_f016_stale_pods_step_aside_while_a_fresh_one_exists_and_serve_when_none_does() -> None:
    table = table_of("a", "b", "c")
    for pod in "abc":
        table.read(pod, GOOD, at(0))
    for tenth in range(1, 20):
        table.read("a", GOOD, at(tenth / 10))
    table.missed("b", ScrapeFailure.TIMEOUT, at(1.5))
    effects = table.tick(at(2))
    assert effects == (
        PodMoved("b", PodState.READY, PodState.STALE, "no current metrics: timeout"),
        PodMoved("c", PodState.READY, PodState.STALE, "no current metrics: late"),
    )
    assert table.serving("pool") == (Serving.FRESH, [table["a"]])
    table.tick(at(4))
    serving, pods = table.serving("pool")
    assert (serving, len(pods)) == (Serving.DEGRADED, 3)
    assert len(table.ready("pool")) == 3


def test_a_stale_pod_returns_with_its_second_good_scrape() -> None:
    table = table_of("a")
    table.read("a", GOOD, at(0))
    table.missed("a", ScrapeFailure.TIMEOUT, at(2.5))
    assert table["a"].state is PodState.STALE
    assert table.missed("a", ScrapeFailure.STATUS, at(2.6)) == ()
    assert table.read("a", GOOD, at(3)) == ()
    assert states(table.read("a", GOOD, at(3.2))) == [PodState.READY]


@pytest.mark.parametrize("failure", [ScrapeFailure.STATUS, ScrapeFailure.TOO_LARGE])
def test_a_server_without_usable_metrics_is_up_and_serves_when_nobody_is_fresh(
    failure: ScrapeFailure,
) -> None:
    table = table_of("a")
    assert states(table.missed("a", failure, at(0.1))) == [PodState.STALE]
    assert table["a"].reason == f"no current metrics: {failure.value}"
    assert table.serving("pool") == (Serving.DEGRADED, [table["a"]])
    assert table.ready("pool") == [table["a"]]


def test_f020_a_warming_pod_gets_nothing_while_others_are_fresh_and_is_not_starved_once_ready() -> None:
    table = table_of("a", "new")
    table.read("a", GOOD, at(0))
    assert table.serving("pool") == (Serving.FRESH, [table["a"]])
    table.read("new", GOOD, at(1))
    assert table.serving("pool")[1] == [table["a"], table["new"]]


def test_warming_pods_are_tried_when_there_is_nobody_else_but_do_not_count_as_ready() -> None:
    table = table_of("a")
    assert table.serving("pool") == (Serving.DEGRADED, [table["a"]])
    assert table.ready("pool") == []


def test_a_connect_failure_excludes_at_once_and_two_good_scrapes_bring_back() -> None:
    table = table_of("a", "b")
    for pod in "ab":
        table.read(pod, GOOD, at(0))
        table.read(pod, GOOD, at(0.1))
    assert states(table.connect_failed("a", at(0.2))) == [PodState.EXCLUDED]
    assert table.connect_failed("a", at(0.2)) == ()
    assert table.serving("pool") == (Serving.FRESH, [table["b"]])
    assert table.ready("pool") == [table["b"]]
    table.connect_failed("b", at(0.2))
    assert table.serving("pool") == (Serving.LAST_RESORT, [table["a"], table["b"]])
    assert table.ready("pool") == []
    assert table.read("a", GOOD, at(0.4)) == ()
    assert states(table.read("a", GOOD, at(0.6))) == [PodState.READY]


def test_a_sleeping_server_is_not_ready_however_idle_and_returns_when_awake() -> None:
    table = table_of("a", "b")
    asleep = EngineReading("vllm", waiting=0, running=0, kv_use=0.0, asleep=True)
    for pod in "ab":
        table.read(pod, GOOD, at(0))
    assert table.read("a", asleep, at(0.2)) == (PodMoved("a", PodState.READY, PodState.FAILED, "asleep"),)
    assert table.serving("pool") == (Serving.FRESH, [table["b"]])
    table.read("b", asleep, at(0.2))
    table.tick(at(9))
    assert table.serving("pool") == (Serving.NOBODY, [])
    assert states(table.read("a", GOOD, at(9.2))) == [PodState.READY]
    assert table.ready("pool") == [table["a"]]


def test_a_missing_metric_degrades_and_is_told_once_each_way() -> None:
    table = table_of("a")
    assert table.read("a", NO_KV, at(0)) == (
        SignalMoved("a", KV, present=False),
        PodMoved("a", PodState.WARMING, PodState.DEGRADED, f"missing {KV}"),
    )
    assert table.read("a", NO_KV, at(0.2)) == ()
    assert table.serving("pool")[0] is Serving.FRESH
    assert table.read("a", GOOD, at(0.4)) == (
        SignalMoved("a", KV, present=True),
        PodMoved("a", PodState.DEGRADED, PodState.READY, ""),
    )


def test_an_engine_too_old_is_degraded_by_the_name_of_the_metric() -> None:
    table = table_of("a")
    table.read("a", GOOD, at(0))
    effects = table.identified("a", EngineIdentity("vllm", "0.8.0", KV), at(0.1))
    assert effects == (PodMoved("a", PodState.READY, PodState.DEGRADED, f"vllm 0.8.0 is too old for {KV}"),)
    assert states(table.identified("a", EngineIdentity("vllm", "0.9.2"), at(0.2))) == [PodState.READY]


def test_a_reason_that_changes_keeps_the_instant_of_entry() -> None:
    table = table_of("a")
    table.read("a", NO_KV, at(0))
    table.identified("a", EngineIdentity("vllm", "0.8.0", KV), at(1))
    assert table["a"].since == at(0)


def test_a_declared_drain_overrides_everything() -> None:
    table = table_of("a", draining=True)
    assert table["a"].state is PodState.DRAINING
    assert table.read("a", GOOD, at(0)) == ()
    assert table.serving("pool") == (Serving.NOBODY, [])


def test_a_reading_ends_the_correction_by_own_requests() -> None:
    table = table_of("a")
    table["a"].since_reading = 5
    table["a"].in_flight = 5
    table.read("a", GOOD, at(0))
    assert (table["a"].since_reading, table["a"].in_flight) == (0, 5)


def test_readings_fill_the_windows_of_time_to_first_token_and_of_rates() -> None:
    pod = (table := table_of("a"))["a"]
    slow = EngineReading("vllm", ttft=BucketCounts((float("inf"),), (3.0,)), totals=TokenTotals(8))
    table.read("a", slow, at(0))
    table.read("a", slow, at(1))
    assert pod.ttft is not None
    assert pod.ttft.recent() == BucketCounts((float("inf"),), (0.0,))
    assert pod.rates is not None
    assert pod.rates.recent().prompt_tokens_per_s == 0.0


def test_pools_are_apart() -> None:
    table = PodTable([Pod("a", "a:1", "one"), Pod("b", "b:1", "two")], at(0))
    assert [pod.id for pod in table] == ["a", "b"]
    assert table.in_pool("two") == [table["b"]]


events = st.tuples(st.sampled_from("rntsbfc"), st.integers(0, 1500))


@given(st.lists(events, max_size=60))
def test_moves_chain_and_fresh_pods_are_fresh(played: list[tuple[str, int]]) -> None:
    """Invariant: each move starts where the last one ended, none is repeated, and after a tick a fresh pod was read within 2 s."""
    table = table_of("a")
    state, reason = table["a"].state, table["a"].reason
    now_ms = 0
    for letter, gap_ms in played:
        now_ms += gap_ms
        now = at(now_ms / 1000)
        if letter == "r":
            effects = table.read("a", GOOD, now)
        elif letter == "n":
            effects = table.read("a", NO_KV, now)
        elif letter == "c":
            effects = table.connect_failed("a", now)
        else:
            failure = {
                "t": ScrapeFailure.TIMEOUT,
                "s": ScrapeFailure.STATUS,
                "b": ScrapeFailure.BROKEN,
                "f": REFUSED,
            }[letter]
            effects = table.missed("a", failure, now)
        for effect in (*effects, *table.tick(now)):
            if isinstance(effect, PodMoved):
                assert effect.before is state
                assert (effect.after, effect.reason) != (state, reason)
                state, reason = effect.after, effect.reason
        pod = table["a"]
        if pod.state in (PodState.READY, PodState.DEGRADED):
            assert pod.read_at is not None
            assert now - pod.read_at < seconds(2)


def test_the_version_tells_when_who_may_be_picked_changes_and_readings_count_apart() -> None:
    table = table_of("a")
    versions = [table.version]
    for event in (REFUSED, REFUSED, ScrapeFailure.TIMEOUT, GOOD, GOOD, REFUSED, GOOD):
        if isinstance(event, EngineReading):
            table.read("a", event, at(0))
        else:
            table.missed("a", event, at(0))
        versions.append(table.version)
    changed = [new > old for old, new in itertools.pairwise(versions)]
    assert changed == [True, False, True, True, False, True, True]
    assert table.readings == 3


def endpoint(name: str, address: str = "10.0.0.1", **declared: Any) -> DiscoveredEndpoint:
    return DiscoveredEndpoint(name, address, declared.pop("ports", (8000,)), **declared)


def set_one(table: PodTable, second: float, **declared: Any) -> tuple[PodEffect, ...]:
    return table.set_pods("pool", [endpoint("a", **declared)], at(second))


def test_pods_come_stay_with_their_state_and_go_with_a_declared_set() -> None:
    table = table_of()
    told: list[tuple[PodEffect, ...]] = [table.set_pods("pool", [endpoint("a"), endpoint("b")], at(0))]
    assert told == [(PodAdded("a", "10.0.0.1:8000"), PodAdded("b", "10.0.0.1:8000"))]
    stays, leaves = table["a"], table["b"]
    for pod in "ab":
        table.read(pod, GOOD, at(1))
    version = table.version
    assert table.set_pods("pool", [endpoint("c", ports=(1, 2)), endpoint("a")], at(2)) == (
        PodAdded("c-rank-0", "10.0.0.1:1"),
        PodAdded("c-rank-1", "10.0.0.1:2"),
        PodRemoved("b"),
    )
    assert table.version > version
    assert [pod.name for pod in table.in_pool("pool")] == ["c", "c", "a"]
    assert table.serving("pool") == (Serving.FRESH, [stays])
    assert (table.holds(stays), table.holds(leaves), "a" in table, "b" in table) == (True, False, True, False)
    assert table.connect_failed("b", at(3)) == ()


def test_declaring_the_same_again_says_nothing_and_another_order_is_another_version() -> None:
    table = table_of()
    pair = [endpoint("a"), endpoint("b"), endpoint("a")]
    table.set_pods("pool", pair, at(0))
    version = table.version
    assert table.set_pods("pool", pair, at(1)) == ()
    assert table.version == version
    assert table.set_pods("pool", pair[1:], at(1)) == ()
    assert table.version > version


def test_what_changed_is_named_and_a_new_address_is_a_new_server() -> None:
    table = table_of()
    set_one(table, 0)
    table.read("a", GOOD, at(1))
    old = table["a"]
    version = table.version
    assert set_one(table, 2, labels={"role": "decode"}, zone="b", draining=True) == (
        PodChanged("a", ("labels", "zone", "draining")),
        PodMoved("a", PodState.READY, PodState.DRAINING, "declared draining"),
    )
    assert table.version > version
    assert table["a"] is old
    assert set_one(table, 3, address="10.0.0.2") == (PodChanged("a", ("address",)),)
    assert not table.holds(old)
    assert (table["a"].address, table["a"].state) == ("10.0.0.2:8000", PodState.WARMING)


def test_f155_a_terminating_pod_leaves_at_once_though_it_is_ready() -> None:
    table = table_of()
    set_one(table, 0, ready=True)
    table.read("a", GOOD, at(1))
    effects = set_one(table, 2, ready=True, terminating=True)
    assert PodMoved("a", PodState.READY, PodState.DRAINING, "terminating") in effects
    assert table.serving("pool") == (Serving.NOBODY, [])


def test_a_pod_that_its_orchestrator_calls_not_ready_is_never_picked() -> None:
    table = table_of()
    set_one(table, 0, ready=False, phase=StartPhase.LOADING)
    table.read("a", GOOD, at(1))
    assert (table["a"].state, table["a"].reason) == (PodState.WARMING, "loading weights")
    assert table.serving("pool") == (Serving.NOBODY, [])
    assert states(set_one(table, 2, ready=True, phase=StartPhase.READY)) == [PodState.READY]
    assert states(set_one(table, 2.5, ready=False, phase=StartPhase.READY)) == [PodState.FAILED]
    assert table["a"].reason == "not ready, says its orchestrator"
    assert table.serving("pool") == (Serving.NOBODY, [])
    table.read("a", GOOD, at(3))
    assert states(set_one(table, 3.1, ready=True, phase=StartPhase.READY)) == [PodState.READY]


def test_a_pod_without_an_address_warms_up_and_keeps_its_row_when_it_gets_one() -> None:
    table = table_of()
    set_one(table, 0, address="", phase=StartPhase.SCHEDULED, phase_age=seconds(1))
    row = table["a"]
    assert (row.state, row.barred, row.starting_since) == (PodState.WARMING, True, at(-1))
    assert table.serving("pool") == (Serving.NOBODY, [])
    assert set_one(table, 2, phase=StartPhase.LOADING) == (PodChanged("a", ("address", "phase")),)
    assert table["a"] is row
    assert (row.address, row.starting_since, row.phase_since) == ("10.0.0.1:8000", at(-1), at(2))
    assert table.starts["pool"].remaining(StartPhase.SCHEDULED, seconds(1)) is None
    set_one(table, 32, phase=StartPhase.READY)
    assert table.starts["pool"].remaining(StartPhase.LOADING, seconds(10)) == seconds(20)


def test_a_pod_serves_the_first_pool_that_declared_it_and_the_second_is_told_once() -> None:
    table = table_of()
    set_one(table, 0)
    both = [endpoint("a"), endpoint("b")]
    assert table.set_pods("other", both, at(0)) == (
        PodAdded("b", "10.0.0.1:8000"),
        PodContested("a", "other", "pool"),
    )
    assert table.set_pods("other", both, at(1)) == ()
    assert table["a"].pool == "pool"
    table.set_pods("pool", [], at(2))
    assert table.set_pods("other", both, at(3)) == (PodAdded("a", "10.0.0.1:8000"),)
