"""The board: static columns summed once, live ones per arrival, narrower boards kept within bounds."""

from dataclasses import dataclass

import pytest

from services.core.fleet import LoadReport
from services.core.scheduling import board as board_module
from services.core.scheduling.board import Board
from services.core.scheduling.endpoint_filters import SessionPin
from services.core.scheduling.endpoints import Arrival, Endpoints
from services.core.scheduling.profile import ENDPOINTS, Weighted, endpoint_profile
from services.core.scheduling.scorers.affinity import ColdSpread, Prefix
from services.core.scheduling.scorers.load import ActiveRequests, KvUse, LoadAware, Queue, Running, TokenLoad
from services.core.scheduling.scorers.scorer import Column
from services.core.scheduling.signals import Signals
from tests.core.scheduling.pods import arrive, members, pod

PODS = (
    pod("a", LoadReport(waiting=0, running=1, kv_use=0.5)),
    pod("b", LoadReport(waiting=4, running=3, kv_use=0.1)),
    pod("c", LoadReport(waiting=2, running=2, kv_use=0.9)),
)
EVERYTHING = endpoint_profile(
    scorers=tuple(
        Weighted(scorer, weight)
        for scorer, weight in (
            (Queue(), 2.0),
            (KvUse(), 3.0),
            (Running(), 1.5),
            (LoadAware(), 1.0),
            (ActiveRequests(), 0.5),
            (TokenLoad(), 0.25),
            (Prefix(), 4.0),
            (ColdSpread(), 1.0),
        )
    )
)


def test_totals_are_the_weighted_sums_of_the_parts() -> None:
    board = Board(members(*PODS), EVERYTHING, degraded=False)
    for signals in (Signals({"a": 1, "b": 2}, total_blocks=4), Signals()):
        arrival = arrive(board.endpoints, signals, own={"a": 2}, tokens={"c": 9_000}, cold={"b": 1})
        weights = {weighted.name: weighted.weight for weighted in EVERYTHING.scorers}
        expected = [sum(weights[name] * score for name, score in row) for row in board.parts(arrival)]
        assert board.totals(arrival) == pytest.approx(expected)
        assert board.totals(arrival) == board.totals(arrival)


def test_a_scorer_with_nothing_to_say_is_not_among_the_parts() -> None:
    board = Board(members(*PODS), ENDPOINTS, degraded=False)
    assert [[name for name, _ in row] for row in board.parts(arrive(board.endpoints))] == [
        ["queue", "kv_use"]
    ] * 3


def test_with_all_metrics_old_own_requests_alone_are_scored() -> None:
    board = Board(members(*PODS), EVERYTHING, degraded=True)
    arrival = arrive(board.endpoints, own={"a": 2, "b": 1})
    assert board.totals(arrival) == pytest.approx([0.0, 0.5, 1.0])
    assert board.parts(arrival)[0] == (("own_in_flight", 0.0),)


def test_a_narrower_board_compares_those_left_and_is_made_once() -> None:
    board = Board(members(*PODS), endpoint_profile(scorers=(Weighted(Queue()),)), degraded=False)
    narrower = board.narrow([0, 2])
    assert narrower.endpoints.ids == ("a", "c")
    assert narrower.totals(arrive(narrower.endpoints)) == pytest.approx([1.0, 0.0])
    assert board.narrow((0, 2)) is narrower
    assert board.narrow([0, 1, 2]) is board


def test_no_session_can_fill_the_memory_with_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "NARROWER_MAX", 2)
    board = Board(members(*PODS), ENDPOINTS, degraded=False)
    for place in (0, 1, 2, 0, 1):
        assert board.narrow([place]).endpoints.ids == (board.endpoints.ids[place],)
        assert len(board._narrower) <= 2


def test_filters_are_laid_out_once() -> None:
    board = Board(members(*PODS), endpoint_profile(filters=(SessionPin(),)), degraded=False)
    assert board.filters is board.filters
    assert board.filters[0](arrive(board.endpoints, Signals(session="b"))) == (1,)


@dataclass(frozen=True, slots=True)
class Counted:
    """A scorer that notes how often it is laid out."""

    laid_out: list[int]
    name: str = "counted"

    def over(self, endpoints: Endpoints) -> Column:
        self.laid_out.append(len(endpoints))
        return [0.0] * len(endpoints)


def test_columns_that_no_request_changes_are_computed_once() -> None:
    counted = Counted([])
    board = Board(members(*PODS), endpoint_profile(scorers=(Weighted(counted),)), degraded=False)
    arrivals: list[Arrival] = [arrive(board.endpoints) for _ in range(3)]
    assert [board.totals(arrival) for arrival in arrivals] == [[0.0] * 3] * 3
    assert counted.laid_out == [3]
