import typing

import pytest

from services.core.health.effects import Effect
from services.core.health.events import (
    BackPressured,
    ClusterEvent,
    ConnectFailed,
    FleetEvent,
    GatewayErrored,
    ProbeFinished,
    ReportRemoved,
    TrafficSucceeded,
    TrialFinished,
    TrialStarted,
)
from services.core.locality import ClusterId
from services.core.units import ms
from tests.core.health.samples import START, Fleet, spec

STRANGER = ClusterId("stranger")
ABOUT_A_STRANGER: list[FleetEvent] = [
    ReportRemoved(STRANGER),
    ProbeFinished(STRANGER, False, START, ms(1)),
    TrafficSucceeded(STRANGER),
    ConnectFailed(STRANGER),
    GatewayErrored(STRANGER),
    TrialStarted(STRANGER),
    TrialFinished(STRANGER),
    BackPressured(STRANGER),
]


@pytest.mark.parametrize("event", ABOUT_A_STRANGER, ids=lambda event: type(event).__name__)
def test_an_event_about_a_cluster_outside_the_policy_changes_nothing(event: FleetEvent) -> None:
    fleet = Fleet(spec("a"))
    before = fleet.state
    effects: tuple[Effect, ...] = fleet.feed(event)
    assert (fleet.state, effects) == (before, ())


def test_the_list_above_is_complete() -> None:
    assert {type(event) for event in ABOUT_A_STRANGER} == {*typing.get_args(ClusterEvent), BackPressured}
