"""What one declared endpoint becomes: one candidate, or one for each data-parallel rank."""

import dataclasses

import pytest

from services.core.pods.discovered import DiscoveredEndpoint, StartPhase
from services.core.pods.table import Pod
from services.core.units import seconds


@pytest.mark.parametrize(
    ("address", "ports", "ranks"),
    [
        ("10.0.0.1", (8000,), [("pod", "10.0.0.1:8000")]),
        ("fd00::1", (8000,), [("pod", "[fd00::1]:8000")]),
        ("", (8000,), [("pod", "")]),
        ("10.0.0.1", (8000, 8001), [("pod-rank-0", "10.0.0.1:8000"), ("pod-rank-1", "10.0.0.1:8001")]),
        ("", (8000, 8001), [("pod-rank-0", ""), ("pod-rank-1", "")]),
    ],
)
def test_each_port_is_a_candidate_of_its_own(
    address: str, ports: tuple[int, ...], ranks: list[tuple[str, str]]
) -> None:
    assert [*DiscoveredEndpoint("pod", address, ports).ranks()] == ranks


def test_the_time_spent_in_a_phase_is_no_difference() -> None:
    first = DiscoveredEndpoint("pod", "a", (1,), phase=StartPhase.LOADING, phase_age=seconds(1))
    assert first == dataclasses.replace(first, phase_age=seconds(2))
    assert first != dataclasses.replace(first, phase=StartPhase.READY)


def test_all_that_is_declared_has_a_field_in_the_pods_row() -> None:
    declared = DiscoveredEndpoint("pod", "a", (1,)).declared()
    assert declared.keys() <= {field.name for field in dataclasses.fields(Pod)}
