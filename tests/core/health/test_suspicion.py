from dataclasses import replace

import pytest

from services.core.fleet import HealthState
from services.core.health.outliers import Outlier
from services.core.health.record import ClusterRecord, ProbeMemory
from services.core.health.suspicion import NO_COUNTS, Counts, bus_suspect, counted, fallen_silent
from tests.core.health.samples import POLICY, A, at, record


def test_what_is_counted_in_can_be_counted_out() -> None:
    samples = [
        record(silent=True),
        record(probed=False),
        replace(record(), probes=ProbeMemory(failed=2), outlier=Outlier(ejected_until=at(1))),
    ]
    counts = NO_COUNTS
    for sample in samples:
        counts = counted(counts, sample, 1)
    assert counts == Counts(clusters=3, silent=1, probed=2, failing=1, ejected=1)
    assert counts.heard == 2
    for sample in samples:
        counts = counted(counts, sample, -1)
    assert counts == NO_COUNTS


@pytest.mark.parametrize(
    ("counts", "isolated"),
    [
        (Counts(clusters=2, silent=2, probed=2, failing=2), True),
        (Counts(clusters=2, silent=2, probed=1, failing=1), True),
        (Counts(clusters=2, silent=1, probed=2, failing=2), False),
        (Counts(clusters=2, silent=2, probed=2, failing=1), False),
        (Counts(clusters=2, silent=2), False),
        (NO_COUNTS, False),
    ],
)
def test_a_router_is_isolated_when_nobody_is_heard_and_nobody_answers(counts: Counts, isolated: bool) -> None:
    assert counts.isolated is isolated


@pytest.mark.parametrize(
    ("silent", "heard", "suspect"),
    [(1, 0, False), (1, 1, False), (2, 0, True), (2, 2, True), (2, 3, False), (5, 0, True), (3, 2, True)],
)
def test_the_bus_is_suspected_from_two_and_a_half(silent: int, heard: int, suspect: bool) -> None:
    assert bus_suspect(silent, heard) is suspect


@pytest.mark.parametrize(
    ("candidate", "counts"),
    [
        (record(HealthState.STALE, silent=True), True),
        (record(HealthState.STALE), False),
        (replace(record(HealthState.STALE, silent=True), heard=False), False),
        (record(HealthState.UNHEALTHY, silent=True), False),
    ],
)
def test_only_the_living_that_were_heard_fall_silent(candidate: ClusterRecord, counts: bool) -> None:
    fallen = replace(candidate, silent_at=at(0))
    assert fallen_silent([fallen], POLICY, at(1.25)) == ({A} if counts else set())
    assert fallen_silent([fallen], POLICY, at(1.26)) == set()
