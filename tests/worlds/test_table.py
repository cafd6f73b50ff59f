import io
from dataclasses import dataclass

import pytest
from rich.console import Console

from services.core.fleet import HealthState
from services.worlds.table import (
    ClusterRow,
    DoorRow,
    doors_caption,
    endpoints,
    flags,
    known_sum,
    plain_line,
    rich_table,
)


@dataclass(frozen=True)
class Pool:
    pool: str
    ready_endpoints: int
    total_endpoints: int


ROW = ClusterRow("eu-1", "eu-west", "eu", HealthState.PROBATION, ("draining",), 2, 3, 7, None, 120, 0.25)
DOOR = DoorRow("eu-west", 8080, 12, 3)


def test_a_pool_that_reports_two_names_of_one_model_counts_once() -> None:
    assert endpoints([Pool("a", 2, 3), Pool("a", 2, 3), Pool("b", 1, 1)]) == (3, 4)


@pytest.mark.parametrize(("values", "expected"), [([1, 2], 3), ([1, None], None), ([], None), ([0], 0)])
def test_a_sum_with_an_unknown_part_is_unknown(values: list[int | None], expected: int | None) -> None:
    assert known_sum(values) == expected


def test_only_flags_that_hold_are_named() -> None:
    assert flags(draining=False, ejected=True, mismatch=True) == ("ejected", "place disputed")
    assert flags(draining=False, ejected=False, mismatch=False) == ()


def test_the_table_shows_state_flags_and_what_is_not_known() -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(rich_table([ROW], doors_caption([DOOR])))
    text = out.getvalue()
    for word in ("eu-1", "probation draining", "2/3", "7", "-", "120", "25%"):
        assert word in text
    assert "requests: eu-west 12 (3 in flight)" in text


def test_the_plain_line_says_the_same() -> None:
    assert plain_line([ROW], [DOOR]) == "clusters eu-1=probation(2/3) requests eu-west:8080=12"
