"""Rates from totals: restarts, gaps, window; and the property that no rate is ever negative."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.pods.rates import WINDOW, Rates, RateWindow
from services.core.pods.reading import TokenTotals
from services.core.units import Instant, seconds

UNKNOWN = Rates()


def totals(count: float | None, hits: float | None = None) -> TokenTotals:
    return TokenTotals(prompt=count, generation=count, prefix_queries=count, prefix_hits=hits)


def fed(*readings: tuple[float, TokenTotals]) -> RateWindow:
    window = RateWindow()
    for at_s, reading in readings:
        window.add(reading, Instant(round(at_s * 1e9)))
    return window


def test_nothing_and_one_reading_tell_no_rate() -> None:
    assert RateWindow().recent() == UNKNOWN
    assert fed((5, totals(10, 5))).recent() == UNKNOWN


def test_two_readings_tell_rates_and_ratio() -> None:
    start = TokenTotals(prompt=1000, generation=500, prefix_queries=100, prefix_hits=90)
    end = TokenTotals(prompt=3000, generation=600, prefix_queries=300, prefix_hits=140)
    assert fed((10, start), (20, end)).recent() == Rates(200.0, 10.0, 0.25)


def test_what_is_not_published_is_unknown_beside_what_is() -> None:
    window = fed((0, TokenTotals(generation=5)), (2, TokenTotals(generation=9)))
    assert window.recent() == Rates(None, 2.0, None)


def test_no_look_ups_tell_no_ratio_and_idle_is_a_rate_of_zero() -> None:
    assert fed((0, totals(7, 7)), (4, totals(7, 7))).recent() == Rates(0.0, 0.0, None)


def test_hits_without_queries_tell_no_ratio_and_more_hits_than_queries_are_all() -> None:
    assert fed((0, TokenTotals(prefix_queries=0)), (1, TokenTotals(prefix_queries=9))).recent() == UNKNOWN
    assert fed((0, totals(0, 0)), (1, totals(2, 3))).recent().prefix_hit_ratio == 1.0


def test_a_restart_starts_the_window_anew_and_is_no_burst() -> None:
    window = fed((0, totals(1e6, 0)), (1, totals(1.1e6, 0)), (2, totals(400, 0)))
    assert window.recent() == UNKNOWN
    window.add(totals(900, 0), Instant(round(4e9)))
    assert window.recent().generation_tokens_per_s == 250.0


def test_a_rank_that_restarts_beside_a_running_one_is_no_burst() -> None:
    """Two ranks at a million each: one starts from 0, so the sum falls by half and then grows on."""
    window = fed((0, totals(2e6)), (1, totals(1e6 + 10)), (2, totals(1e6 + 30)))
    assert window.recent().prompt_tokens_per_s == 20.0


@pytest.mark.parametrize(("before", "after"), [(None, 5.0), (5.0, None)])
def test_a_total_that_appears_or_goes_starts_the_window_anew(
    before: float | None, after: float | None
) -> None:
    assert fed((0, totals(before)), (1, totals(after))).recent() == UNKNOWN


def test_the_window_forgets_what_is_older_than_a_minute() -> None:
    window = fed(*[(at, totals(at * 10.0)) for at in range(300)], (300, totals(2990.0)))
    rates = window.recent()
    assert rates.prompt_tokens_per_s is not None
    assert 9.5 < rates.prompt_tokens_per_s < 10.0  # The last second brought nothing.
    idle = fed((0, totals(0)), (1, totals(6000)), *[(at, totals(6000)) for at in range(2, 70)])
    assert idle.recent().prompt_tokens_per_s == 0.0


def test_readings_of_every_50_ms_are_kept_once_a_second() -> None:
    window = fed(*[(tick / 20, totals(tick)) for tick in range(5000)])
    assert len(window._kept) <= WINDOW // seconds(1) + 2


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=30))
def test_no_order_of_readings_gives_a_negative_rate(readings: list[tuple[int, int]]) -> None:
    """Invariant: rates are at least 0 and the ratio lies in 0..1, whatever the server counted."""
    window = fed(*[(at, totals(count, hits)) for at, (count, hits) in enumerate(readings)])
    rates = window.recent()
    assert rates.prompt_tokens_per_s is None or rates.prompt_tokens_per_s >= 0
    assert rates.prefix_hit_ratio is None or 0 <= rates.prefix_hit_ratio <= 1
