"""Prepared snapshots: a fleet snapshot with its policy, and the plans made from them so far.

`prepare` is called when the snapshot or the policy changes, never per request; plans are
made on first use and kept for the snapshot's life. A newer way of shaping traffic replaces
this file, not `decide`. Not shared between threads.
"""

from collections.abc import Mapping

from services.core.fleet import FleetSnapshot
from services.core.inference import InferenceRequest, ModelName
from services.core.policy import HealthPolicy, PolicySnapshot, RoutingPolicy
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.scheduling.filters import Member, alive
from services.core.scheduling.members import members_of
from services.core.scheduling.plan import Conditions, Plan, plan_for
from services.core.scheduling.profile import CLUSTERS, SchedulingProfile

PLANS_MAX = 4096
"""Plans kept per snapshot. A client can name any residency in a header; it must not fill the memory."""


class Prepared:
    """A snapshot ready for decisions. `regions` maps each candidate to its region."""

    __slots__ = (
        "_members",
        "_names",
        "_plans",
        "conditions",
        "policy",
        "profile",
        "regions",
        "revision",
        "snapshot",
    )

    def __init__(
        self, snapshot: FleetSnapshot, policy: PolicySnapshot | None, profile: SchedulingProfile
    ) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.profile = profile
        self.revision = snapshot.policy_revision if policy is None else policy.revision
        self.regions: Mapping[str, str] = {c.id: c.locality.region for c in snapshot.candidates}
        self.conditions = Conditions(
            RoutingPolicy() if policy is None else policy.routing,
            HealthPolicy() if policy is None else policy.health,
            profile,
            any(alive(candidate) for candidate in snapshot.candidates),
        )
        self._names: dict[ModelName, ModelName] | None = None
        if policy is not None:
            self._names = {name: m.name for m in policy.models for name in (m.name, *m.aliases)}
        self._members: dict[ModelName, tuple[Member, ...]] = {}
        self._plans: dict[tuple[ModelName, ResidencyRule | None, bool], Plan] = {}

    def resolve(self, request: InferenceRequest) -> ModelName | None:
        """Return the name to serve under; None if unknown to the policy or not granted.

        A grant of a model covers its aliases; a grant of an alias covers only that. Without a policy
        every name stands for itself. An alias is served under its own name, because the body goes on as
        it came: only a cluster whose servers answer to the alias can serve it.
        """
        name = request.model
        model = name if self._names is None else self._names.get(name)
        if model is None:
            return None
        granted = request.tenant.grants.models
        return name if granted is None or name in granted or model in granted else None

    def canonical(self, name: ModelName) -> ModelName:
        """Return the policy's name of the model behind `name`, `name` itself where the policy knows none."""
        return name if self._names is None else self._names.get(name, name)

    def members(self, model: ModelName) -> tuple[Member, ...]:
        """Return the candidates that serve `model`, whatever their state."""
        members = self._members.get(model)
        if members is None:
            members = self._members[model] = members_of(self.snapshot, model)
        return members

    def plan(self, model: ModelName, rule: ResidencyRule, *, sheddable: bool) -> Plan:
        """Return the plan for a model that `resolve` returned, under `rule`."""
        # A rule hashes in Python (0.5 us), None in C: most requests have no rule.
        key = (model, None if rule is ANYWHERE or rule.unrestricted else rule, sheddable)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            limit = self.saturation_limit(sheddable=sheddable)
            plan = self._plans[key] = plan_for(self.members(model), rule, limit, self.conditions)
        return plan

    def saturation_limit(self, *, sheddable: bool) -> float | None:
        """Return the saturation from which on a candidate refuses the band, None for never."""
        return self.conditions.routing.sheddable_saturation if sheddable else None


def prepare(
    snapshot: FleetSnapshot, policy: PolicySnapshot | None, profile: SchedulingProfile = CLUSTERS
) -> Prepared:
    """Return `snapshot` ready for decisions under `policy` (None: none is loaded yet)."""
    return Prepared(snapshot, policy, profile)
