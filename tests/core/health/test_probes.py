from dataclasses import replace

import pytest

from services.core.fleet import HealthState
from services.core.health.probes import (
    TIMEOUT_MAX,
    ProbeOrder,
    due_at,
    next_probe_at,
    probes_due,
    suspect,
    timeout_of,
)
from services.core.health.record import ClusterRecord, ProbeMemory
from services.core.units import ms, seconds
from tests.core.health.samples import POLICY, START, A, B, Fleet, at, record, spec

FAILED_ONCE = ProbeMemory(failed=1)


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (record(), False),
        (record(silent=True), True),
        (replace(record(), probes=FAILED_ONCE), True),
        (record(HealthState.UNHEALTHY, silent=True), False),
        (record(HealthState.UNHEALTHY), True),
    ],
)
def test_who_is_suspect_is_probed_quickly(candidate: ClusterRecord, expected: bool) -> None:
    assert suspect(candidate) is expected
    cadence = POLICY.probe_interval_suspect if expected else POLICY.probe_interval
    assert due_at(candidate, POLICY, START) == START + cadence


def test_the_timeout_follows_the_slowest_round_trip_within_bounds() -> None:
    def with_rtts(*rtts_ms: int) -> ClusterRecord:
        return replace(record(), probes=ProbeMemory(rtts=tuple(ms(rtt) for rtt in rtts_ms)))

    assert timeout_of(with_rtts(), POLICY) == ms(500)
    assert timeout_of(with_rtts(20, 250), POLICY) == ms(500)
    assert timeout_of(with_rtts(20, 400), POLICY) == ms(800)
    assert timeout_of(with_rtts(1900), POLICY) == TIMEOUT_MAX


def test_each_cluster_is_due_at_once_and_never_twice() -> None:
    state = Fleet(spec("a"), spec("b"), spec("c", probed=False)).state
    orders = probes_due(state.clusters, POLICY, {}, set(), START)
    assert orders == (
        ProbeOrder(A, "http://a:1/readyz", ms(500)),
        ProbeOrder(B, "http://b:1/readyz", ms(500)),
    )
    assert probes_due(state.clusters, POLICY, {}, {A, B}, START) == ()
    assert next_probe_at(state.clusters, POLICY, {}, set(), START) == START
    assert next_probe_at(state.clusters, POLICY, {}, {A, B}, START) is None


def test_the_next_probe_is_due_when_it_says() -> None:
    fleet = Fleet(spec("a"), spec("b"))
    fleet.hear("a", "b")
    clusters = fleet.state.clusters
    started = {A: at(0), B: at(-1)}
    due = next_probe_at(clusters, POLICY, started, set(), START)
    assert due == at(4)
    assert probes_due(clusters, POLICY, started, set(), at(3.999)) == ()
    assert [order.cluster for order in probes_due(clusters, POLICY, started, set(), due)] == [B]


def test_a_silent_cluster_is_due_the_moment_it_falls_silent() -> None:
    fleet = Fleet(spec("a"), spec("b"))
    fleet.hear("a", "b")
    fleet.to(at(1.25))
    assert [
        o.cluster for o in probes_due(fleet.state.clusters, POLICY, {A: at(0), B: at(0.9)}, set(), at(1.25))
    ] == [A]
    assert next_probe_at(fleet.state.clusters, POLICY, {A: at(1.25), B: at(0.9)}, set(), at(1.25)) == at(
        0.9
    ) + seconds(0.5)
