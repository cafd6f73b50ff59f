"""Subset hints: who is allowed, in every spelling a gateway may send."""

import pytest

from services.wire.ext_proc.subset import read_subset


@pytest.mark.parametrize(
    ("hint", "allowed", "others"),
    [
        (["10.0.0.1:8000"], ["10.0.0.1:8000"], ["10.0.0.1:8001", "10.0.0.10:8000"]),
        (["10.0.0.1"], ["10.0.0.1:8000", "10.0.0.1:8001"], ["10.0.0.10:8000"]),
        (["10.0.0.1:8000", "10.0.0.2"], ["10.0.0.1:8000", "10.0.0.2:9"], ["10.0.0.1:9"]),
        ([" 10.0.0.1:1 ,10.0.0.2:2", "10.0.0.3"], ["10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:3"], []),
        (["[2001:db8::1]:8000"], ["[2001:db8::1]:8000"], ["[2001:db8::1]:8001"]),
        (["2001:DB8:0::1"], ["[2001:db8::1]:8000"], ["[2001:db8::2]:8000"]),
        (["[2001:db8::1]"], ["[2001:db8::1]:8000"], []),
        (["[2001:DB8:0::1]:8000"], ["[2001:db8::1]:8000"], []),
        (["pod-0.pods:8000", "pod-1.pods"], ["pod-0.pods:8000", "pod-1.pods:1"], ["pod-0.pods:1"]),
        ([], [], ["10.0.0.1:8000"]),
        (["", " , "], [], ["10.0.0.1:8000"]),
        (["10.0.0.1:x", "10.0.0.1:", ":8000", "10.0.0.1:123456"], [], ["10.0.0.1:8000"]),
    ],
)
def test_who_is_allowed(hint: list[str], allowed: list[str], others: list[str]) -> None:
    subset = read_subset(hint)
    assert all(subset.holds(address) for address in allowed)
    assert not any(subset.holds(address) for address in others)
