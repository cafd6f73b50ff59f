"""Shedding without a queue: whom the legacy admission and the probabilistic admitter refuse."""

import pytest

from services.core.admission.shedding import ProbabilisticAdmitter, legacy_admits

IDS = [f"0199-{number:05d}" for number in range(20_000)]


@pytest.mark.parametrize(
    ("priority", "saturation", "admitted"),
    [(0, 5.0, True), (1, 1.0, True), (-1, 0.99, True), (-1, 1.0, False), (-1, None, True)],
)
def test_legacy_refuses_sheddable_requests_of_a_saturated_pool_only(
    priority: int, saturation: float | None, admitted: bool
) -> None:
    assert legacy_admits(priority, saturation) is admitted


def refused(saturation: float) -> float:
    admitter = ProbabilisticAdmitter()
    return sum(not admitter.admits(name, -1, saturation) for name in IDS) / len(IDS)


def test_the_share_refused_follows_the_fields_curve() -> None:
    assert refused(0.0) == 0.0
    assert refused(0.15) == pytest.approx(0.0228, abs=0.004)
    assert refused(0.25) == pytest.approx(0.293, abs=0.012)
    assert refused(0.34) == 1.0


def test_only_sheddable_requests_are_refused_and_none_of_an_empty_pool() -> None:
    admitter = ProbabilisticAdmitter()
    assert admitter.admits("r", 0, 9.0)
    assert admitter.admits("r", -1, None)
    assert not admitter.admits("r", -1, 1e300)


def test_the_same_request_meets_the_same_fate() -> None:
    admitter = ProbabilisticAdmitter()
    assert [admitter.admits(name, -1, 0.25) for name in IDS[:99]] == [
        admitter.admits(name, -1, 0.25) for name in IDS[:99]
    ]


def test_parameters_without_a_rising_curve_are_refused() -> None:
    for power, k in ((0, 300), (5, 0)):
        with pytest.raises(ValueError, match="power and k"):
            ProbabilisticAdmitter(power, k)
