"""Predicted time to first token: what it starts from, what moves it, and the scores made of it."""

import pytest

from services.core.fleet import LoadReport
from services.core.scheduling.scorers.latency import (
    LEAST_POSITIVE,
    Headroom,
    Latency,
    by_headroom,
    predict_ttft_ms,
)
from services.core.scheduling.scorers.scorer import dense
from services.core.scheduling.signals import Signals
from tests.core.scheduling.pods import arrive, loaded


def measured(ttft_ms: float | None, running: float = 0, waiting: float = 0) -> LoadReport:
    return LoadReport(waiting=waiting, running=running, ttft_ms=ttft_ms)


def test_the_prediction_grows_with_what_came_since_and_shrinks_by_what_is_cached() -> None:
    before = loaded(measured(100, running=9), measured(100, running=9), measured(300))
    predict = predict_ttft_ms(before, peak_tokens_per_s=1000)
    assert predict(arrive(before)) == [100, 100, 300]
    assert predict(arrive(before, own={"p0": 10, "p1": -5})) == pytest.approx([200, 50, 300])
    signals = Signals({"p2": 4, "gone": 2}, total_blocks=8, block_tokens=50)
    assert predict(arrive(before, signals)) == pytest.approx([100, 100, 100])


def test_an_endpoint_that_was_not_measured_has_no_prediction() -> None:
    before = loaded(measured(None), measured(80, running=3))
    signals = Signals({"p0": 3}, total_blocks=4, block_tokens=16)
    assert predict_ttft_ms(before)(arrive(before, signals, own={"p0": 5, "p1": 4})) == [None, 160]


def test_without_a_target_the_least_is_best() -> None:
    before = loaded(measured(100), measured(200), measured(300))
    found = Latency().over(before)(arrive(before))
    assert found is not None
    assert dense(found, 3) == pytest.approx([1.0, 0.5, 0.0])
    partly = loaded(measured(100), measured(None), measured(300))
    assert Latency().over(partly)(arrive(partly)) == pytest.approx([1.0, 0.5, 0.0])


@pytest.mark.parametrize(
    ("headroom", "expected"),
    [
        (Headroom.LEAST, [LEAST_POSITIVE, 1.0, 0.0, (LEAST_POSITIVE + 1.0) / 3]),
        (Headroom.MOST, [1.0, LEAST_POSITIVE, 0.0, (LEAST_POSITIVE + 1.0) / 3]),
    ],
)
def test_with_a_target_it_goes_by_headroom_and_misses_score_nothing(
    headroom: Headroom, expected: list[float]
) -> None:
    before = loaded(measured(100), measured(200), measured(300), measured(None))
    found = Latency(headroom).over(before)(arrive(before, Signals(ttft_slo_ms=250)))
    assert found == pytest.approx(expected)


def test_when_all_miss_the_target_the_least_miss_is_best() -> None:
    assert by_headroom([300, 400, None], 200, most=True) == pytest.approx([1.0, 0.0, 0.5])


def test_equal_headroom_is_equally_good() -> None:
    assert by_headroom([100, 100], 200, most=False) == [1.0, 1.0]


def test_where_nothing_was_measured_load_and_prefix_stand_in() -> None:
    before = loaded(LoadReport(waiting=0, kv_use=0.4), LoadReport(waiting=4, kv_use=0.1))
    live = Latency().over(before)
    assert live(arrive(before)) == pytest.approx([(0.6 + 1.0 + 0.0) / 3, (0.9 + 0.0 + 0.0) / 3])
    warm = Signals({"p1": 3}, total_blocks=4)
    light = loaded(LoadReport(waiting=0, running=0, kv_use=0.4), LoadReport(waiting=0, running=0, kv_use=0.1))
    assert Latency().over(light)(arrive(light, warm)) == pytest.approx(
        [(0.6 + 1.0 + 0.0) / 3, (0.9 + 1.0 + 0.75) / 3]
    )


def test_a_rate_of_prefill_is_above_0() -> None:
    with pytest.raises(ValueError, match="peak_tokens_per_s: must be above 0"):
        Latency(peak_tokens_per_s=0)
