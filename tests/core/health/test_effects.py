import re
import typing

import pytest

from services.core.fleet import HealthState
from services.core.health.effects import (
    BusSuspected,
    BusTrusted,
    ClusterEjected,
    ClusterLost,
    ClusterRestored,
    Effect,
    PlaceAgreed,
    PlaceDisputed,
    Reason,
    RouterIsolated,
    RouterRejoined,
    StateChanged,
    TimersRestarted,
    describe,
)
from services.core.locality import Jurisdiction, Locality, Region
from services.core.units import ms, seconds
from tests.core.health.samples import EU, A, B

US = Locality(Region("us-east"), Jurisdiction("us"))

LINES: list[tuple[Effect, str]] = [
    (StateChanged(A, HealthState.HEALTHY, HealthState.STALE, Reason.SILENT), "a: HEALTHY -> STALE (silent)"),
    (ClusterEjected(A, Reason.GATEWAY_ERRORS, seconds(30)), "a: ejected for 30 s (gateway_errors)"),
    (ClusterRestored(A), "a: ejection over"),
    (ClusterLost(A, Reason.UNREACHABLE), "a: lost (unreachable)"),
    (PlaceDisputed(A, EU, US), "a: place disputed: it reports us-east (us), policy says eu-west (eu)"),
    (PlaceAgreed(A), "a: place agreed"),
    (BusSuspected((A, B)), "bus suspected: a b silent"),
    (BusTrusted(), "bus trusted"),
    (RouterIsolated(), "router isolated"),
    (RouterRejoined(), "router rejoined"),
    (TimersRestarted(ms(260)), "tick 260 ms late: timers restarted"),
]


def test_reasons_can_label_a_metric() -> None:
    assert all(re.fullmatch(r"[a-z_]+", reason.value) for reason in Reason)
    assert len({reason.value for reason in Reason}) == len(Reason)


@pytest.mark.parametrize(("effect", "line"), LINES, ids=lambda value: type(value).__name__)
def test_an_effect_reads_as_a_line(effect: Effect, line: str) -> None:
    assert describe(effect) == line


def test_the_lines_above_are_complete() -> None:
    assert {type(effect) for effect, _ in LINES} == set(typing.get_args(Effect))
