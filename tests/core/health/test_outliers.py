from dataclasses import replace

import pytest

from services.core.health.effects import Reason
from services.core.health.outliers import (
    CLEAN,
    Outlier,
    connect_failed,
    eject,
    gateway_errored,
    may_eject,
    restore,
    succeeded,
    trip_reason,
)
from services.core.units import seconds
from tests.core.health.samples import POLICY, at


def failing(connect: int = 0, gateway: int = 0) -> Outlier:
    outlier = CLEAN
    for _ in range(gateway):
        outlier = gateway_errored(outlier)
    for _ in range(connect):
        outlier = connect_failed(outlier)
    return outlier


@pytest.mark.parametrize(
    ("outlier", "reason"),
    [
        (failing(connect=2), None),
        (failing(connect=3), Reason.CONNECT_FAILED),
        (failing(gateway=4), None),
        (failing(gateway=5), Reason.GATEWAY_ERRORS),
        (replace(failing(connect=3), ejected_until=at(1)), None),
    ],
)
def test_consecutive_failures_trip(outlier: Outlier, reason: Reason | None) -> None:
    assert trip_reason(outlier, POLICY) is reason


def test_a_success_ends_both_runs() -> None:
    assert succeeded(failing(connect=2, gateway=4)) == CLEAN
    assert succeeded(CLEAN) is CLEAN


def test_a_gateway_error_proves_that_connections_work() -> None:
    assert gateway_errored(failing(connect=2)).connect_failures == 0


@pytest.mark.parametrize(
    ("ejected", "clusters", "allowed"),
    [
        (0, 1, True),
        (0, 5, True),
        (1, 5, False),
        (1, 19, False),
        (1, 20, True),
        (49, 500, True),
        (50, 500, False),
    ],
)
def test_at_most_a_tenth_and_at_least_one(ejected: int, clusters: int, allowed: bool) -> None:
    assert may_eject(ejected, clusters, POLICY) is allowed


def test_ejections_grow_to_the_maximum() -> None:
    spans = []
    outlier = CLEAN
    for _ in range(12):
        outlier, span = eject(outlier, POLICY, at(0))
        spans.append(span)
    assert spans[:3] == [seconds(30), seconds(60), seconds(90)]
    assert spans[9:] == [seconds(300)] * 3


def test_quiet_time_lowers_the_multiplier() -> None:
    outlier, _ = eject(replace(CLEAN, ejections=3), POLICY, at(0))
    assert outlier.ejected
    outlier = restore(outlier, at(120))
    assert not outlier.ejected
    assert eject(outlier, POLICY, at(149))[1] == seconds(150)
    assert eject(outlier, POLICY, at(185))[1] == seconds(90)
    assert eject(outlier, POLICY, at(9999))[1] == seconds(30)
