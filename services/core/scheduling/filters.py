"""Filters: which candidates may serve a request, in the fixed order of the semantics.

serves the model -> residency -> drain -> health -> policy mismatch -> saturation for the band.
Whether the caller may use the model at all is asked before any candidate is looked at; who left
since the snapshot or was tried is the picker's to pass over. What a filter removes is never
scored. Apart from pickers, which choose among those that are left.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from services.core.fleet import Candidate, HealthState, LoadReport
from services.core.inference import ModelName
from services.core.locality import Distance
from services.core.outcomes import DropReason
from services.core.residency import ResidencyRule


class Stage(enum.IntEnum):
    """The filters in order. A refusal reports the furthest stage that any candidate reached."""

    SERVES = 0
    RESIDENCY = 1
    DRAIN = 2
    HEALTH = 3
    POLICY_MATCH = 4
    SATURATION = 5


REASONS: Mapping[Stage, DropReason] = {
    Stage.SERVES: DropReason.MODEL_NOT_FOUND,
    Stage.RESIDENCY: DropReason.RESIDENCY_UNSATISFIABLE,
    Stage.DRAIN: DropReason.DRAINED,
    Stage.HEALTH: DropReason.NO_HEALTHY_CLUSTER,
    Stage.POLICY_MATCH: DropReason.REPORT_POLICY_MISMATCH,
    Stage.SATURATION: DropReason.SATURATED,
}
"""What each filter says of one candidate it removes."""


@dataclass(frozen=True, slots=True)
class Member:
    """A candidate that serves the model, with what the plan needs of it.

    `capacity` is what it could carry with all endpoints ready, `weight` what it can carry now
    (capacity x ready share x ramp); both in concurrent requests, or in endpoints where no candidate
    says its capacity.
    """

    candidate: Candidate
    load: LoadReport
    level: Distance
    capacity: float
    weight: float


def serves(candidate: Candidate, model: ModelName) -> bool:
    """Whether the candidate is known to serve `model`."""
    return candidate.models is not None and model in candidate.models


def alive(candidate: Candidate) -> bool:
    """Whether the candidate's state lets traffic through; for PROBATION that means trials."""
    if candidate.ejected:
        return False
    state = candidate.state
    if state is HealthState.STALE:
        return candidate.probing_ok
    return state is not HealthState.UNKNOWN and state is not HealthState.UNHEALTHY


def refused_at(member: Member, rule: ResidencyRule, saturation_limit: float | None) -> Stage | None:
    """Return the first filter that removes a serving candidate, None when it is eligible.

    `saturation_limit` is the band's; None when the band is never refused for saturation. An unknown
    saturation refuses nobody.
    """
    candidate = member.candidate
    if not rule.allows(candidate.locality):
        return Stage.RESIDENCY
    if candidate.draining:
        return Stage.DRAIN
    if not alive(candidate) or member.weight <= 0:
        return Stage.HEALTH
    if candidate.policy_mismatch:
        return Stage.POLICY_MATCH
    if saturation_limit is not None:
        saturation = member.load.saturation
        if saturation is not None and saturation >= saturation_limit:
            return Stage.SATURATION
    return None
