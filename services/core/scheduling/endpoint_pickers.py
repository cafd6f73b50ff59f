"""Pickers of tier 1: one endpoint and its ordered fallbacks, after the profile's filters.

Nothing is random: a request's points stand in for chance, so the same request before the same endpoints goes to
the same one, and distinct requests spread as chance would. Round robin goes by a count of picks that the caller
keeps.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.core.outcomes import DropReason
from services.core.scheduling.board import Board
from services.core.scheduling.draws import WORD_BITS, DrawTable
from services.core.scheduling.endpoints import Arrival
from services.core.scheduling.pickers import Choice
from services.core.scheduling.profile import Picker, SchedulingProfile


def pick_endpoint(
    board: Board, arrival: Arrival, profile: SchedulingProfile, points: Sequence[int], turn: int
) -> Choice | DropReason:
    """Return the choice, or the reason of the filter that left nobody. `board` has at least one endpoint."""
    spare: tuple[Board, Arrival] | None = None
    for number, each in enumerate(profile.filters):
        before = board, arrival
        board, arrival = filtered(board, arrival, number)
        if not board.endpoints.ids:
            return each.reason
        if each.binding:
            # What only prefers leaves out endpoints that may still serve as fallbacks; what binds does not.
            spare = spare and filtered(*spare, number)
        elif spare is None and board is not before[0]:
            spare = before
    places = _order(board, arrival, profile, points, turn)
    ids = board.endpoints.ids
    names = [ids[place] for place in places]
    if spare is not None and len(names) <= profile.fallbacks:
        wider = spare[0].endpoints.ids
        more = (wider[place] for place in _order(*spare, profile, points, turn))
        names.extend([name for name in more if name not in names])
    return Choice(names[0], tuple(names[1 : profile.fallbacks + 1]))


class Told(NamedTuple):
    """What an explanation says of one endpoint: its scores, or the name of the filter that left it out."""

    scores: tuple[tuple[str, float], ...] = ()
    left_out_by: str = ""


UNTOLD = Told()


def tell(board: Board, arrival: Arrival, profile: SchedulingProfile) -> Mapping[str, Told]:
    """Return what became of each endpoint of `board` under the profile's filters and scorers."""
    told: dict[str, Told] = {}
    for number, each in enumerate(profile.filters):
        before = board.endpoints.ids
        board, arrival = filtered(board, arrival, number)
        told |= dict.fromkeys(set(before).difference(board.endpoints.ids), Told(left_out_by=each.name))
    told |= {name: Told(parts) for name, parts in zip(board.endpoints.ids, board.parts(arrival), strict=True)}
    return told


def filtered(board: Board, arrival: Arrival, number: int) -> tuple[Board, Arrival]:
    """Return the board that the profile's filter of that number leaves, and the request before it."""
    places = board.filters[number](arrival)
    if places is None:
        return board, arrival
    narrower = board.narrow(places)
    return narrower, arrival if narrower is board else arrival.before(narrower.endpoints)


def _order(
    board: Board, arrival: Arrival, profile: SchedulingProfile, points: Sequence[int], turn: int
) -> list[int]:
    """Return the places of the target and its fallbacks, at least one."""
    picker = profile.picker
    size = len(board.endpoints)
    count = min(size, profile.fallbacks + 1)
    if size == 1:
        return [0]
    if picker is Picker.MAX_SCORE:
        return best_first(board.totals(arrival), points[1], count)
    if picker is Picker.LEAST_OUTSTANDING:
        return best_first([-load for load in arrival.outstanding], points[1], count)
    if picker is Picker.ROUND_ROBIN:
        start = turn % size
        return [(start + step) % size for step in range(count)]
    if picker is Picker.WEIGHTED_RANDOM:
        return _weighted(board, board.totals(arrival), points, count)
    return _drawn(list(range(size)), points, count)


def best_first(scores: Sequence[float], word: int, count: int) -> list[int]:
    """Return the `count` places of the best scores, best first; among equals the request's point goes first."""
    places = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    best = scores[places[0]]
    if len(places) > 1 and scores[places[1]] == best:
        # Rotating those that tie is even among them; rotating all would favour whoever follows a worse one.
        ties = [place for place in places if scores[place] == best]
        start = word % len(ties)
        places[: len(ties)] = [*ties[start:], *ties[:start]]
    return places[:count]


def _weighted(board: Board, totals: Sequence[float], points: Sequence[int], count: int) -> list[int]:
    """Draw by score without replacement, which is what A-Res samples; nobody scores 0 and is drawn.

    When everybody scores 0 the scores tell nothing, and all are equal.
    """
    endpoints = board.endpoints
    taken: list[str] = []
    DrawTable(list(zip(endpoints.ids, totals, strict=True))).draw_more(points[1 : count + 1], taken)
    if not taken:
        return _drawn(list(range(len(endpoints))), points, count)
    return [endpoints.index[name] for name in taken]


def _drawn(places: list[int], points: Sequence[int], count: int) -> list[int]:
    return [places.pop((word * len(places)) >> WORD_BITS) for word in points[1 : count + 1]]
