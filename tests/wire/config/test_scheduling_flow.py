"""`flowControl` onto settings: quantities, times, bands and the plugins they refer to."""

from typing import Any

import pytest

from services.core.admission.settings import BandSettings, Fairness, FlowControlSettings, Ordering
from services.core.admission.usage_limits import StaticLimit
from services.core.units import seconds
from services.wire.config.scheduling_document import FlowControl
from services.wire.config.scheduling_flow import duration, flow_control, quantity
from services.wire.config.scheduling_plugins import Role

VALUES = {
    ("limit", Role.USAGE_LIMIT): StaticLimit(0.5),
    ("fair", Role.FAIRNESS): Fairness.ROUND_ROBIN,
    ("edf", Role.ORDERING): Ordering.EDF,
}


def find(_path: str, name: str, role: Role) -> Any:
    return VALUES[name, role]


def read(**fields: Any) -> FlowControlSettings:
    return flow_control(FlowControl.model_validate(fields, by_alias=True, by_name=False), find, None)


@pytest.mark.parametrize(
    ("text", "number"),
    [(None, None), (7, 7), ("7", 7), ("2k", 2000), ("1Ki", 1024), ("1Gi", 1 << 30), ("3G", 3 * 10**9)],
)
def test_quantities_are_kubernetes_quantities(text: int | str | None, number: int | None) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["", "1.5Gi", "-1", "1KiB", "Gi"])
def test_other_quantities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a whole number with a suffix"):
        quantity(text)


@pytest.mark.parametrize(
    ("text", "span_s"), [("60s", 60), ("500ms", 0.5), ("1m30s", 90), ("1h", 3600), ("1.5s", 1.5), ("0", 0)]
)
def test_times_are_gos(text: str, span_s: float) -> None:
    assert duration(text) == seconds(span_s)


@pytest.mark.parametrize("text", ["", "60", "1d", "s", "-1s"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a time such as"):
        duration(text)


def test_nothing_said_is_the_default() -> None:
    assert flow_control(None, find, None) == FlowControlSettings()


def test_everything_said_is_taken() -> None:
    settings = read(
        maxBytes="1Gi",
        maxRequests=100,
        defaultRequestTTL="30s",
        noEndpointRequestTTL="5s",
        enableEviction=True,
        usageLimitPolicyPluginRef="limit",
        defaultPriorityBand={"maxRequests": 5},
        defaultNegativePriorityBand={"maxBytes": "1k"},
        priorityBands=[
            {
                "priority": 3,
                "maxRequests": 9,
                "maxBytes": 10,
                "fairnessPolicyRef": "fair",
                "orderingPolicyRef": "edf",
            }
        ],
    )
    assert settings == FlowControlSettings(
        max_requests=100,
        max_bytes=1 << 30,
        default_request_ttl=seconds(30),
        no_endpoint_request_ttl=seconds(5),
        enable_eviction=True,
        usage_limit=StaticLimit(0.5),
        default_priority_band=BandSettings(max_requests=5),
        default_negative_priority_band=BandSettings(max_bytes=1000),
        priority_bands={3: BandSettings(9, 10, Fairness.ROUND_ROBIN, Ordering.EDF)},
    )


@pytest.mark.parametrize(
    ("bands", "rule"),
    [
        ([{}], r"priorityBands\[0\] is missing a priority"),
        ([{"priority": 1}, {"priority": 1}], r"priorityBands\[1\] has duplicate priority 1"),
    ],
)
def test_a_band_has_a_priority_of_its_own(bands: list[dict[str, int]], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        read(priorityBands=bands)
