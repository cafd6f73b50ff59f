"""The decision as a whole: each refusal, replay, explanation, and what must hold of any fleet."""

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.fleet import Candidate, FleetSnapshot, HealthState, LoadReport
from services.core.inference import RequestId
from services.core.locality import Jurisdiction, Region
from services.core.outcomes import Decision, DropReason, Rejected, Routed
from services.core.policy import RoutingPolicy
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.scheduling.decide import decide, explain, no_trials
from services.core.scheduling.endpoint_filters import LabelSelector, Operator, Requirement
from services.core.scheduling.prepare import prepare
from services.core.scheduling.profile import ENDPOINTS, Picker, Weighted, endpoint_profile
from services.core.scheduling.refusals import STALE_POLICY_MESSAGE
from services.core.scheduling.scorers.affinity import ColdSpread
from services.core.scheduling.scorers.load import TokenLoad
from services.core.units import Instant, seconds
from tests.core.scheduling.fleets import (
    EU_NORTH,
    EU_ONLY,
    EU_WEST,
    MODEL,
    NOW,
    PLACES,
    US_EAST,
    cluster,
    fleet,
    policy,
    request,
    snapshot,
)
from tests.core.scheduling.pods import pod

NOWHERE = ResidencyRule(allow_jurisdictions=frozenset())
SICK = HealthState.UNHEALTHY


def refusal(decision: Decision) -> DropReason:
    assert isinstance(decision, Rejected)
    return decision.reason


def test_a_routed_decision_names_what_it_was_made_from() -> None:
    decision = decide(fleet(cluster("a"), cluster("b", US_EAST)), request(), NOW)
    assert isinstance(decision, Routed)
    assert (decision.target, decision.fallbacks) == ("a", ("b",))
    explanation = decision.explanation
    assert explanation.request_id == request().request_id
    assert (explanation.snapshot_version, explanation.policy_revision) == (42, 7)
    assert explanation.draw is not None
    assert 0 <= explanation.draw < 1
    assert (explanation.verdicts, explanation.panic, explanation.trial, explanation.excluded) == (
        (),
        False,
        False,
        (),
    )


def test_an_ungranted_model_looks_exactly_like_an_unknown_one() -> None:
    prepared = fleet(cluster("a"))
    unknown = decide(prepared, request(model="nobody"), NOW)
    ungranted = decide(prepared, request(grants=["mistral"]), NOW)
    assert isinstance(unknown, Rejected)
    assert isinstance(ungranted, Rejected)
    assert unknown.reason is ungranted.reason is DropReason.MODEL_NOT_FOUND
    assert unknown.message.replace("nobody", "llama") == ungranted.message
    assert unknown.retry_after is ungranted.retry_after is None


@pytest.mark.parametrize(
    ("candidates", "rule", "priority", "reason", "retry"),
    [
        ((), ANYWHERE, 0, DropReason.NO_HEALTHY_CLUSTER, True),
        ((cluster("a", models=("mistral",)),), ANYWHERE, 0, DropReason.NO_HEALTHY_CLUSTER, True),
        ((cluster("a"), cluster("b", state=SICK)), NOWHERE, 0, DropReason.JURISDICTION_DENIED, False),
        ((), NOWHERE, 0, DropReason.JURISDICTION_DENIED, False),
        ((cluster("a", US_EAST),), EU_ONLY, 0, DropReason.RESIDENCY_UNSATISFIABLE, False),
        (
            (cluster("a", state=SICK), cluster("b", US_EAST)),
            EU_ONLY,
            0,
            DropReason.NO_HEALTHY_CLUSTER,
            True,
        ),
        ((cluster("a", draining=True),), ANYWHERE, 0, DropReason.DRAINED, True),
        ((cluster("a", policy_mismatch=True),), ANYWHERE, 0, DropReason.REPORT_POLICY_MISMATCH, False),
        ((cluster("a", saturation=1.5),), ANYWHERE, -1, DropReason.SATURATED, True),
    ],
)
def test_every_refusal_says_precisely_why(
    candidates: tuple[Candidate, ...], rule: ResidencyRule, priority: int, reason: DropReason, retry: bool
) -> None:
    decision = decide(fleet(*candidates), request(residency=rule, priority=priority), NOW)
    assert isinstance(decision, Rejected)
    assert decision.reason is reason
    assert (decision.retry_after is not None) is retry
    assert decision.message
    assert "{" not in decision.message


def test_without_a_policy_an_unserved_model_is_not_called_unknown() -> None:
    assert refusal(decide(prepare(snapshot(), None), request(), NOW)) is DropReason.NO_HEALTHY_CLUSTER


@pytest.mark.parametrize(
    ("excluded", "tried", "reason"),
    [
        ({"a": DropReason.DRAINED, "b": DropReason.DRAINED}, (), DropReason.DRAINED),
        (
            {"a": DropReason.DRAINED, "b": DropReason.NO_HEALTHY_CLUSTER},
            (),
            DropReason.NO_HEALTHY_CLUSTER,
        ),
        ({"a": DropReason.SATURATED, "b": DropReason.NO_HEALTHY_CLUSTER}, (), DropReason.SATURATED),
        (
            {"a": DropReason.REPORT_POLICY_MISMATCH, "b": DropReason.REPORT_POLICY_MISMATCH},
            (),
            DropReason.REPORT_POLICY_MISMATCH,
        ),
        ({"a": DropReason.DRAINED}, ("b",), DropReason.ATTEMPTS_EXHAUSTED),
    ],
)
def test_when_everyone_left_since_the_snapshot_the_most_hopeful_reason_is_given(
    excluded: dict[str, DropReason], tried: tuple[str, ...], reason: DropReason
) -> None:
    decision = decide(fleet(cluster("a"), cluster("b")), request(), NOW, excluded=excluded, tried=tried)
    assert refusal(decision) is reason


def test_when_only_trials_are_left_and_none_is_free_nobody_is_healthy() -> None:
    prepared = fleet(cluster("p", state=HealthState.PROBATION))
    assert refusal(decide(prepared, request(), NOW)) is DropReason.NO_HEALTHY_CLUSTER
    routed = decide(prepared, request(), NOW, may_try=lambda name: not no_trials(name))
    assert isinstance(routed, Routed)
    assert routed.explanation.trial


@pytest.mark.parametrize(("age_s", "routed"), [(900, True), (901, False)])
def test_a_residency_rule_fails_closed_under_an_old_policy(age_s: float, routed: bool) -> None:
    prepared = fleet(cluster("a"))
    confirmed = Instant(NOW - seconds(age_s))
    confined = decide(prepared, request(residency=EU_ONLY), NOW, policy_confirmed_at=confirmed)
    assert isinstance(confined, Routed) is routed
    if isinstance(confined, Rejected):
        assert (confined.reason, confined.message) == (
            DropReason.RESIDENCY_UNSATISFIABLE,
            STALE_POLICY_MESSAGE,
        )
    assert isinstance(decide(prepared, request(), NOW, policy_confirmed_at=confirmed), Routed)


def test_panic_is_said_in_the_explanation() -> None:
    decision = decide(fleet(cluster("a", state=SICK)), request(), NOW)
    assert isinstance(decision, Routed)
    assert decision.explanation.panic


def test_tier_1_runs_the_same_decision_over_endpoints() -> None:
    endpoints = [
        replace(cluster("busy"), load=LoadReport(waiting=9, kv_use=0.8)),
        replace(cluster("idle"), load=LoadReport(waiting=0, kv_use=0.1)),
    ]
    prepared = fleet(*endpoints, profile=ENDPOINTS)
    decision = decide(prepared, request(), NOW)
    assert isinstance(decision, Routed)
    assert (decision.target, decision.fallbacks, decision.explanation.draw) == ("idle", ("busy",), None)
    told = explain(prepared, request(), NOW, in_flight={"idle": 1})
    scores = [dict(verdict.scores) for verdict in told.explanation.verdicts]
    assert scores[0] == pytest.approx({"queue": 0.0, "kv_use": 0.2})
    assert scores[1] == pytest.approx({"queue": 1.0, "kv_use": 0.9})
    assert decide(prepared, request(), NOW, in_flight={"idle": 50}).explanation == decision.explanation


def test_an_explanation_has_a_verdict_on_everyone() -> None:
    prepared = fleet(
        cluster("kept"),
        cluster("kept_far", US_EAST),
        cluster("other", models=("mistral",)),
        cluster("drained", draining=True),
        cluster("sick", EU_NORTH, state=SICK),
        cluster("gone"),
        cluster("tried"),
    )
    options = {"excluded": {"gone": DropReason.DRAINED}, "tried": ("tried",)}
    plain = decide(prepared, request(), NOW, **options)  # type: ignore[arg-type] # Named options of both calls.
    told = explain(prepared, request(), NOW, **options)  # type: ignore[arg-type] # Named options of both calls.
    assert isinstance(plain, Routed)
    assert isinstance(told, Routed)
    assert (told.target, told.fallbacks) == (plain.target, plain.fallbacks)
    verdicts = {verdict.candidate: verdict for verdict in told.explanation.verdicts}
    assert [(name, verdict.reason) for name, verdict in verdicts.items()] == [
        ("kept", None),
        ("kept_far", None),
        ("other", DropReason.MODEL_NOT_FOUND),
        ("drained", DropReason.DRAINED),
        ("sick", DropReason.NO_HEALTHY_CLUSTER),
        ("gone", DropReason.DRAINED),
        ("tried", DropReason.ATTEMPTS_EXHAUSTED),
    ]
    assert verdicts["kept"].weight == pytest.approx(1 / 3)
    assert (verdicts["kept_far"].weight, verdicts["kept_far"].level) == (0.0, 2)
    assert replace(told.explanation, verdicts=()) == plain.explanation


def test_a_refusal_is_explained_too() -> None:
    prepared = fleet(cluster("a", state=SICK), routing=RoutingPolicy(fail_when_none_healthy=True))
    told = explain(prepared, request(), NOW)
    assert refusal(told) is DropReason.NO_HEALTHY_CLUSTER
    assert [verdict.reason for verdict in told.explanation.verdicts] == [DropReason.NO_HEALTHY_CLUSTER]
    hidden = explain(prepared, request(model="nobody"), NOW)
    assert [verdict.reason for verdict in hidden.explanation.verdicts] == [DropReason.MODEL_NOT_FOUND]


REPLAY = """
from services.core.scheduling.decide import decide
from tests.core.scheduling.fleets import *
prepared = fleet(*[cluster(f"c{n}", PLACES[n % 4], capacity=10 + n) for n in range(24)])
print([(d.target, d.fallbacks) for d in (decide(prepared, request(n), NOW) for n in range(50))])
"""


def test_another_process_decides_the_same() -> None:
    """Hash randomisation, which differs between processes, has no influence on decisions."""
    answers = {
        subprocess.run(
            [sys.executable, "-c", REPLAY],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1
    assert "c20" in answers.pop()


# --- Properties -----------------------------------------------------------------------------------------


@st.composite
def candidates_of(draw: st.DrawFn) -> tuple[Candidate, ...]:
    count = draw(st.integers(0, 8))
    return tuple(
        Candidate(
            f"c{number}",
            draw(st.sampled_from(PLACES)),
            draw(st.sampled_from([None, frozenset({MODEL}), frozenset()])),
            LoadReport(
                ready=(ready := draw(st.integers(0, 4))),
                total=draw(st.integers(ready, 8)),
                capacity_requests=draw(st.one_of(st.none(), st.floats(0, 1e5))),
                saturation=draw(st.one_of(st.none(), st.floats(0, 3))),
                waiting=draw(st.one_of(st.none(), st.floats(0, 50))),
            ),
            state=draw(st.sampled_from(HealthState)),
            draining=draw(st.booleans()),
            ejected=draw(st.booleans()),
            probing_ok=draw(st.booleans()),
            ramp=draw(st.sampled_from([0.1, 0.5, 1.0])),
            policy_mismatch=draw(st.booleans()),
        )
        for number in range(count)
    )


rules = st.builds(
    ResidencyRule,
    st.one_of(st.none(), st.frozensets(st.sampled_from([Jurisdiction(j) for j in ("eu", "us", "in")]))),
    st.one_of(st.none(), st.frozensets(st.sampled_from([Region(place.region) for place in PLACES]))),
    st.frozensets(st.sampled_from([Jurisdiction("us"), Jurisdiction("eu")])),
    st.frozensets(st.sampled_from([Region("eu-west")])),
)
routings = st.builds(
    RoutingPolicy, panic_threshold=st.sampled_from([0.0, 0.5, 1.0]), fail_when_none_healthy=st.booleans()
)
names = st.sets(st.sampled_from([f"c{number}" for number in range(8)]))


@given(
    candidates_of(), rules, routings, st.uuids(), names, names, names, st.sampled_from([-1, 0]), st.booleans()
)
def test_what_holds_of_any_fleet(
    candidates: tuple[Candidate, ...],
    rule: ResidencyRule,
    routing: RoutingPolicy,
    uuid: object,
    excluded: set[str],
    tried: set[str],
    free: set[str],
    priority: int,
    endpoints: bool,
) -> None:
    """Invariant 4: target and fallbacks lie inside residency in any state, panic included; same in, same out."""
    shot = FleetSnapshot(1, 7, EU_WEST, candidates)
    profile = {"profile": ENDPOINTS} if endpoints else {}
    asked = replace(request(residency=rule, priority=priority), request_id=RequestId(str(uuid)))
    gone = dict.fromkeys(sorted(excluded), DropReason.NO_HEALTHY_CLUSTER)

    def answer() -> Decision:
        prepared = prepare(shot, policy(routing), **profile)
        return decide(prepared, asked, NOW, excluded=gone, tried=tried, may_try=free.__contains__)

    decision = answer()
    assert decision == answer()
    if isinstance(decision, Rejected):
        return
    by_id = {candidate.id: candidate for candidate in candidates}
    chosen = [decision.target, *decision.fallbacks]
    assert len(set(chosen)) == len(chosen)
    for name in chosen:
        candidate = by_id[name]
        assert rule.allows(candidate.locality)
        assert candidate.models is None or MODEL in candidate.models
        assert not candidate.draining
        assert not candidate.policy_mismatch
        assert candidate.state is not HealthState.UNKNOWN
        assert name not in excluded | tried
    if decision.explanation.trial:
        assert decision.target in free
    if not endpoints:
        on_trial = {name for name in decision.fallbacks if by_id[name].state is HealthState.PROBATION}
        assert not on_trial or decision.explanation.panic or routing.panic_threshold


# --- Tier 1 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("among", [(), ["p9"]], ids=["empty", "no match"])
def test_subsetting_no_pods_match(among: list[str]) -> None:
    prepared = fleet(pod("p0"), pod("p1"), profile=ENDPOINTS)
    for choose in (decide, explain):
        decision = choose(prepared, request(), NOW, among=among)
        assert isinstance(decision, Rejected)
        assert decision.reason is DropReason.NO_ENDPOINTS
        assert decision.message == "No ready endpoint can serve 'llama' right now."
        assert decision.retry_after is not None
    verdicts = explain(prepared, request(), NOW, among=among).explanation.verdicts
    assert {verdict.reason for verdict in verdicts} == {DropReason.NO_ENDPOINTS}


def test_no_backend_pods_available() -> None:
    assert refusal(decide(fleet(profile=ENDPOINTS), request(), NOW)) is DropReason.NO_ENDPOINTS


def test_a_subset_binds_fallbacks_and_scores_are_compared_within_it() -> None:
    pods = [pod(f"p{n}", LoadReport(waiting=n, running=0, kv_use=0.1)) for n in range(6)]
    prepared = fleet(*pods, profile=ENDPOINTS)
    decision = decide(prepared, request(), NOW, among={"p3", "p5", "gone"}, tried=("p0",))
    assert isinstance(decision, Routed)
    assert (decision.target, decision.fallbacks) == ("p3", ("p5",))
    told = explain(prepared, request(), NOW, among={"p3", "p5"})
    scores = {verdict.candidate: dict(verdict.scores) for verdict in told.explanation.verdicts}
    assert (scores["p3"]["queue"], scores["p5"]["queue"], scores["p0"]) == (1.0, 0.0, {})


def test_when_all_of_a_subset_were_tried_the_attempts_are_exhausted() -> None:
    prepared = fleet(pod("p0"), pod("p1"), profile=ENDPOINTS)
    decision = decide(prepared, request(), NOW, tried=("p0", "p1"))
    assert refusal(decision) is DropReason.ATTEMPTS_EXHAUSTED


def test_a_filter_that_leaves_nobody_is_a_refusal_in_the_tiers_words() -> None:
    gold = LabelSelector((Requirement("tier", Operator.IN, frozenset({"gold"})),))
    prepared = fleet(pod("p0"), pod("p1"), profile=endpoint_profile(filters=(gold,)))
    assert refusal(decide(prepared, request(), NOW)) is DropReason.NO_ENDPOINTS
    noted = explain(prepared, request(), NOW).explanation.verdicts
    assert [verdict.note for verdict in noted] == ["healthy, left out by filter labels"] * 2


def test_own_sends_reach_the_scorers() -> None:
    profile = endpoint_profile(scorers=(Weighted(TokenLoad(100)), Weighted(ColdSpread())))
    prepared = fleet(pod("a"), pod("b"), profile=profile)
    decision = decide(prepared, request(), NOW, in_flight_tokens={"a": 50})
    assert isinstance(decision, Routed)
    assert decision.target == "b"
    decision = decide(prepared, request(), NOW, in_flight_tokens={"a": 50}, cold={"b": 7})
    assert isinstance(decision, Routed)
    assert decision.target == "a"


def test_turns_reach_round_robin() -> None:
    prepared = fleet(pod("a"), pod("b"), pod("c"), profile=endpoint_profile(Picker.ROUND_ROBIN))
    decisions = [decide(prepared, request(number), NOW, turn=number) for number in range(6)]
    assert [d.target for d in decisions if isinstance(d, Routed)] == [*"abcabc"]
