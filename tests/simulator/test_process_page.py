import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.simulator.process_page import PAGE_LINES_MAX, process_page


@pytest.mark.parametrize("lines", [1, 10, 1_200, 1_500])
def test_it_is_as_long_as_asked_and_hardly_longer(lines: int) -> None:
    count = process_page(lines).count(b"\n")
    assert lines <= count <= lines + 8


def test_nothing_is_asked_for_and_nothing_said() -> None:
    assert process_page(0) == process_page(-5) == b""


def test_it_is_a_page_without_repeated_series() -> None:
    page = process_page(PAGE_LINES_MAX).decode()
    series = [
        (sample.name, frozenset(sample.labels.items()))
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]
    assert len(series) == len(set(series)) > 1_700
