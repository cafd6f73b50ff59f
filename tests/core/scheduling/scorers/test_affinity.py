"""Scorers of affinity: the field's formulas, nothing said without a signal, no credit above the bound."""

from collections.abc import Mapping, Sequence

import pytest

from services.core.fleet import LoadReport
from services.core.scheduling.endpoints import Endpoints
from services.core.scheduling.scorers import affinity
from services.core.scheduling.scorers.affinity import ColdSpread, Lora, Prefix, Session, by_age, lora_score
from services.core.scheduling.scorers.scorer import Scorer, dense
from services.core.scheduling.signals import NO_SIGNALS, Signals
from tests.core.scheduling.pods import arrive, loaded

IDLE = LoadReport(waiting=0, running=0)
THREE = (IDLE, IDLE, IDLE)
FULL = LoadReport(waiting=0, running=50)


def scores(
    scorer: Scorer, before: Endpoints, signals: Signals, cold: Mapping[str, int] | None = None
) -> Sequence[float] | None:
    laid_out = scorer.over(before)
    assert callable(laid_out)
    found = laid_out(arrive(before, signals, cold=cold))
    return None if found is None else dense(found, len(before))


@pytest.mark.parametrize("scorer", [Prefix(), Prefix(0.5), Lora(), Session()])
def test_without_a_signal_nothing_is_said(scorer: Scorer) -> None:
    assert scores(scorer, loaded(*THREE), NO_SIGNALS) is None


def test_a_prefix_scores_the_share_that_is_cached() -> None:
    signals = Signals({"p0": 3, "p2": 12}, total_blocks=12, block_tokens=64)
    assert scores(Prefix(), loaded(*THREE), signals) == pytest.approx([0.25, 0.0, 1.0])


def test_a_prefix_may_count_by_its_length_too() -> None:
    """w min(1, tokens / scale)^2 + (1 - w) share: 32 of 64 blocks of 64 tokens are 2048 of 4096."""
    signals = Signals({"p0": 32, "p1": 64}, total_blocks=64, block_tokens=64)
    found = scores(Prefix(0.4, 4096), loaded(*THREE), signals)
    assert found == pytest.approx([0.4 * 0.25 + 0.6 * 0.5, 1.0, 0.0])


def test_more_blocks_matched_than_asked_for_are_all_of_them() -> None:
    assert scores(Prefix(), loaded(*THREE), Signals({"p0": 9}, total_blocks=4)) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(("weight", "scale"), [(-0.1, 1), (1.1, 1), (0.5, 0)])
def test_a_prefix_scorer_is_valid_from_birth(weight: float, scale: int) -> None:
    with pytest.raises(ValueError, match="length_weight: must lie in"):
        Prefix(weight, scale)


A, B = frozenset("a"), frozenset("b")


@pytest.mark.parametrize(
    ("load", "score"),
    [
        (LoadReport(active_adapters=A, max_adapters=1), 1.0),
        (LoadReport(active_adapters=B, waiting_adapters=A, max_adapters=3), 0.8),
        (LoadReport(active_adapters=B, waiting_adapters=A, max_adapters=2), 0.6),
        (LoadReport(active_adapters=B, max_adapters=1), 0.0),
        (LoadReport(active_adapters=B, waiting_adapters=A, max_adapters=0), 0.6),
        (LoadReport(), 0.0),
    ],
)
def test_lora_affinity_in_the_fields_order(load: LoadReport, score: float) -> None:
    assert lora_score(load, "a") == score
    assert scores(Lora(), loaded(load), Signals(adapter="a")) == [score]


def test_columns_of_adapters_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "ADAPTERS_KEPT", 2)
    before = loaded(LoadReport(running=0, active_adapters=A))
    live = Lora().over(before)
    for name in ("b", "c", "d", "a", "a"):
        column = live(arrive(before, Signals(adapter=name)))
        assert column == [1.0 if name == "a" else 0.0]


def test_a_session_scores_its_endpoint_alone() -> None:
    assert scores(Session(), loaded(*THREE), Signals(session="p1")) == [0.0, 1.0, 0.0]
    assert scores(Session(), loaded(*THREE), Signals(session="gone")) is None


@pytest.mark.parametrize(
    ("scorer", "signals"),
    [
        (Prefix(), Signals({"p0": 4}, total_blocks=4)),
        (Prefix(0.5, 256), Signals({"p0": 4}, total_blocks=4, block_tokens=64)),
        (Session(), Signals(session="p0")),
        (Lora(), Signals(adapter="a")),
    ],
)
def test_above_the_bound_there_is_no_credit(scorer: Scorer, signals: Signals) -> None:
    warm = LoadReport(waiting=0, running=50, active_adapters=A)
    found = scores(scorer, loaded(warm, FULL, FULL), signals)
    assert found is not None
    assert found[0] == 1.0
    found = scores(scorer, loaded(warm, IDLE, IDLE), signals)
    assert found is None or found[0] == 0.0


def test_cold_requests_go_where_none_went_for_longest() -> None:
    cold = {"p0": 7, "p2": 3, "gone": 1}
    assert scores(ColdSpread(), loaded(*THREE), NO_SIGNALS, cold) == pytest.approx([0.0, 1.0, 0.5])
    assert scores(ColdSpread(), loaded(*THREE), Signals({"p1": 0}), cold) == pytest.approx([0.0, 1.0, 0.5])


def test_a_warm_request_leaves_the_order_of_cold_ones_alone() -> None:
    assert scores(ColdSpread(), loaded(*THREE), Signals({"p0": 1}, total_blocks=2), {"p0": 7}) == [0.5] * 3


def test_of_one_endpoint_there_is_no_order() -> None:
    assert by_age(loaded(IDLE), {"p0": 7}) == [1.0]
    assert by_age(loaded(IDLE, IDLE), {}) == [1.0, 1.0]
