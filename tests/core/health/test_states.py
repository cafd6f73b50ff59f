import re
from pathlib import Path

import pytest

import services.core.health.states as states_module
from services.core.fleet import HealthState
from services.core.health.states import TABLE, Evidence, IllegalMoveError, diagram, next_state

ROUTABLE = set(HealthState) - {HealthState.UNKNOWN, HealthState.UNHEALTHY}


def test_every_state_has_a_row() -> None:
    assert set(TABLE) == set(HealthState)


def test_every_evidence_moves_some_state() -> None:
    assert {evidence for row in TABLE.values() for evidence in row} == set(Evidence)


def test_routable_states_are_entered_only_by_report_probe_silence_or_return() -> None:
    """Law 1: what makes a cluster routable that was not is a live report, a good probe or an earned return."""
    opening = {
        evidence
        for state, row in TABLE.items()
        for evidence, after in row.items()
        if state not in ROUTABLE and after in ROUTABLE
    }
    assert opening == {
        Evidence.REPORT_SOUND,
        Evidence.REPORT_STRAINED,
        Evidence.PROBE_ANSWERED,
        Evidence.RETURN_EARNED,
    }


def test_silence_alone_never_condemns_a_cluster_in_service() -> None:
    """Law 2."""
    for state in (HealthState.HEALTHY, HealthState.DEGRADED):
        assert next_state(state, Evidence.SILENCE) is HealthState.STALE


def test_unhealthy_is_left_only_through_probation() -> None:
    """Law 3."""
    assert set(TABLE[HealthState.UNHEALTHY].values()) == {HealthState.PROBATION}
    good = {evidence for evidence, after in TABLE[HealthState.PROBATION].items() if after in ROUTABLE}
    assert good == {Evidence.TRIALS_PASSED}


def test_an_illegal_move_names_state_and_evidence() -> None:
    """Law 5."""
    with pytest.raises(IllegalMoveError, match=r"UNHEALTHY knows no move for 'sound live report'"):
        next_state(HealthState.UNHEALTHY, Evidence.REPORT_SOUND)


def test_the_readme_shows_the_table() -> None:
    readme = Path(states_module.__file__).with_name("README.md").read_text()
    block = re.search(r"```mermaid\n(.*?)\n```", readme, re.DOTALL)
    assert block is not None
    assert block.group(1) == diagram()


def test_the_diagram_has_one_line_per_change() -> None:
    changes = sum(after is not state for state, row in TABLE.items() for after in row.values())
    assert len(diagram().splitlines()) == changes + 2
