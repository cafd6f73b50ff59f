"""Gauges: measured from the pod table, bounded between measurements."""

import pytest

from services.core.admission.detectors import ConcurrencyDetector, UtilizationDetector
from services.core.pods.reading import EngineReading
from services.core.pods.table import Pod, PodTable
from services.core.units import NS_PER_S, Instant
from services.endpoint_picker.saturation import PoolGauge, load_of

START = Instant(1_000 * NS_PER_S)


def at(second: float) -> Instant:
    return Instant(START + round(second * NS_PER_S))


def table_of(*names: str) -> PodTable:
    return PodTable([Pod(name, f"{name}:8000", "llama") for name in names], START)


def read(table: PodTable, name: str, waiting: int, now: Instant) -> None:
    table.read(name, EngineReading("vllm", waiting=waiting, running=1, kv_use=0.0), now)


def test_a_pool_without_pods_has_no_saturation() -> None:
    gauge = PoolGauge(table_of(), "llama", UtilizationDetector())
    assert gauge.bound(START) is None
    assert gauge.exact(START) is None
    gauge.admitted(1)
    assert gauge.bound(START) is None


def test_new_readings_are_seen_at_once_when_asked_exactly_and_within_20_ms_otherwise() -> None:
    table = table_of("a", "b")
    for name in "ab":
        read(table, name, 0, at(0))
    gauge = PoolGauge(table, "llama", UtilizationDetector())
    assert gauge.bound(at(0)) == 0.0
    read(table, "a", 5, at(0.01))
    assert gauge.bound(at(0.01)) == 0.0
    assert gauge.exact(at(0.01)) == pytest.approx(0.5)
    read(table, "a", 10, at(0.011))
    assert gauge.bound(at(0.031)) == pytest.approx(1.0)


def test_between_measurements_it_answers_with_a_bound_and_measures_again_when_asked_exactly() -> None:
    table = table_of("a", "b")
    gauge = PoolGauge(table, "llama", ConcurrencyDetector(max_concurrency=4))
    assert gauge.bound(at(0)) == 0.0
    table["a"].in_flight += 1
    gauge.admitted(1)
    gauge.admitted(1)
    assert gauge.bound(at(0)) == pytest.approx(0.25)
    assert gauge.exact(at(0)) == pytest.approx(0.125)
    table["a"].in_flight -= 1
    assert gauge.exact(at(0)) == pytest.approx(0.125)
    gauge.ended()
    assert gauge.exact(at(0)) == 0.0


def test_stale_pods_are_counted_and_do_not_saturate() -> None:
    table = table_of("a", "b")
    for name in "ab":
        read(table, name, 50, at(0))
    table.tick(at(3))
    gauge = PoolGauge(table, "llama", UtilizationDetector())
    assert gauge.exact(at(3)) == 0.0
    assert gauge.stale_endpoints == 2


def test_a_row_as_a_detector_sees_it() -> None:
    table = table_of("a")
    blank = load_of(table["a"])
    assert (blank.fresh, blank.waiting, blank.running, blank.kv_use) == (False, None, None, None)
    read(table, "a", 3, at(0))
    pod = table["a"]
    pod.in_flight, pod.in_flight_tokens, pod.since_reading, pod.declared_requests = 4, 70, 2, 9
    seen = load_of(pod)
    assert (seen.fresh, seen.waiting, seen.running, seen.kv_use) == (True, 3, 1, 0.0)
    assert (seen.in_flight, seen.in_flight_tokens, seen.sent_since, seen.declared_requests) == (4, 70, 2, 9)
