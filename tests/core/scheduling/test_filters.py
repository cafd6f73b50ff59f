"""Filters: one case per rule, and the order in which they speak."""

import pytest

from services.core.fleet import Candidate, HealthState
from services.core.locality import Distance, Locality
from services.core.outcomes import DropReason
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.scheduling.filters import REASONS, Member, Stage, alive, refused_at, serves
from tests.core.scheduling.fleets import EU_ONLY, MODEL, OTHER_MODEL, US_EAST, cluster


def member(candidate: Candidate, weight: float = 1.0) -> Member:
    return Member(candidate, candidate.load, Distance.SAME_REGION, weight, weight)


def test_every_stage_has_a_reason_of_its_own() -> None:
    assert set(REASONS) == set(Stage)
    assert len(set(REASONS.values())) == len(Stage)
    assert REASONS[Stage.RESIDENCY] is DropReason.RESIDENCY_UNSATISFIABLE


def test_serving_must_be_known() -> None:
    assert serves(cluster("a"), MODEL)
    assert not serves(cluster("a"), OTHER_MODEL)
    assert not serves(cluster("a", models=None), MODEL)


@pytest.mark.parametrize(
    ("candidate", "lives"),
    [
        (cluster("a", state=HealthState.HEALTHY), True),
        (cluster("a", state=HealthState.DEGRADED), True),
        (cluster("a", state=HealthState.PROBATION), True),
        (cluster("a", state=HealthState.STALE, probing_ok=True), True),
        (cluster("a", state=HealthState.STALE, probing_ok=False), False),
        (cluster("a", state=HealthState.UNKNOWN), False),
        (cluster("a", state=HealthState.UNHEALTHY), False),
        (cluster("a", state=HealthState.HEALTHY, ejected=True), False),
    ],
)
def test_who_is_alive(candidate: Candidate, lives: bool) -> None:
    assert alive(candidate) is lives


@pytest.mark.parametrize(
    ("candidate", "rule", "limit", "stage"),
    [
        (cluster("a"), ANYWHERE, None, None),
        (cluster("a"), EU_ONLY, None, None),
        (cluster("a", US_EAST), EU_ONLY, None, Stage.RESIDENCY),
        (cluster("a", Locality("", "eu")), EU_ONLY, None, Stage.RESIDENCY),  # type: ignore[arg-type] # A nameless place.
        (cluster("a", draining=True), ANYWHERE, None, Stage.DRAIN),
        (cluster("a", state=HealthState.UNHEALTHY), ANYWHERE, None, Stage.HEALTH),
        (cluster("a", policy_mismatch=True), ANYWHERE, None, Stage.POLICY_MATCH),
        (cluster("a", saturation=1.0), ANYWHERE, 1.0, Stage.SATURATION),
        (cluster("a", saturation=1.0), ANYWHERE, None, None),
        (cluster("a", saturation=0.99), ANYWHERE, 1.0, None),
        (cluster("a", saturation=None), ANYWHERE, 1.0, None),
        # The order: residency before drain before health before mismatch before saturation.
        (cluster("a", US_EAST, draining=True), EU_ONLY, None, Stage.RESIDENCY),
        (cluster("a", state=HealthState.UNHEALTHY, draining=True), ANYWHERE, None, Stage.DRAIN),
        (cluster("a", state=HealthState.UNKNOWN, policy_mismatch=True), ANYWHERE, None, Stage.HEALTH),
        (cluster("a", policy_mismatch=True, saturation=2), ANYWHERE, 1.0, Stage.POLICY_MATCH),
    ],
)
def test_the_first_filter_that_removes_speaks(
    candidate: Candidate, rule: ResidencyRule, limit: float | None, stage: Stage | None
) -> None:
    assert refused_at(member(candidate), rule, limit) is stage


def test_without_ready_capacity_nobody_is_healthy() -> None:
    assert refused_at(member(cluster("a"), weight=0.0), ANYWHERE, None) is Stage.HEALTH
