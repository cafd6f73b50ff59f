from dataclasses import replace
from typing import Any

import pytest

from services.core.fleet import HealthState
from services.core.health.probation import (
    probe_credited,
    ramp,
    recent_returns,
    return_earned,
    trial_allowed,
    trial_finished,
    trial_started,
)
from services.core.health.record import NO_TRIALS, ClusterRecord, ProbeMemory, Trials
from tests.core.health.samples import POLICY, START, at, record


def condemned(*, probed: bool = True, good: int = 2, reports: int = 1, **changes: Any) -> ClusterRecord:
    base = record(HealthState.UNHEALTHY, probed=probed)
    return replace(base, probes=ProbeMemory(good_here=good), reports_here=reports, **changes)


@pytest.mark.parametrize(
    ("candidate", "earned"),
    [
        (condemned(), True),
        (condemned(good=1), False),
        (condemned(reports=0), False),
        (condemned(silent=True), False),
        (condemned(state=HealthState.STALE), False),
        (condemned(probed=False, good=0, reports=1), False),
        (condemned(probed=False, good=0, reports=2), True),
        (condemned(returns=(at(0), at(1))), False),
        (condemned(returns=(at(-600), at(1))), True),
    ],
)
def test_a_return_takes_report_probes_and_room_in_the_window(candidate: ClusterRecord, earned: bool) -> None:
    assert return_earned(candidate, POLICY, at(0)) is earned


def test_only_returns_within_the_window_count() -> None:
    assert recent_returns(condemned(returns=(at(-601), at(-599))), POLICY, START) == (at(-599),)


@pytest.mark.parametrize(
    ("trials", "requests", "allowed"),
    [
        (Trials(in_flight=2, admitted=90), 100, True),
        (Trials(in_flight=3, admitted=3), 300, False),
        (Trials(in_flight=3, admitted=3), 301, True),
    ],
)
def test_trials_are_the_larger_of_share_and_concurrency(trials: Trials, requests: int, allowed: bool) -> None:
    assert trial_allowed(trials, requests, POLICY) is allowed


def test_trials_are_counted_in_and_out() -> None:
    trials = trial_started(trial_started(NO_TRIALS, at(1)), at(2))
    assert trials == Trials(in_flight=2, admitted=2, last_at=at(2))
    trials = trial_finished(trials, at(3))
    assert trials == Trials(in_flight=1, admitted=2, last_at=at(3))
    assert trial_finished(NO_TRIALS, at(3)).in_flight == 0


def test_probes_are_credited_when_no_trial_has_run_for_a_while() -> None:
    assert probe_credited(Trials(last_at=at(0)), POLICY, at(5))
    assert not probe_credited(Trials(last_at=at(0)), POLICY, at(4.9))
    assert not probe_credited(Trials(in_flight=1, last_at=at(0)), POLICY, at(60))


@pytest.mark.parametrize(("elapsed", "factor"), [(0, 0.1), (6, 0.1), (30, 0.5), (60, 1.0), (90, 1.0)])
def test_the_ramp_rises_from_the_floor(elapsed: float, factor: float) -> None:
    assert ramp(replace(record(), ramp_from=START), POLICY, at(elapsed)) == pytest.approx(factor)


def test_without_a_return_there_is_no_ramp_and_probation_stays_on_the_floor() -> None:
    assert ramp(record(), POLICY, START) == 1.0
    assert ramp(record(HealthState.PROBATION), POLICY, at(999)) == POLICY.ramp_floor
