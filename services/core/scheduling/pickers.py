"""Pickers: one target and its ordered fallbacks out of the eligible candidates.

`weighted_draw` (tier 2) draws without replacement from a plan's tables, so that the retries
of a failed cluster spread as its traffic did; `max_score` (tier 1) takes the best score.
All fallbacks are members of the same plan, hence inside residency. Nothing is random: points
come from the request id.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from services.core.outcomes import DropReason
from services.core.scheduling.draws import DrawTable
from services.core.scheduling.filters import Member
from services.core.scheduling.plan import Plan
from services.core.scheduling.scorers import SCORERS, InFlight, fewest

Excluded = Mapping[str, DropReason]
"""Candidates that may not be chosen although the plan has them, with why (left since the snapshot)."""

NEAR_FALLBACKS = 2
FAR_FALLBACKS = 2
FALLBACKS_MAX = NEAR_FALLBACKS + FAR_FALLBACKS
"""Three attempts and one re-dispatch use a target and three fallbacks; the fourth is a spare. Half of
them lie in other regions than the target, because clusters of one region die together."""


class Choice(NamedTuple):
    """A picker's answer. `passed_over` met the draw but were excluded, tried, or had no trial free."""

    target: str
    fallbacks: tuple[str, ...]
    passed_over: tuple[str, ...] = ()
    trial: bool = False


def weighted_draw(
    plan: Plan,
    points: Sequence[int],
    regions: Mapping[str, str],
    excluded: Excluded,
    tried: Collection[str],
    may_try: Callable[[str], bool],
) -> Choice | None:
    """Draw a target from the plan's tables; None when nobody is left."""
    near = plan.near
    without: Collection[str] = {*excluded, *tried} if excluded or tried else ()
    if plan.trial_point and (points[7] < plan.trial_point or not near):
        trial = _trial(plan.trials, points[6], without, may_try)
        if trial.target:
            fallbacks = _fallbacks(trial.target, plan, points, regions, without)
            return Choice(trial.target, fallbacks, trial.passed_over, trial=True)
        passed_over = trial.passed_over
    else:
        passed_over = ()
    if not near:
        return None
    target = near[0].draw(points[0])
    if target in without:
        passed_over = (*passed_over, target)
        # A second point, because the first is known to lie among those that are gone.
        redrawn: list[str] = []
        for table in near:
            if not redrawn:
                table.draw_more(points[1:2], redrawn, without)
        if not redrawn:
            return None
        target = redrawn[0]
    return Choice(target, _fallbacks(target, plan, points, regions, without), passed_over)


def _fallbacks(
    target: str, plan: Plan, points: Sequence[int], regions: Mapping[str, str], without: Collection[str]
) -> tuple[str, ...]:
    """Return the fallbacks of `target`: near ones, then such outside its region, then whoever is left."""
    if len(plan.members) == 1:
        return ()
    taken = [target]
    _fill(plan.near, points, taken, 1 + NEAR_FALLBACKS, without)
    _fill(plan.far(regions[target]), points, taken, 1 + FALLBACKS_MAX, without)
    if len(taken) <= FALLBACKS_MAX:
        _fill(plan.near, points, taken, 1 + FALLBACKS_MAX, without)
    return tuple(taken[1:])


def _fill(
    tables: Sequence[DrawTable], points: Sequence[int], taken: list[str], size: int, without: Collection[str]
) -> None:
    """Draw from each table in order until `taken` has `size` members; each place has a point of its own."""
    for table in tables:
        have = len(taken)
        if have >= size:
            return
        table.draw_more(points[have + 1 : size + 1], taken, without)


def _trial(trials: DrawTable, word: int, without: Collection[str], may_try: Callable[[str], bool]) -> Choice:
    """Draw a cluster on probation that has a trial free; the target is empty when none has."""
    met: list[str] = []
    asked = 0
    while True:
        trials.draw_more((word,), met, without)
        if len(met) == asked:
            return Choice("", (), tuple(met))
        if may_try(met[asked]):
            return Choice(met[asked], (), tuple(met[:asked]), trial=True)
        asked += 1


def score(
    members: Sequence[Member], scorers: Sequence[tuple[str, float]], in_flight: InFlight, *, degraded: bool
) -> list[tuple[float, tuple[tuple[str, float], ...]]]:
    """Return for each member the weighted sum and each scorer's own score.

    `degraded`: all loads are old, so only what this process has itself in flight counts.
    """
    own = [in_flight.get(member.candidate.id, 0) for member in members]
    if degraded:
        return [(value, (("own_in_flight", value),)) for value in fewest(own)]
    loads = [member.load for member in members]
    columns = [(name, weight, SCORERS[name](loads, own)) for name, weight in scorers]
    return [
        (
            sum(weight * column[place] for _, weight, column in columns),
            tuple((name, column[place]) for name, _, column in columns),
        )
        for place in range(len(members))
    ]


def max_score(
    plan: Plan,
    word: int,
    scorers: Sequence[tuple[str, float]],
    in_flight: InFlight,
    excluded: Excluded,
    tried: Collection[str],
) -> Choice | None:
    """Take the best score; ties, and the order of equal fallbacks, go by the request's point."""
    members = [m for m in plan.members if m.candidate.id not in excluded and m.candidate.id not in tried]
    if not members:
        return None
    scores = [total for total, _ in score(members, scorers, in_flight, degraded=plan.panic)]
    best = max(scores)
    ties = [place for place, value in enumerate(scores) if value == best]
    start = word % len(ties)
    order = [*ties[start:], *ties[:start]]
    if len(order) <= FALLBACKS_MAX:
        rest = [place for place, value in enumerate(scores) if value != best]
        rest.sort(key=lambda place: -scores[place])
        order += rest
    names = [members[place].candidate.id for place in order[: FALLBACKS_MAX + 1]]
    return Choice(names[0], tuple(names[1:]))
