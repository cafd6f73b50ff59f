"""Weights: capacity x ready share x ramp, and what stands in for an unknown capacity."""

import pytest

from services.core.fleet import HealthState, LoadReport
from services.core.locality import Distance
from services.core.scheduling.members import members_of
from tests.core.scheduling.fleets import (
    AP_SOUTH,
    EU_NORTH,
    MODEL,
    OTHER_MODEL,
    cluster,
    snapshot,
)


def weights(*candidates: object) -> list[float]:
    return [member.weight for member in members_of(snapshot(*candidates), MODEL)]  # type: ignore[arg-type] # Clusters.


def test_weight_is_capacity_times_ready_share_times_ramp() -> None:
    (member,) = members_of(snapshot(cluster("a", ready=6, total=8, capacity=400, ramp=0.5)), MODEL)
    assert (member.capacity, member.weight) == (400, 150)


def test_levels_are_distances_from_here() -> None:
    members = members_of(snapshot(cluster("a"), cluster("b", EU_NORTH), cluster("c", AP_SOUTH)), MODEL)
    assert [member.level for member in members] == list(Distance)


def test_an_unknown_capacity_is_estimated_per_endpoint_from_those_known() -> None:
    known = cluster("a", ready=4, total=4, capacity=200)
    unknown = cluster("b", ready=2, total=4, capacity=None)
    assert weights(known, unknown) == [200, 100]


def test_with_no_capacity_known_ready_endpoints_count() -> None:
    assert weights(cluster("a", ready=6, total=8, capacity=None), cluster("b", capacity=None)) == [6, 8]


def test_a_known_zero_is_zero_and_estimates_nothing() -> None:
    assert weights(cluster("a", capacity=0), cluster("b", capacity=None)) == [0, 8]


@pytest.mark.parametrize(
    ("state", "probing_ok", "expected"),
    [
        (HealthState.HEALTHY, True, 0.0),
        (HealthState.STALE, True, 25.0),
        (HealthState.STALE, False, 0.0),
    ],
)
def test_a_probe_outranks_an_old_report_without_ready_endpoints(
    state: HealthState, probing_ok: bool, expected: float
) -> None:
    assert weights(cluster("a", state=state, ready=0, total=4, capacity=100, probing_ok=probing_ok)) == [
        expected
    ]


def test_a_cluster_without_endpoints_weighs_nothing_until_a_probe_answers() -> None:
    assert weights(cluster("a", ready=0, total=0, capacity=None)) == [0]
    assert weights(cluster("a", state=HealthState.STALE, ready=0, total=0, capacity=None)) == [1]


def test_more_ready_than_total_is_all_ready() -> None:
    assert weights(cluster("a", ready=9, total=8, capacity=100)) == [100]


def test_the_load_is_the_models_own() -> None:
    own = LoadReport(ready=1, total=4, capacity_requests=40)
    assert weights(cluster("a", loads={MODEL: own})) == [10]


def test_those_that_never_told_are_asked_only_when_nobody_is_known_to_serve() -> None:
    silent, knowing = cluster("a", models=None), cluster("b", models=(OTHER_MODEL,))
    assert [m.candidate.id for m in members_of(snapshot(silent, knowing), MODEL)] == ["a"]
    assert [m.candidate.id for m in members_of(snapshot(silent, knowing), OTHER_MODEL)] == ["b"]
