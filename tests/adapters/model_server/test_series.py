"""What series add up to: one senseless value makes the whole unknown, and order means nothing."""

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.adapters.model_server.exposition import Selection
from services.adapters.model_server.series import (
    MAX_SAMPLES,
    TOTAL_MAX,
    VALUE_MAX,
    Series,
    collect,
    counted,
    from_label,
    having,
    histogram,
    largest_per,
    maximum,
    missing,
    total,
    values_of,
    whole,
    whole_maximum,
)
from services.core.pods.reading import BucketCounts

SUMS: tuple[Callable[[Series], float | None], ...] = (total, maximum, whole_maximum, counted)


def series(*values: float) -> Series:
    return [({"rank": str(rank)}, value) for rank, value in enumerate(values)]


def test_sums_and_maxima() -> None:
    assert (total(series(1, 2)), counted(series(1, 2.5)), maximum(series(0.1, 0.9))) == (3, 3.5, 0.9)
    assert whole_maximum(series(16, 16)) == 16


@pytest.mark.parametrize("of", SUMS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e300])
def test_one_value_without_sense_makes_the_whole_unknown(
    of: Callable[[Series], float | None], value: float
) -> None:
    assert of(()) is None
    assert of(series(1, value, 2)) is None


def test_the_largest_numbers_that_make_sense() -> None:
    assert total(series(VALUE_MAX)) == VALUE_MAX
    assert total(series(VALUE_MAX * 2)) is None
    assert counted(series(TOTAL_MAX)) == TOTAL_MAX
    assert counted(series(TOTAL_MAX * 2)) is None


def test_gauges_of_one_family_are_told_apart_by_a_label() -> None:
    family: Series = [({"type": "max"}, 9.0), ({"type": "used"}, 4.0), ({}, 1.0)]
    assert having(family, "type", "used") == [({"type": "used"}, 4.0)]
    assert values_of(family, "type") == {"max", "used"}


def test_ranks_that_repeat_one_scheduler_count_once() -> None:
    ranks: Series = [
        ({"dp": "0", "tp": "0"}, 3.0),
        ({"dp": "0", "tp": "1"}, 4.0),
        ({"dp": "1", "tp": "2"}, 5.0),
        ({"tp": "3"}, 1.0),
    ]
    assert sorted(value for _, value in largest_per(ranks, ("dp",))) == [1.0, 4.0, 5.0]
    assert total(largest_per([*ranks, ({"dp": "0"}, math.nan)], ("dp",))) is None


def test_numbers_in_labels() -> None:
    assert total(from_label([({"n": "3"}, 1.0), ({"n": "4"}, 1.0)], "n")) == 7
    assert total(from_label([({"n": "3"}, 1.0), ({"n": "None"}, 1.0)], "n")) is None
    assert [whole(text) for text in ("12", "0", "-1", "1.5", "", "9" * 13, None)] == [12, 0, *[None] * 5]


def test_what_is_missing_is_named() -> None:
    assert missing((("a", 0), ("b", None), ("c", 0.0))) == ("b",)


def test_a_histogram_in_milliseconds_has_bounds_in_seconds() -> None:
    buckets: Series = [({"le": "+Inf"}, 3.0), ({"le": "500"}, 2.0)]
    assert histogram(buckets, 1000.0) == BucketCounts((0.5, math.inf), (2.0, 3.0))
    assert histogram(buckets[1:], 1000.0) is None
    assert histogram(()) is None
    assert histogram([({"le": "NaN"}, 1.0), *buckets]) is None
    assert histogram([({"le": "0.1"}, math.nan), *buckets]) is None


def test_a_page_with_more_samples_than_a_server_has_is_refused_whole() -> None:
    selection = Selection("a_", ("a_x",))
    page = b"".join(b'a_x{rank="%d"} 1\n' % rank for rank in range(MAX_SAMPLES))
    assert len(collect(selection, page)["a_x"]) == MAX_SAMPLES
    assert collect(selection, page + b"a_x 1\n") == {}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(allow_nan=False)), min_size=1), st.randoms())
def test_order_means_nothing(values: list[tuple[str, float]], random: Random) -> None:
    """Invariant: every sum of a family is the same for each order of its series."""
    ordered: Series = [({"rank": rank}, value) for rank, value in values]
    shuffled = list(ordered)
    random.shuffle(shuffled)
    for of in SUMS:
        assert of(shuffled) == of(ordered)
        assert of(largest_per(shuffled, ("rank",))) == of(largest_per(ordered, ("rank",)))
