"""The scenery of measured picks: every scorer speaks, nobody is refused, and a refusal is no figure."""

from dataclasses import fields

import pytest

from services.core.inference import ModelName
from services.core.locality import Jurisdiction, Locality, Region
from services.core.pods.report import PoolSpec
from services.core.pods.table import PodTable
from services.core.scheduling.board import Board
from services.core.scheduling.endpoints import Arrival
from services.core.scheduling.profile import ENDPOINTS, SchedulingProfile
from services.core.units import Instant
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.pick import LocalScheduler
from services.worlds import bench_picker_picks as module
from services.worlds.bench_http import BenchError
from services.worlds.bench_picker_picks import (
    ALL_SCORERS,
    BLOCKS,
    MATCHED,
    PickOptions,
    pick_us,
    request_of,
    run,
    signals_of,
    table_of,
)
from services.worlds.bench_picker_stage import MODEL, POOL


def test_every_scorer_is_on_and_tells_pods_apart() -> None:
    table = table_of(30)
    specs = (PoolSpec(POOL, (ModelName(MODEL),)),)
    here = Locality(Region("bench"), Jurisdiction("bench"))
    scheduler = LocalScheduler(table, specs, here, Counters(), ALL_SCORERS)
    prepared = scheduler._current(POOL, Instant(10**9))
    request = request_of(1)
    board: Board = prepared.plan(request.model, request.residency, sheddable=False).board
    told = board.parts(Arrival(board.endpoints, signals_of(1, 30), {"pod-1": 3}, {"pod-2": 9}, {"pod-4": 1}))
    columns = {name: {dict(row)[name] for row in told} for name, _ in told[0]}
    assert set(columns) == {weighted.name for weighted in ALL_SCORERS.scorers}
    assert [name for name, scores in columns.items() if len(scores) == 1] == ["cold_spread"]
    assert len(board.endpoints) == 30


def test_signals_name_pods_that_exist_and_have_one_of_every_kind() -> None:
    signals = signals_of(7, 20)
    assert len(signals.matched) == MATCHED
    assert set(signals.matched) <= {f"pod-{number}" for number in range(20)}
    assert max(signals.matched.values()) == BLOCKS
    assert all(getattr(signals, each.name) for each in fields(signals))


@pytest.mark.parametrize("profile", [ALL_SCORERS, ENDPOINTS])
def test_picks_are_timed_one_by_one_without_the_warming_tenth(profile: SchedulingProfile) -> None:
    spans = pick_us(profile, PickOptions(pods=20, picks=100))
    assert len(spans) == 90
    assert all(span > 0 for span in spans)


def test_a_pool_that_refuses_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def draining(count: int) -> PodTable:
        table = table_of(count)
        for pod in table:
            pod.draining = True
        table.tick(Instant(0))
        return table

    monkeypatch.setattr(module, "table_of", draining)
    with pytest.raises(BenchError, match="a pick was refused"):
        pick_us(ENDPOINTS, PickOptions(pods=2, picks=1))


def test_the_median_of_both_profiles_has_the_limit() -> None:
    lines: list[str] = []
    figures = {figure.name: figure for figure in run(PickOptions(pods=10, picks=40), lines.append)}
    assert {name: figure.reference for name, figure in figures.items() if figure.limited} == {
        "pick.all_scorers.10.median": 200.0,
        "pick.default.10.median": 200.0,
    }
    assert {figure.unit for figure in figures.values()} == {"us"}
    assert len(lines) == 2
