"""Scorers of load: the field's formulas, own requests counted in, unknown loads at the mean."""

from collections.abc import Mapping, Sequence

import pytest

from services.core.fleet import LoadReport
from services.core.scheduling.endpoints import Endpoints
from services.core.scheduling.scorers.load import (
    ActiveRequests,
    KvUse,
    LoadAware,
    OwnRequests,
    Queue,
    Running,
    TokenLoad,
)
from services.core.scheduling.scorers.scorer import Scorer, dense
from tests.core.scheduling.pods import arrive, loaded


def scores(
    scorer: Scorer,
    before: Endpoints,
    own: Mapping[str, int] | None = None,
    tokens: Mapping[str, int] | None = None,
) -> Sequence[float]:
    laid_out = scorer.over(before)
    found = laid_out(arrive(before, own=own, tokens=tokens)) if callable(laid_out) else laid_out
    assert found is not None
    return dense(found, len(before))


@pytest.mark.parametrize("scorer", [Queue(), Running()])
@pytest.mark.parametrize(
    ("counts", "own", "expected"),
    [
        ([3, 0, 10], {}, [0.7, 1.0, 0.0]),
        ([5, 5], {}, [1.0, 1.0]),
        ([2, 4, None], {"p2": 9}, [1.0, 0.0, 0.5]),
        ([2, 4, None], {"p0": 4, "p2": 9}, [0.0, 1.0, 0.5]),
        ([2, 4], {"p0": 6}, [0.0, 1.0]),
        ([0, 0], {"p0": -1}, [1.0, 1.0]),
        ([0, 4, None], {"p0": -1}, [1.0, 0.0, 0.5]),
        ([None, None, None], {"p0": 2, "p1": 1}, [0.0, 0.5, 1.0]),
    ],
)
def test_fewest_waiting_or_running_is_best(
    scorer: Scorer, counts: list[float | None], own: dict[str, int], expected: list[float]
) -> None:
    before = loaded(*[LoadReport(waiting=count, running=count) for count in counts])
    assert scores(scorer, before, own) == pytest.approx(expected)


def test_each_count_is_read_from_its_own_field() -> None:
    before = loaded(LoadReport(waiting=0, running=9), LoadReport(waiting=9, running=0))
    assert scores(Queue(), before) == pytest.approx([1.0, 0.0])
    assert scores(Running(), before) == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        ([0.0, 0.25, 1.0], [1.0, 0.75, 0.0]),
        ([0.2, None, 0.6], [0.8, 0.6, 0.4]),
        ([None], [1.0]),
        ([1.7, -0.5], [0.0, 1.0]),
    ],
)
def test_kv_use_scores_the_free_share_and_ignores_own_requests(
    uses: list[float | None], expected: list[float]
) -> None:
    before = loaded(*[LoadReport(kv_use=use) for use in uses])
    assert scores(KvUse(), before, {"p0": 50}) == pytest.approx(expected)


def test_own_requests_alone() -> None:
    before = loaded(LoadReport(waiting=99), LoadReport(waiting=0))
    assert scores(OwnRequests(), before, {"p1": 1}) == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize(
    ("waiting", "own", "expected"),
    [
        ([0, 64, 128, 500], {}, [0.5, 0.25, 0.0, 0.0]),
        ([0, 32], {"p0": 32, "p1": -90}, [0.375, 0.5]),
        ([0, None, 64], {"p1": 7}, [0.5, 0.375, 0.25]),
        ([None, None], {"p0": 64}, [0.25, 0.5]),
    ],
)
def test_load_aware_gives_half_a_point_for_an_empty_queue(
    waiting: list[float | None], own: dict[str, int], expected: list[float]
) -> None:
    before = loaded(*[LoadReport(waiting=count) for count in waiting])
    assert scores(LoadAware(), before, own) == pytest.approx(expected)
    with pytest.raises(ValueError, match="threshold"):
        LoadAware(threshold=0)


@pytest.mark.parametrize(
    ("scorer", "counts", "expected"),
    [
        (ActiveRequests(), [0, 2, 8], [1.0, 0.75, 0.0]),
        (ActiveRequests(), [0, 0], [1.0, 1.0]),
        (ActiveRequests(idle=2), [0, 2, 8], [1.0, 1.0, 0.0]),
        (ActiveRequests(busy_score=0.5), [0, 4, 8], [1.0, 0.25, 0.0]),
        (ActiveRequests(), [-1, 4], [1.0, 0.0]),
    ],
)
def test_active_requests(scorer: ActiveRequests, counts: list[int], expected: list[float]) -> None:
    before = loaded(*[LoadReport(running=0)] * len(counts))
    own = {f"p{number}": count for number, count in enumerate(counts)}
    assert scores(scorer, before, own) == pytest.approx(expected)


@pytest.mark.parametrize("fields", [{"idle": -1}, {"busy_score": 1.5}])
def test_active_requests_is_valid_from_birth(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="idle: must not be negative; busy_score"):
        ActiveRequests(**fields)  # type: ignore[arg-type] # One field each, of either type.


def test_token_load_counts_own_prompt_tokens() -> None:
    before = loaded(LoadReport(), LoadReport(), LoadReport())
    assert scores(TokenLoad(), before, tokens={"p1": 1_048_576, "p2": 4_194_304}) == pytest.approx(
        [1.0, 0.75, 0.0]
    )
    assert scores(TokenLoad(100), before, tokens={"p0": 50, "p2": 900}) == pytest.approx([0.5, 1.0, 0.0])
    with pytest.raises(ValueError, match="full_tokens"):
        TokenLoad(0)
