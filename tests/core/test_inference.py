"""Requests as values: bands by the sign of priority, defaults that grant nothing by accident."""

import pytest

from services.core.inference import (
    Band,
    band_of,
)


@pytest.mark.parametrize(
    ("priority", "band"),
    [(7, Band.CRITICAL), (1, Band.CRITICAL), (0, Band.STANDARD), (-1, Band.SHEDDABLE), (-9, Band.SHEDDABLE)],
)
def test_bands_go_by_the_sign_of_priority(priority: int, band: Band) -> None:
    assert band_of(priority) is band


def test_bands_are_ordered_most_urgent_first() -> None:
    assert sorted(Band) == [Band.CRITICAL, Band.STANDARD, Band.SHEDDABLE]
