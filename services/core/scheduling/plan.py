"""Plans: where requests of one (model, residency, band) may go, worked out once per snapshot.

A plan holds the draw tables of tier 2, the members of tier 1, or the stage at which
nobody was left. Nothing here knows a request. Apart from the decision because this is the
slow work that a request must not pay for.

Priority levels are same region, same jurisdiction, other; a level's health is measured in
capacity (Envoy's priority load, factor 1.4), never in numbers of clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.core.failover.priority import level_health, levels_in_panic, priority_loads
from services.core.fleet import HealthState
from services.core.locality import Distance
from services.core.policy import HealthPolicy, RoutingPolicy
from services.core.residency import ResidencyRule
from services.core.scheduling.board import Board
from services.core.scheduling.draws import WORD_BITS, DrawTable
from services.core.scheduling.filters import Member, Stage, refused_at
from services.core.scheduling.profile import Picker, SchedulingProfile

TRIALS_AT_MOST = 0.5
"""However many clusters are on probation at once, half of the traffic stays with proven ones."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a plan depends on besides its members: the policies, the tier, the state of the fleet."""

    routing: RoutingPolicy
    health: HealthPolicy
    profile: SchedulingProfile
    fleet_alive: bool


class Plan:
    """Where a request may go.

    `members` are the eligible candidates; `near` their draw tables in order of preference (the table of
    the loaded levels, then one per level that carries no load now); `trials` the clusters on probation
    that are offered trials, tried for points below `trial_point`. `refused_at` is set when nobody is
    eligible: the furthest stage that anybody reached. `panic`: members are here although not alive.
    """

    __slots__ = (
        "_board",
        "_far",
        "_profile",
        "levels",
        "members",
        "near",
        "panic",
        "refused_at",
        "trial_point",
        "trials",
    )

    def __init__(
        self, members: Sequence[Member], furthest: Stage, profile: SchedulingProfile, *, panic: bool
    ) -> None:
        self.members = tuple(members)
        self._profile = profile
        self._board: Board | None = None
        self.refused_at: Stage | None = None if members else furthest
        self.panic = panic
        self.near: tuple[DrawTable, ...] = ()
        self.levels: dict[Distance, list[tuple[Member, float]]] = {}
        self.trials = DrawTable(())
        self.trial_point = 0
        self._far: dict[str, tuple[DrawTable, ...]] = {}

    @property
    def board(self) -> Board:
        """The members laid out for the profile's filters and scorers."""
        board = self._board
        if board is None:
            board = self._board = Board(self.members, self._profile, degraded=self.panic)
        return board

    def far(self, region: str) -> tuple[DrawTable, ...]:
        """Return draw tables, one per level, of the members outside `region`."""
        tables = self._far.get(region)
        if tables is None:
            outside = [
                DrawTable([(m.candidate.id, w) for m, w in entries if m.candidate.locality.region != region])
                for _, entries in sorted(self.levels.items())
            ]
            tables = self._far[region] = tuple(table for table in outside if table.total)
        return tables


def plan_for(
    members: Sequence[Member], rule: ResidencyRule, saturation_limit: float | None, conditions: Conditions
) -> Plan:
    """Filter `members` and lay out those left for the profile's picker."""
    eligible: list[Member] = []
    trials: list[Member] = []
    sick: list[Member] = []
    furthest = Stage.SERVES
    drawn = conditions.profile.picker is Picker.WEIGHTED_DRAW
    for member in members:
        stage = refused_at(member, rule, saturation_limit)
        if stage is None:
            on_trial = drawn and member.candidate.state is HealthState.PROBATION
            (trials if on_trial else eligible).append(member)
            continue
        furthest = max(furthest, stage)
        # A place that report and policy disagree on may lie anywhere: no panic revives it.
        candidate = member.candidate
        revivable = candidate.state in conditions.profile.revived and not candidate.policy_mismatch
        if stage is Stage.HEALTH and revivable:
            sick.append(member)
    panic = not eligible and not trials and bool(sick) and _may_panic(furthest, conditions)
    plan = Plan(sick if panic else [*eligible, *trials], furthest, conditions.profile, panic=panic)
    if drawn and plan.members:
        allowed = [member for member in members if rule.allows(member.candidate.locality)]
        _lay_out(plan, allowed, eligible, sick, conditions)
        _offer_trials(plan, trials, eligible, conditions.health)
    return plan


def _may_panic(furthest: Stage, conditions: Conditions) -> bool:
    if conditions.routing.fail_when_none_healthy or furthest is not Stage.HEALTH:
        return False
    return not (conditions.profile.panic_needs_dead_fleet and conditions.fleet_alive)


def _lay_out(
    plan: Plan,
    allowed: Sequence[Member],
    eligible: Sequence[Member],
    sick: Sequence[Member],
    conditions: Conditions,
) -> None:
    """Fill the plan's levels and draw tables from the priority loads."""
    routing = conditions.routing
    entries: dict[Distance, list[tuple[Member, float]]] = {level: [] for level in Distance}
    if plan.panic:
        # Health is not believed, so every one of them counts with its full capacity.
        for member in sick:
            entries[member.level].append((member, max(member.capacity, 1.0)))
    else:
        for member in eligible:
            entries[member.level].append((member, member.weight))
    totals = dict.fromkeys(Distance, 0.0)
    for member in allowed:
        totals[member.level] += member.capacity
    available = {level: sum(weight for _, weight in entries[level]) for level in Distance}
    healths = [level_health(available[level], totals[level], routing.overprovisioning) for level in Distance]
    shares = [available[level] / totals[level] if totals[level] else 0.0 for level in Distance]
    for level, panics in zip(
        Distance, levels_in_panic(healths, shares, routing.panic_threshold), strict=True
    ):
        if panics and entries[level]:
            both = [*(member for member, _ in entries[level]), *(m for m in sick if m.level is level)]
            entries[level] = [(member, max(member.capacity, 1.0)) for member in both]
    loads = priority_loads(healths)
    plan.levels = {level: entries[level] for level in Distance if entries[level]}
    if plan.levels and not any(loads[level] for level in plan.levels):
        # Too little is left to round to one percent of anything; the nearest of it carries what it can.
        loads[min(plan.levels)] = 1
    loaded: list[tuple[str, float]] = []
    reserves: list[DrawTable] = []
    for level, weighted in plan.levels.items():
        whole = sum(weight for _, weight in weighted)
        portions = [(member.candidate.id, weight / whole) for member, weight in weighted]
        if loads[level]:
            loaded.extend((name, loads[level] * portion) for name, portion in portions)
        else:
            reserves.append(DrawTable(portions))
    plan.near = (DrawTable(loaded), *reserves) if loaded else ()


def _offer_trials(
    plan: Plan, trials: Sequence[Member], eligible: Sequence[Member], health: HealthPolicy
) -> None:
    """Offer clusters on probation the larger of the probation share and the ramp's floor of a fair share.

    A cluster further away than any that carries load is not offered trials: its own routers try it,
    and here its probes speak for it. How many trials run at once is the caller's to bound.
    """
    first = plan.near[0] if plan.near else None
    reach = max(
        (m.level for m in eligible if first and m.candidate.id in first.index), default=Distance.OTHER
    )
    offered = [member for member in trials if member.level <= reach]
    capacity = sum(member.capacity for member in (*eligible, *offered))
    shares = [
        (
            member.candidate.id,
            max(health.probation_share, health.ramp_floor * member.capacity / capacity),
        )
        for member in offered
        if capacity > 0
    ]
    plan.trials = DrawTable(shares)
    share = min(TRIALS_AT_MOST, sum(share for _, share in shares))
    plan.trial_point = round(share * (1 << WORD_BITS))
