"""Pickers: one target and its ordered fallbacks out of the eligible candidates.

`weighted_draw` (tier 2) draws without replacement from a plan's tables, so that the retries
of a failed cluster spread as its traffic did; `max_score` (tier 1) takes the best score.
All fallbacks are members of the same plan, hence inside residency. Nothing is random: points
come from the request id.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Choice:
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
    passed_over: list[str] = []
    target: str | None = None
    trial = False
    near = plan.near
    if plan.trial_point and (points[7] < plan.trial_point or not near):
        target = _trial(plan.trials, points[6], excluded, tried, may_try, passed_over)
        trial = target is not None
    if target is None and near:
        target = near[0].draw(points[0])
        if target in excluded or target in tried:
            passed_over.append(target)
            target = _next(near, points[1], [], excluded, tried)
    if target is None:
        return None
    taken = [target]
    for word in points[2 : 2 + NEAR_FALLBACKS]:
        name = _next(near, word, taken, excluded, tried)
        if name is None:
            return Choice(target, tuple(taken[1:]), tuple(passed_over), trial)
        taken.append(name)
    far = plan.far(regions[target])
    for word in points[2 + NEAR_FALLBACKS : 2 + FALLBACKS_MAX]:
        name = _next(far, word, taken, excluded, tried) or _next(near, word, taken, excluded, tried)
        if name is None:
            break
        taken.append(name)
    return Choice(target, tuple(taken[1:]), tuple(passed_over), trial)


def _next(
    tables: Sequence[DrawTable], word: int, taken: list[str], excluded: Excluded, tried: Collection[str]
) -> str | None:
    """Draw one that is not taken, excluded or tried, from the first table that has one left."""
    for table in tables:
        name = table.draw_without(word, taken)
        if name is not None and (name in excluded or name in tried):
            name = table.draw_without(word, {*taken, *excluded, *tried})
        if name is not None:
            return name
    return None


def _trial(
    trials: DrawTable,
    word: int,
    excluded: Excluded,
    tried: Collection[str],
    may_try: Callable[[str], bool],
    passed_over: list[str],
) -> str | None:
    """Draw a cluster on probation that has a trial free."""
    while (name := trials.draw_without(word, passed_over)) is not None:
        if name not in excluded and name not in tried and may_try(name):
            return name
        passed_over.append(name)
    return None


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
