from dataclasses import replace

import pytest

from services.core.fleet import HealthState
from services.core.health.draft import EMPTY, PAUSE_CHECK, Draft, FleetState
from services.core.health.effects import (
    BusTrusted,
    ClusterLost,
    Reason,
    RouterIsolated,
    RouterRejoined,
    StateChanged,
)
from services.core.health.outliers import Outlier
from services.core.health.record import NO_TRIALS, ClusterRecord, ProbeMemory, Trials, unknown
from services.core.health.states import Evidence, IllegalMoveError
from services.core.units import after, seconds
from tests.core.health.samples import POLICY, START, A, B, at, record, spec


def draft_of(*records: ClusterRecord, state: FleetState = EMPTY) -> Draft:
    draft = Draft(state, START)
    for each in records:
        draft.put(each)
    return draft


def test_freezing_without_a_change_gives_the_same_state() -> None:
    state, effects = Draft(EMPTY, START).freeze(ticked=False)
    assert (state, effects) == (EMPTY, ())
    assert Draft(EMPTY, START).freeze(ticked=True)[0].wake_at is None


def test_a_draft_leaves_its_state_alone() -> None:
    state, _ = draft_of(record()).freeze(ticked=False)
    Draft(state, START).remove(A)
    assert set(state.clusters) == {A}


def test_the_deadline_only_moves_nearer_until_a_tick() -> None:
    heard = record()
    state, _ = draft_of(heard).freeze(ticked=False)
    assert state.wake_at == at(1.25)
    draft = Draft(state, START)
    draft.put(replace(heard, quiet_since=at(1)))
    assert draft.freeze(ticked=False)[0].wake_at == at(1.25)
    assert draft.freeze(ticked=True)[0].wake_at == after(START, PAUSE_CHECK)


@pytest.mark.parametrize(
    ("candidate", "deadline"),
    [
        (record(), at(1.25)),
        (record(HealthState.STALE, silent=True), at(3)),
        (record(HealthState.PROBATION, silent=True), at(3)),
        (record(HealthState.UNHEALTHY, silent=True), None),
        (replace(record(), outlier=Outlier(ejected_until=at(1))), at(1)),
        (replace(record(), outlier=Outlier(ejected_until=at(2))), at(1.25)),
        (replace(record(HealthState.STALE, silent=True), probes=ProbeMemory(last_good_at=at(4))), at(7)),
    ],
)
def test_time_alone_changes_a_cluster_at_its_deadline(candidate: ClusterRecord, deadline: object) -> None:
    assert draft_of(record(), replace(record(), spec=spec("b"))).deadline(candidate) == deadline


def test_silence_of_a_lone_cluster_has_no_deadline() -> None:
    stale = record(HealthState.STALE, silent=True)
    assert draft_of(stale).deadline(stale) is None


def test_a_move_within_the_state_has_no_effect() -> None:
    draft = draft_of()
    heard = record()
    assert draft.move(heard, Evidence.REPORT_SOUND, Reason.REPORT) is heard
    assert draft.effects == []


def test_an_illegal_move_is_refused() -> None:
    with pytest.raises(IllegalMoveError):
        draft_of().move(record(), Evidence.RETURN_EARNED, Reason.RETURNED)


def test_unhealthy_loses_the_cluster_and_ends_its_ejection_and_ramp() -> None:
    draft = draft_of()
    stale = replace(
        record(HealthState.STALE),
        outlier=Outlier(ejected_until=at(9), ejections=2),
        ramp_from=START,
        probes=ProbeMemory(failed=2, failed_here=2),
        reports_here=7,
    )
    lost = draft.move(stale, Evidence.PROBES_FAILED, Reason.UNREACHABLE)
    assert draft.effects == [
        StateChanged(A, HealthState.STALE, HealthState.UNHEALTHY, Reason.UNREACHABLE),
        ClusterLost(A, Reason.UNREACHABLE),
    ]
    assert lost.outlier == Outlier(ejections=2, restored_at=START)
    assert lost.ramp_from is None
    assert lost.probes == ProbeMemory(failed=2)
    assert lost.reports_here == 0


def test_probation_begins_with_no_trials_and_is_remembered() -> None:
    sick = replace(record(HealthState.UNHEALTHY), trials=Trials(in_flight=3), returns=(at(-5),))
    tried = draft_of().move(sick, Evidence.RETURN_EARNED, Reason.RETURNED)
    assert tried.trials == replace(NO_TRIALS, last_at=START)
    assert tried.returns == (at(-5), START)


def test_the_ramp_begins_after_probation_or_a_tombstone_only() -> None:
    draft = draft_of()
    passed = draft.move(record(HealthState.PROBATION), Evidence.TRIALS_PASSED, Reason.TRIALS_PASSED)
    assert passed.ramp_from == START
    new = unknown(spec("a"), at(-9))
    assert draft.move(new, Evidence.REPORT_SOUND, Reason.REPORT).ramp_from is None
    buried = replace(new, ramp_from=at(-9))
    assert draft.move(buried, Evidence.REPORT_SOUND, Reason.REPORT).ramp_from == START
    ramping = replace(record(HealthState.STALE), ramp_from=at(-9))
    assert draft.move(ramping, Evidence.REPORT_SOUND, Reason.REPORT).ramp_from == at(-9)


def test_a_suspect_that_is_heard_or_condemned_is_no_longer_one() -> None:
    stale_a = record(HealthState.STALE, silent=True)
    stale_b = replace(stale_a, spec=spec("b"))
    for changed in (replace(stale_a, silent=False), replace(stale_a, state=HealthState.UNHEALTHY)):
        draft = draft_of(stale_a, stale_b)
        draft.suspects = frozenset({A, B})
        draft.put(changed)
        assert draft.suspects == {B}
    draft = draft_of(stale_a, stale_b)
    draft.suspects = frozenset({A, B})
    draft.put(stale_a)
    draft.remove(B)
    assert draft.suspects == {A}


def test_the_witness_is_the_latest_of_report_probe_and_grace() -> None:
    draft = draft_of()
    stale = record(HealthState.STALE, silent=True)
    assert draft.no_witness_at(stale) == after(START, POLICY.silence_unprobed_unhealthy)
    draft.grace_from = at(2)
    assert draft.no_witness_at(stale) == after(at(2), seconds(3))


def test_the_bus_is_suspect_while_anybody_is_silent_because_of_it() -> None:
    assert FleetState(suspects=frozenset({A})).bus_suspect
    assert not EMPTY.bus_suspect


def failing(cluster: str) -> ClusterRecord:
    """A silent cluster whose probes fail."""
    stale = record(HealthState.STALE, silent=True)
    return replace(stale, spec=spec(cluster), probes=ProbeMemory(failed=1, failed_here=1))


def test_when_all_are_silent_and_unreachable_the_router_suspects_itself() -> None:
    draft = draft_of(failing("a"), failing("b"))
    draft.settle()
    assert draft.isolated
    assert draft.effects == [RouterIsolated()]
    state, _ = draft.freeze(ticked=False)
    again = Draft(state, START)
    again.put(replace(failing("a"), probes=ProbeMemory()))
    again.settle()
    assert again.effects[0] == RouterRejoined()
    assert not again.isolated
    assert again.grace_from == START
    assert [again.clusters[name].probes.failed_here for name in (A, B)] == [0, 0]


def test_suspicion_of_the_bus_ends_when_too_few_are_left_to_suspect_it_for() -> None:
    stale = record(HealthState.STALE, silent=True)
    draft = draft_of(stale, replace(record(), spec=spec("b")), replace(record(), spec=spec("c")))
    draft.suspects = frozenset({A})
    draft.settle()
    assert draft.effects == [BusTrusted()]
    assert draft.suspects == frozenset()
    assert draft.grace_from == START
