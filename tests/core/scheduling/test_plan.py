"""Plans: levels, loads and trials laid out from a fleet, once per snapshot."""

import pytest

from services.core.fleet import Candidate, HealthState
from services.core.policy import RoutingPolicy
from services.core.residency import ANYWHERE
from services.core.scheduling.filters import Stage
from services.core.scheduling.plan import TRIALS_AT_MOST, Plan
from services.core.scheduling.profile import CLUSTERS, ENDPOINTS, SchedulingProfile
from tests.core.scheduling.fleets import (
    AP_SOUTH,
    EU_NORTH,
    EU_ONLY,
    MODEL,
    US_EAST,
    cluster,
    fleet,
)

ROUTE_ANYWAY = RoutingPolicy()
FAIL = RoutingPolicy(fail_when_none_healthy=True)


def plan(
    *candidates: Candidate,
    routing: RoutingPolicy | None = None,
    profile: SchedulingProfile = CLUSTERS,
    eu_only: bool = False,
    sheddable: bool = False,
) -> Plan:
    prepared = fleet(*candidates, routing=routing, profile=profile)
    return prepared.plan(MODEL, EU_ONLY if eu_only else ANYWHERE, sheddable=sheddable)


def shares(laid_out: Plan) -> dict[str, float]:
    table = laid_out.near[0]
    return {name: round(table.share(name), 3) for name in table.ids}


def ids(laid_out: Plan) -> list[str]:
    return [member.candidate.id for member in laid_out.members]


def test_a_healthy_region_keeps_its_traffic_by_capacity() -> None:
    laid_out = plan(cluster("a", capacity=300), cluster("b", capacity=100), cluster("c", US_EAST))
    assert shares(laid_out) == {"a": 0.75, "b": 0.25}
    assert [table.ids for table in laid_out.near] == [("a", "b"), ("c",)]


def test_a_weakened_level_spills_by_envoys_factor() -> None:
    laid_out = plan(cluster("a"), cluster("b", state=HealthState.UNHEALTHY), cluster("c", EU_NORTH))
    assert shares(laid_out) == {"a": 0.7, "c": 0.3}


def test_a_returning_region_gets_traffic_by_its_ramp() -> None:
    laid_out = plan(cluster("a", ramp=0.1), cluster("c", US_EAST))
    assert shares(laid_out) == {"a": 0.14, "c": 0.86}


def test_capacity_outside_residency_takes_no_load_and_makes_nobody_look_sick() -> None:
    laid_out = plan(cluster("a"), cluster("b", US_EAST), cluster("c", EU_NORTH), eu_only=True)
    assert ids(laid_out) == ["a", "c"]
    assert shares(laid_out) == {"a": 1.0}


def test_too_little_to_round_to_a_percent_still_carries_everything() -> None:
    laid_out = plan(cluster("a", capacity=0.001), cluster("b", state=HealthState.UNHEALTHY, capacity=1000))
    assert shares(laid_out) == {"a": 1.0}


@pytest.mark.parametrize(
    ("candidates", "stage"),
    [
        ((), Stage.SERVES),
        ((cluster("a", US_EAST),), Stage.RESIDENCY),
        ((cluster("a", draining=True), cluster("b", US_EAST)), Stage.DRAIN),
        ((cluster("a", draining=True), cluster("b", state=HealthState.UNKNOWN)), Stage.HEALTH),
        ((cluster("a", policy_mismatch=True), cluster("b", draining=True)), Stage.POLICY_MATCH),
        ((cluster("a", saturation=1.0), cluster("b", state=HealthState.UNHEALTHY)), Stage.SATURATION),
    ],
)
def test_a_refusal_reports_the_furthest_stage(candidates: tuple[Candidate, ...], stage: Stage) -> None:
    laid_out = plan(*candidates, eu_only=True, sheddable=True)
    assert laid_out.refused_at is stage
    assert (laid_out.members, laid_out.near, laid_out.trial_point) == ((), (), 0)


def test_only_sheddable_requests_are_refused_for_saturation() -> None:
    assert plan(cluster("a", saturation=3.0)).refused_at is None


# --- Panic ----------------------------------------------------------------------------------------------


DEAD = (
    cluster("a", state=HealthState.UNHEALTHY),
    cluster("b", EU_NORTH, state=HealthState.STALE, probing_ok=False),
    cluster("c", US_EAST, state=HealthState.HEALTHY, ejected=True),
    cluster("d", US_EAST, state=HealthState.UNKNOWN),
    cluster("e", state=HealthState.UNHEALTHY, draining=True),
    cluster("f", state=HealthState.UNHEALTHY, policy_mismatch=True),
)


def test_when_nobody_is_alive_health_is_ignored_but_drain_and_ignorance_are_not() -> None:
    laid_out = plan(*DEAD)
    assert laid_out.panic
    assert ids(laid_out) == ["a", "b", "c"]
    assert sum(shares(laid_out).values()) == pytest.approx(1.0)
    assert not set(laid_out.near[0].ids) & {"d", "e", "f"}


def test_panic_stays_inside_residency() -> None:
    assert ids(plan(*DEAD, eu_only=True)) == ["a", "b"]


def test_panic_can_be_forbidden() -> None:
    laid_out = plan(*DEAD, routing=FAIL)
    assert (laid_out.panic, laid_out.refused_at) == (False, Stage.HEALTH)


def test_one_living_cluster_proves_that_the_dead_are_dead() -> None:
    """A tenant confined to a dead region is refused, not sent to corpses, while others live."""
    laid_out = plan(*DEAD, cluster("g", AP_SOUTH), eu_only=True)
    assert (laid_out.panic, laid_out.refused_at) == (False, Stage.HEALTH)


def test_panic_counts_unknown_capacity_as_something() -> None:
    laid_out = plan(cluster("a", state=HealthState.UNHEALTHY, ready=0, total=0, capacity=None))
    assert shares(laid_out) == {"a": 1.0}


def test_a_level_in_panic_ignores_the_health_of_its_members_when_the_operator_wants_that() -> None:
    candidates = (
        cluster("a", capacity=20),
        cluster("b", state=HealthState.UNHEALTHY, capacity=80),
        cluster("c", EU_NORTH, capacity=20),
        cluster("d", EU_NORTH, state=HealthState.UNHEALTHY, capacity=80),
    )
    assert shares(plan(*candidates)) == {"a": 0.5, "c": 0.5}
    laid_out = plan(*candidates, routing=RoutingPolicy(panic_threshold=0.5))
    assert shares(laid_out) == {"a": 0.1, "b": 0.4, "c": 0.1, "d": 0.4}


def test_endpoints_with_old_metrics_serve_only_when_no_fresh_one_does() -> None:
    stale = cluster("p1", state=HealthState.STALE, probing_ok=False)
    failed = cluster("p2", state=HealthState.UNHEALTHY)
    other = cluster("p3", models=("other",))
    assert ids(plan(stale, cluster("p0"), profile=ENDPOINTS)) == ["p0"]
    laid_out = plan(stale, failed, other, profile=ENDPOINTS)
    assert (ids(laid_out), laid_out.panic, laid_out.near) == (["p1"], True, ())


# --- Fallback regions and trials --------------------------------------------------------------------------


def test_far_tables_leave_out_one_region_and_keep_the_order_of_levels() -> None:
    laid_out = plan(cluster("a"), cluster("b", US_EAST), cluster("c", EU_NORTH), cluster("d", AP_SOUTH))
    assert [table.ids for table in laid_out.far("eu-west")] == [("c",), ("b", "d")]
    assert [table.ids for table in laid_out.far("us-east")] == [("a",), ("c",), ("d",)]
    assert laid_out.far("eu-west") is laid_out.far("eu-west")


def trial_share(laid_out: Plan) -> float:
    return laid_out.trial_point / (1 << 64)


def test_a_cluster_on_probation_is_offered_the_ramps_floor_of_its_fair_share() -> None:
    laid_out = plan(cluster("a"), cluster("p", state=HealthState.PROBATION))
    assert trial_share(laid_out) == pytest.approx(0.05)
    assert laid_out.trials.ids == ("p",)
    assert "p" not in laid_out.near[0].ids


def test_a_small_cluster_on_probation_is_offered_one_percent() -> None:
    laid_out = plan(cluster("a", capacity=1000), cluster("p", state=HealthState.PROBATION, capacity=1))
    assert trial_share(laid_out) == pytest.approx(0.01)


def test_trials_never_take_more_than_half() -> None:
    many = [cluster(f"p{number}", state=HealthState.PROBATION, capacity=1) for number in range(70)]
    assert trial_share(plan(cluster("a", capacity=1000), *many)) == TRIALS_AT_MOST


def test_no_trials_beyond_where_load_goes() -> None:
    far = cluster("p", US_EAST, state=HealthState.PROBATION)
    assert plan(cluster("a"), far).trial_point == 0
    assert plan(cluster("a", ramp=0.1), cluster("b", AP_SOUTH), far).trials.ids == ("p",)


def test_clusters_on_probation_alone_are_all_there_is() -> None:
    laid_out = plan(cluster("p", state=HealthState.PROBATION), cluster("x", state=HealthState.UNHEALTHY))
    assert (ids(laid_out), laid_out.near, laid_out.panic) == (["p"], (), False)
    assert laid_out.trial_point > 0


def test_an_endpoint_is_never_on_trial() -> None:
    laid_out = plan(cluster("p", state=HealthState.PROBATION), profile=ENDPOINTS)
    assert (ids(laid_out), laid_out.trial_point) == (["p"], 0)


def test_the_board_of_tier_1_is_made_once_of_the_members() -> None:
    prepared = fleet(cluster("a"), cluster("b"), profile=ENDPOINTS)
    plan = prepared.plan(MODEL, ANYWHERE, sheddable=False)
    assert plan.board is plan.board
    assert plan.board.endpoints.ids == ("a", "b")
