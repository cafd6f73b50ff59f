"""Memory's slope counts after the warm-up, and is judged only over a span that can show it."""

import pytest

from services.worlds.bench_http import BenchError
from services.worlds.bench_picker_memory import Sample, entries_on, figures_of


def samples(minutes: float, rise: float, steps: int = 20) -> list[Sample]:
    """Memory that doubles during the warm-up and then rises by `rise` MiB a minute."""
    times = [minutes * step / steps for step in range(1, steps + 1)]
    return [Sample(at, 50.0 if at < minutes * 0.3 else 100.0 + rise * at, 500.0) for at in times]


def test_a_leak_is_seen_and_warming_up_is_none() -> None:
    flat = {figure.name: figure for figure in figures_of(samples(10.0, 0.0), 500.0, 0.0, 10.0, 512)}
    assert flat["memory.slope"].value == pytest.approx(0.0, abs=1e-9)
    assert flat["memory.slope"].held is True
    leaking = {figure.name: figure for figure in figures_of(samples(10.0, 3.0), 500.0, 0.0, 10.0, 512)}
    assert leaking["memory.slope"].value == pytest.approx(3.0)
    assert leaking["memory.slope"].held is False
    assert leaking["memory.at_the_end"].value > leaking["memory.after_warm_up"].value


def test_a_short_run_tells_its_slope_and_judges_nothing() -> None:
    short = {figure.name: figure for figure in figures_of(samples(0.5, 3.0), 500.0, 0.0, 0.5, 512)}
    assert short["memory.slope"].value == pytest.approx(3.0)
    assert short["memory.slope"].held is None


def test_entries_beyond_their_bound_are_a_miss() -> None:
    held = {figure.name: figure.held for figure in figures_of(samples(10.0, 0.0), 500.0, 0.0, 10.0, 499)}
    assert held["memory.index_entries"] is False


def test_a_run_without_samples_is_not_measured() -> None:
    with pytest.raises(BenchError, match="too short"):
        figures_of(samples(10.0, 0.0)[:4], 500.0, 0.0, 10.0, 512)


def test_requests_that_fail_are_a_miss_and_hide_no_slope() -> None:
    figures = {figure.name: figure for figure in figures_of(samples(10.0, 3.0), 500.0, 0.01, 10.0, 512)}
    assert figures["memory.failed"].held is False
    assert figures["memory.slope"].held is False


def test_entries_are_read_off_the_page() -> None:
    page = (
        'gir_picker_prefix_entries{index="precise"} 3\n'
        'gir_picker_prefix_entries{index="approximate"} 10240\ngir_other 1\n'
    )
    assert entries_on(page) == 10_240
    with pytest.raises(BenchError, match="nothing of a prefix index"):
        entries_on("gir_other 1\n")
