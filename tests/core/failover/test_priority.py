"""Envoy's documented tables are the golden vectors (docs: priority levels, panic threshold)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.failover.priority import level_health, levels_in_panic, priority_loads

FACTOR = 1.4


def loads(*healthy_percent: float) -> list[int]:
    return priority_loads([level_health(percent, 100, FACTOR) for percent in healthy_percent])


@pytest.mark.parametrize(
    ("healthy", "expected"),
    [
        ((100, 100), [100, 0]),
        ((72, 100), [100, 0]),
        ((71, 100), [99, 1]),
        ((50, 100), [70, 30]),
        ((25, 100), [35, 65]),
        ((0, 100), [0, 100]),
        ((25, 25), [50, 50]),
        ((5, 65), [7, 93]),
        ((25, 25, 20), [36, 36, 28]),
    ],
)
def test_loads_follow_envoys_table(healthy: tuple[float, ...], expected: list[int]) -> None:
    assert loads(*healthy) == expected


def test_what_rounding_leaves_over_goes_to_the_first_loaded_level() -> None:
    assert priority_loads([0, 20, 20, 20]) == [0, 34, 33, 33]


def test_no_health_is_no_load() -> None:
    assert priority_loads([0, 0]) == [0, 0]
    assert priority_loads([]) == []
    assert level_health(0, 0, FACTOR) == 0


@pytest.mark.parametrize(
    ("healthy", "threshold", "expected"),
    [
        ((25, 25), 0.5, [True, True]),
        ((5, 65), 0.5, [True, False]),
        ((72, 0), 0.5, [False, False]),
        ((25, 25), 0.0, [False, False]),
    ],
)
def test_panic_follows_envoys_table(
    healthy: tuple[float, ...], threshold: float, expected: list[bool]
) -> None:
    healths = [level_health(percent, 100, FACTOR) for percent in healthy]
    assert levels_in_panic(healths, [percent / 100 for percent in healthy], threshold) == expected


@given(st.lists(st.integers(0, 100), min_size=1, max_size=6))
def test_loads_sum_to_100(healths: list[int]) -> None:
    """Invariant: loads sum to 100 if any level has health, else to 0; a level without health gets none."""
    result = priority_loads(healths)
    assert sum(result) == (100 if any(healths) else 0)
    assert all(load >= 0 for load in result)
    assert all(load == 0 for load, health in zip(result, healths, strict=True) if health == 0)
