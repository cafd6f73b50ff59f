"""The picker of tier 2: one cluster and its ordered fallbacks out of a plan's draw tables.

`weighted_draw` draws without replacement, so that the retries of a failed cluster spread as its
traffic did. All fallbacks are members of the same plan, hence inside residency. Nothing is
random: points come from the request id. Tier 1's pickers are in `endpoint_pickers`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from services.core.outcomes import DropReason
from services.core.scheduling.draws import DrawTable
from services.core.scheduling.plan import Plan

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
