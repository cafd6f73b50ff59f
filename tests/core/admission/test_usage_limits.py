"""Ceilings per priority: static, held back for higher ones, and soft."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.admission.usage_limits import (
    Domain,
    PriorityHoldback,
    Rung,
    SoftReflectiveCeiling,
    StaticLimit,
    UsageLimit,
)

TEN, ZERO, MINUS = Rung(10, 0, 3, 10, -10), Rung(8, 1, 3, 10, -10), Rung(-10, 2, 3, 10, -10)
ALONE = Rung(0, 0, 1, 0, 0)


def test_a_static_limit_is_the_same_for_all_and_nothing_passes_it() -> None:
    limit = StaticLimit(0.9)
    assert {limit.ceiling(rung, 0.5) for rung in (TEN, ZERO, MINUS)} == {0.9}
    assert limit.period(0.5) is None


def test_a_holdback_by_rank_falls_evenly_from_place_to_place() -> None:
    limit = PriorityHoldback(0.5, 1.0)
    assert [limit.ceiling(rung, 0.5) for rung in (TEN, ZERO, MINUS)] == [1.0, 0.75, 0.5]
    assert limit.period(0.5) is None


def test_a_holdback_by_value_follows_the_distance_between_priorities() -> None:
    limit = PriorityHoldback(0.5, 1.0, Domain.VALUE)
    assert [limit.ceiling(rung, 0.5) for rung in (TEN, ZERO, MINUS)] == pytest.approx([1.0, 0.95, 0.5])


def test_the_only_priority_has_the_highest_ceiling() -> None:
    assert PriorityHoldback(0.5, 0.9).ceiling(ALONE, 0.5) == 0.9
    assert SoftReflectiveCeiling().ceiling(ALONE, 0.5) == 1.0


def test_a_soft_ceiling_falls_with_saturation_and_leaves_some_turns() -> None:
    limit = SoftReflectiveCeiling()
    assert [limit.ceiling(rung, 0.8) for rung in (TEN, ZERO, MINUS)] == pytest.approx([1.0, 0.6, 0.2])
    assert [limit.period(saturation) for saturation in (0.1, 0.5, 0.8, 0.9)] == [1, 1, 4, 9]
    assert limit.period(1.0) is None


@given(
    st.sampled_from(
        [
            StaticLimit(),
            PriorityHoldback(0.3),
            PriorityHoldback(0.3, 0.8, Domain.VALUE),
            SoftReflectiveCeiling(),
        ]
    ),
    st.lists(st.integers(-100, 100), min_size=2, max_size=6, unique=True),
    st.floats(0, 3),
)
def test_a_lower_priority_never_has_a_higher_ceiling(
    limit: UsageLimit, priorities: list[int], saturation: float
) -> None:
    """Ceilings fall with priority: a blocked band has no open one below it."""
    known = sorted(priorities, reverse=True)
    ceilings = [
        limit.ceiling(Rung(priority, rank, len(known), known[0], known[-1]), saturation)
        for rank, priority in enumerate(known)
    ]
    assert ceilings == sorted(ceilings, reverse=True)


def test_ceilings_that_admit_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="threshold"):
        StaticLimit(0)
    for low, high in ((0.0, 1.0), (0.9, 0.8)):
        with pytest.raises(ValueError, match="minCeiling"):
            PriorityHoldback(low, high)
