"""Doors stay on loopback while they speak plain text."""

import pytest

from services.wire.config.listeners import Listener, MetricsDoor, check_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_is_fine(host: str) -> None:
    check_loopback([Listener(host=host), MetricsDoor()])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_anything_else_is_refused_by_name(host: str) -> None:
    with pytest.raises(ValueError, match="insecure_bind"):
        check_loopback([Listener(), Listener(host=host)])
