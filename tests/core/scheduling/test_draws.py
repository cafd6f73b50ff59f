"""Draws: stable points, exact shares, and drawing without replacement."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.scheduling.draws import WORD_BITS, WORDS, DrawTable, fraction, words

LAST = (1 << WORD_BITS) - 1


def test_points_are_the_same_in_every_process() -> None:
    """The golden value pins the hash: a change would make recorded decisions unrepeatable."""
    points = words("01930000-0000-7000-8000-000000000000")
    assert len(points) == len(set(points)) == WORDS
    assert points[0] == 11425066119451453696


def test_a_fraction_lies_in_the_unit_interval() -> None:
    assert fraction(0) == 0.0
    assert 0.999 < fraction(LAST) < 1.0


def test_an_empty_table_draws_nothing() -> None:
    table = DrawTable([("a", 0.0), ("b", -1.0)])
    taken: list[str] = []
    table.draw_more((0, LAST), taken)
    assert (table.total, taken, table.share("a")) == (0, [], 0.0)


def test_shares_follow_weights_and_the_ends_of_the_range_are_drawn() -> None:
    table = DrawTable([("a", 1), ("none", 0), ("b", 3)])
    assert table.share("a") == pytest.approx(0.25)
    assert table.share("b") == pytest.approx(0.75)
    assert table.draw(0) == "a"
    assert table.draw(LAST) == "b"


def test_a_tiny_weight_still_has_a_share() -> None:
    assert DrawTable([("a", 1e-30), ("b", 1.0)]).draw(0) == "a"


def test_drawing_without_replacement_keeps_the_odds_of_those_left() -> None:
    """Of weights 5 : 3 : 2, with the first gone the other two are drawn 3 : 2."""
    table = DrawTable([("a", 5), ("b", 3), ("c", 2)])
    counts: Counter[str] = Counter()
    for number in range(4000):
        taken = ["a"]
        table.draw_more(words(f"request-{number}")[:1], taken)
        counts[taken[1]] += 1
    assert set(counts) == {"b", "c"}
    assert 0.57 < counts["b"] / 4000 < 0.63


@given(
    st.lists(st.floats(0.001, 1e6), min_size=1, max_size=12),
    st.lists(st.integers(0, LAST), min_size=15, max_size=15),
    st.sets(st.integers(0, 11)),
    st.integers(0, 11),
)
def test_every_candidate_left_is_drawn_exactly_once(
    weights: list[float], points: list[int], gone: set[int], first: int
) -> None:
    """Invariant: enough draws return every entry not in `without` once, and none that is."""
    names = [f"c{place}" for place in range(len(weights))]
    table = DrawTable(list(zip(names, weights, strict=True)))
    without = {f"c{place}" for place in gone}
    taken = [f"c{first}"]
    table.draw_more(points, taken, without)
    left = [name for name in names if name not in without and name != taken[0]]
    assert sorted(taken[1:]) == sorted(left)
