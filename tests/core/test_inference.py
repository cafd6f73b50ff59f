"""Requests as values: bands by the sign of priority, defaults that grant nothing by accident."""

import dataclasses

import pytest

from services.core.inference import (
    Band,
    Grants,
    InferenceRequest,
    ModelName,
    RequestId,
    Tenant,
    TenantId,
    band_of,
)
from services.core.residency import ANYWHERE


@pytest.mark.parametrize(
    ("priority", "band"),
    [(7, Band.CRITICAL), (1, Band.CRITICAL), (0, Band.STANDARD), (-1, Band.SHEDDABLE), (-9, Band.SHEDDABLE)],
)
def test_bands_go_by_the_sign_of_priority(priority: int, band: Band) -> None:
    assert band_of(priority) is band


def test_bands_are_ordered_most_urgent_first() -> None:
    assert sorted(Band) == [Band.CRITICAL, Band.STANDARD, Band.SHEDDABLE]


def test_a_request_cannot_be_changed_after_it_was_judged() -> None:
    request = InferenceRequest(RequestId("r"), Tenant(TenantId("t"), Grants()), ModelName("m"), ANYWHERE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.model = ModelName("other")  # type: ignore[misc] # The point of the test.
