from services.core.health.lag import NO_LAG_KNOWN, estimate, measure
from services.core.units import NS_PER_MS, WallMs, ms, seconds
from tests.core.health.samples import at

OBSERVED = WallMs(1_750_000_000_000)


def test_the_first_report_of_an_epoch_has_no_lag_whatever_the_clocks_say() -> None:
    window, lag = measure(NO_LAG_KNOWN, 7, at(0), OBSERVED)
    assert lag == 0
    assert window.epoch == 7


def test_lag_is_what_exceeds_the_quickest_report() -> None:
    window, _ = measure(NO_LAG_KNOWN, 1, at(0), OBSERVED)
    window, lag = measure(window, 1, at(2), WallMs(OBSERVED + 500))
    assert lag == ms(1500)
    window, lag = measure(window, 1, at(2.5), WallMs(OBSERVED + 2600))
    assert lag == 0
    _, lag = measure(window, 1, at(3), WallMs(OBSERVED + 3000))
    assert lag == ms(100)


def test_a_new_epoch_is_judged_by_itself() -> None:
    window, _ = measure(NO_LAG_KNOWN, 1, at(0), OBSERVED)
    _, lag = measure(window, 2, at(1), WallMs(OBSERVED - 3_600_000))
    assert lag == 0


def test_the_smallest_difference_is_forgotten_after_ten_minutes() -> None:
    window, _ = measure(NO_LAG_KNOWN, 1, at(0), OBSERVED)
    skew_ms = 5_000
    window, lag = measure(window, 1, at(300), WallMs(OBSERVED + 300_000 - skew_ms))
    assert lag == seconds(5)
    window, lag = measure(window, 1, at(700), WallMs(OBSERVED + 700_000 - skew_ms))
    assert lag == 0
    assert len(window.smallest) == 2


def test_one_minute_keeps_one_number() -> None:
    window = NO_LAG_KNOWN
    for step in range(10):
        window, _ = measure(window, 1, at(20 + step), WallMs(OBSERVED + 1000 * step))
    assert window.smallest == ((at(20) // (60 * 1000 * NS_PER_MS), at(20) - OBSERVED * NS_PER_MS),)


def test_the_lag_of_a_replayed_report_is_estimated_from_live_ones() -> None:
    assert estimate(NO_LAG_KNOWN, 1, at(0), OBSERVED) is None
    window, _ = measure(NO_LAG_KNOWN, 1, at(0), OBSERVED)
    assert estimate(window, 2, at(0), OBSERVED) is None
    assert estimate(window, 1, at(4), WallMs(OBSERVED + 1000)) == seconds(3)
    assert estimate(window, 1, at(4), WallMs(OBSERVED + 9000)) == 0
