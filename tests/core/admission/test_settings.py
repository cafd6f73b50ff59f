"""Settings of flow control: the field's numbers by default, and what is refused at birth."""

from typing import Any

import pytest

from services.core.admission.settings import BandSettings, FlowControlSettings
from services.core.units import ms, seconds


def test_the_defaults_are_the_fields_but_for_the_wait_without_endpoints() -> None:
    settings = FlowControlSettings()
    assert (settings.band(0).max_requests, settings.band(-1).max_bytes) == (5000, 1_000_000_000)
    assert settings.default_request_ttl == seconds(60)
    assert settings.no_endpoint_request_ttl == 0
    assert (settings.max_requests, settings.max_bytes, settings.enable_eviction) == (None, None, False)


def test_a_band_has_its_own_settings_or_the_default_of_its_sign() -> None:
    up, down, own = BandSettings(1), BandSettings(2), BandSettings(3)
    settings = FlowControlSettings(
        default_priority_band=up, default_negative_priority_band=down, priority_bands={-5: own}
    )
    assert [settings.band(priority) for priority in (7, 0, -1, -5)] == [up, up, down, own]


def test_f190_the_least_of_all_ttls_is_the_one_that_holds() -> None:
    settings = FlowControlSettings(
        priority_bands={1: BandSettings(ttl=seconds(5)), 2: BandSettings(ttl=seconds(300))}
    )
    assert [settings.ttl(priority) for priority in (0, 1, 2)] == [seconds(60), seconds(5), seconds(60)]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"max_requests": 0}, "maxRequests and maxBytes"),
        ({"max_bytes": 0}, "maxRequests and maxBytes"),
        ({"ttl": ms(0)}, "ttl"),
    ],
)
def test_a_band_that_could_hold_nothing_is_refused(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        BandSettings(**fields)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"max_requests": 0}, "maxRequests"),
        ({"max_bytes": 0}, "maxBytes"),
        ({"default_request_ttl": ms(0)}, "defaultRequestTTL"),
        ({"no_endpoint_request_ttl": ms(-1)}, "noEndpointRequestTTL"),
    ],
)
def test_settings_under_which_nothing_could_wait_are_refused(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        FlowControlSettings(**fields)
