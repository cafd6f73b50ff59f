"""Saturation of a pool: the field's formulas, and what unknown metrics do to them."""

from typing import Any

import pytest

from services.core.admission.detectors import (
    ConcurrencyDetector,
    ConcurrencyMode,
    PodLoad,
    SaturationDetector,
    UtilizationDetector,
    known_shares,
    pool_saturation,
)

BY_USE = UtilizationDetector()


def pod(name: str = "a", *, fresh: bool = True, **fields: Any) -> PodLoad:
    return PodLoad(name, fresh, **fields)


def saturation_of(detector: SaturationDetector, pods: list[PodLoad]) -> float:
    return pool_saturation(known_shares(detector, pods))


def test_a_pod_is_as_saturated_as_its_queue_or_its_cache() -> None:
    assert BY_USE.of_pod(pod(waiting=4, running=0, kv_use=0.4)) == pytest.approx(0.8)
    assert BY_USE.of_pod(pod(waiting=1, running=0, kv_use=0.96)) == pytest.approx(1.2)
    assert BY_USE.of_pod(pod(waiting=10, running=0)) == pytest.approx(2.0)
    assert BY_USE.of_pod(pod(kv_use=0.2)) == pytest.approx(0.25)


def test_a_pool_is_the_mean_of_its_pods() -> None:
    pods = [pod(waiting=5, kv_use=0.0), pod(waiting=0, kv_use=0.4)]
    assert saturation_of(BY_USE, pods) == pytest.approx(0.75)


def test_f016_missing_metrics_alone_never_saturate() -> None:
    """The field counts such a pod as 1.0, and a server with a slow /metrics turns all its traffic into 429."""
    assert saturation_of(BY_USE, [pod(fresh=False, waiting=50)]) == 0.0
    assert saturation_of(BY_USE, [pod()]) == 0.0


def test_a_stale_pod_counts_by_own_requests_against_what_it_declares() -> None:
    assert BY_USE.of_pod(pod(fresh=False, waiting=50, in_flight=8, declared_requests=10)) == pytest.approx(
        0.8
    )
    mixed = [pod(waiting=2, kv_use=0), pod(fresh=False, in_flight=9, declared_requests=10), pod(fresh=False)]
    assert saturation_of(BY_USE, mixed) == pytest.approx((0.4 + 0.9) / 2)


@pytest.mark.parametrize(
    ("fields", "saturation"),
    [
        ({"waiting": 0, "running": 4, "declared_requests": 10, "sent_since": 6}, 0.0),
        ({"waiting": 0, "running": 4, "declared_requests": 10, "sent_since": 9}, 0.6),
        ({"waiting": 0, "running": 12, "declared_requests": 10, "sent_since": 1}, 0.2),
        ({"waiting": 0, "running": 0, "sent_since": 16}, 0.0),
        ({"waiting": 0, "running": 0, "sent_since": 21}, 1.0),
        ({"waiting": 0, "running": 40, "sent_since": 45}, 1.0),
        ({"waiting": 1, "running": 40, "sent_since": 4}, 1.0),
        ({"waiting": 0, "sent_since": 5}, 1.0),
        ({"waiting": 3, "running": 9, "sent_since": -3}, 0.6),
    ],
)
def test_requests_sent_since_a_reading_wait_as_far_as_the_batch_has_no_room(
    fields: dict[str, Any], saturation: float
) -> None:
    assert BY_USE.of_pod(pod(**fields)) == pytest.approx(saturation)


def test_a_concurrency_detector_needs_no_metrics() -> None:
    busy = pod(fresh=False, in_flight=50, in_flight_tokens=900_000)
    assert ConcurrencyDetector().of_pod(busy) == pytest.approx(0.5)
    assert ConcurrencyDetector(ConcurrencyMode.TOKENS).of_pod(busy) == pytest.approx(0.9)
    hybrid = ConcurrencyDetector(ConcurrencyMode.HYBRID)
    other = pod("b", in_flight=100, in_flight_tokens=0)
    assert saturation_of(hybrid, [busy, other]) == pytest.approx((0.9 + 1.0) / 2)


def test_what_one_more_request_can_add_at_most() -> None:
    assert BY_USE.steps([pod()]) == pytest.approx((0.2, 0.0))
    assert BY_USE.steps([pod(declared_requests=2), pod(declared_requests=8)]) == pytest.approx((0.5, 0.0))
    assert ConcurrencyDetector().steps([]) == pytest.approx((0.01, 0.0))
    hybrid = ConcurrencyDetector(ConcurrencyMode.HYBRID, max_token_concurrency=1000)
    assert hybrid.steps([]) == pytest.approx((0.01, 0.001))
    by_tokens = ConcurrencyDetector(ConcurrencyMode.TOKENS, max_token_concurrency=1000)
    assert by_tokens.steps([]) == pytest.approx((0.0, 0.001))


@pytest.mark.parametrize(
    "make",
    [
        lambda: UtilizationDetector(queue_depth=0),
        lambda: UtilizationDetector(kv_use=0),
        lambda: UtilizationDetector(kv_use=1.1),
        lambda: ConcurrencyDetector(max_concurrency=0),
        lambda: ConcurrencyDetector(max_token_concurrency=0),
    ],
)
def test_thresholds_that_call_an_idle_pod_saturated_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="detector"):
        make()
