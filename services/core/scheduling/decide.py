"""The decision: one function for both tiers, filters then a picker, and its replay.

`decide` costs a look-up, one hash of the request id and a few bisections, whatever the
fleet's size; `explain` repeats it and says of every candidate what became of it. No state
changes here and no clock is read: the same arguments give the same answer.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from services.core.fleet import Candidate
from services.core.inference import InferenceRequest, ModelName
from services.core.outcomes import Decision, DropReason, Explanation, Rejected, Routed, Verdict
from services.core.residency import ANYWHERE
from services.core.scheduling.board import Board
from services.core.scheduling.draws import fraction, words
from services.core.scheduling.endpoint_pickers import UNTOLD, Told, pick_endpoint, tell
from services.core.scheduling.endpoints import NOTHING, Arrival, InFlight
from services.core.scheduling.filters import REASONS, Member, Stage, refused_at
from services.core.scheduling.pickers import Choice, Excluded, weighted_draw
from services.core.scheduling.plan import Plan
from services.core.scheduling.prepare import Prepared
from services.core.scheduling.profile import Picker
from services.core.scheduling.refusals import RETRY_AFTER, STALE_POLICY_MESSAGE
from services.core.scheduling.signals import NO_SIGNALS, Signals
from services.core.units import Instant, since

NOBODY: Excluded = {}

# Enum members are reached through a descriptor, which costs more than the comparison they serve.
_WEIGHTED_DRAW: Final = Picker.WEIGHTED_DRAW

_LEFT_LAST = (
    DropReason.SATURATED,
    DropReason.NO_HEALTHY_CLUSTER,
    DropReason.DRAINED,
    DropReason.REPORT_POLICY_MISMATCH,
)
"""Of several reasons why the planned candidates left, the most hopeful is the answer."""


def no_trials(_candidate: str) -> bool:
    """Admit nobody to a cluster on probation."""
    return False


def decide(
    prepared: Prepared,
    request: InferenceRequest,
    now: Instant,
    *,
    excluded: Excluded = NOBODY,
    tried: Collection[str] = (),
    may_try: Callable[[str], bool] = no_trials,
    policy_confirmed_at: Instant | None = None,
    signals: Signals = NO_SIGNALS,
    among: Collection[str] | None = None,
    in_flight: InFlight = NOTHING,
    in_flight_tokens: InFlight = NOTHING,
    cold: Mapping[str, int] = NOTHING,
    turn: int = 0,
) -> Decision:
    """Return where `request` goes, or why it goes nowhere.

    `excluded`: candidates that left since the snapshot (or are under back-pressure for this request),
    with why; `tried`: those earlier attempts went to. `may_try` says whether a cluster on probation has
    a trial free (the larger of 3 concurrent and 1 % of traffic); the caller counts. `policy_confirmed_at`:
    when the policy was last known to be current; None when it cannot age. In tier 1, `signals` is what is
    known of the request, `among` the only ids to pick from (None: all), `in_flight` own requests per
    candidate since its last scrape, `in_flight_tokens` own prompt tokens it is working on, `cold` when it
    last got a request that no cache knew (any ascending unit), and `turn` a count of picks.
    """
    model = prepared.resolve(request)
    if model is None:
        return _rejected(prepared, request, DropReason.MODEL_NOT_FOUND)
    rule = request.residency
    if policy_confirmed_at is not None and rule is not ANYWHERE and not rule.unrestricted:
        age = since(policy_confirmed_at, now)
        if age > prepared.conditions.routing.residency_max_policy_age:
            refusal = _rejected(prepared, request, DropReason.RESIDENCY_UNSATISFIABLE)
            return replace(refusal, message=STALE_POLICY_MESSAGE)
    plan = prepared.plan(model, rule, sheddable=request.priority < 0)
    if plan.refused_at is not None:
        return _rejected(prepared, request, _reason_of(plan.refused_at, request))
    if among is not None:
        excluded = _only(plan, among, excluded)
    points = words(request.request_id)
    choice: Choice | DropReason | None
    if prepared.profile.picker is _WEIGHTED_DRAW:
        draw = fraction(points[0])
        choice = weighted_draw(plan, points, prepared.regions, excluded, tried, may_try)
    else:
        draw = None
        board = _reachable(plan.board, excluded, tried)
        if board is None:
            choice = None
        else:
            arrival = Arrival(
                board.endpoints, signals, in_flight, in_flight_tokens, cold, fraction(points[2])
            )
            choice = pick_endpoint(board, arrival, prepared.profile, points, turn)
    if isinstance(choice, DropReason):
        return _rejected(prepared, request, choice)
    if choice is None:
        return _rejected(prepared, request, _left(plan, excluded, tried))
    version, revision = prepared.snapshot.version, prepared.revision
    explanation = Explanation(
        request.request_id, version, revision, (), draw, plan.panic, "", choice.passed_over, choice.trial
    )
    return Routed(choice.target, choice.fallbacks, explanation)


def _only(plan: Plan, among: Collection[str], excluded: Excluded) -> Excluded:
    """Return `excluded` with every member that is not `among` those a caller's data plane can reach."""
    names = (member.candidate.id for member in plan.members)
    return {**dict.fromkeys((n for n in names if n not in among), DropReason.NO_HEALTHY_CLUSTER), **excluded}


def _reachable(board: Board, excluded: Excluded, tried: Collection[str]) -> Board | None:
    """Return the board of those neither excluded nor tried, None when nobody is left."""
    if not excluded and not tried:
        return board
    names = board.endpoints.ids
    left = [place for place, name in enumerate(names) if name not in excluded and name not in tried]
    return board.narrow(left) if left else None


def _rejected(prepared: Prepared, request: InferenceRequest, reason: DropReason) -> Rejected:
    words = prepared.profile.words
    reason = words.reason(reason)
    explanation = Explanation(request.request_id, prepared.snapshot.version, prepared.revision, ())
    return Rejected(
        reason, words.messages[reason].format(model=request.model), explanation, RETRY_AFTER.get(reason)
    )


def _reason_of(stage: Stage, request: InferenceRequest) -> DropReason:
    if request.residency.nowhere:
        return DropReason.JURISDICTION_DENIED
    # The policy names the model, so that nobody serves it is the fleet's failing, not the caller's.
    return DropReason.NO_HEALTHY_CLUSTER if stage is Stage.SERVES else REASONS[stage]


def _left(plan: Plan, excluded: Excluded, tried: Collection[str]) -> DropReason:
    """Return why nobody of a plan with members is left."""
    names = [member.candidate.id for member in plan.members]
    if any(name in tried for name in names):
        return DropReason.ATTEMPTS_EXHAUSTED
    reasons = {excluded[name] for name in names if name in excluded}
    return next((reason for reason in _LEFT_LAST if reason in reasons), DropReason.NO_HEALTHY_CLUSTER)


def explain(
    prepared: Prepared,
    request: InferenceRequest,
    now: Instant,
    *,
    excluded: Excluded = NOBODY,
    tried: Collection[str] = (),
    may_try: Callable[[str], bool] = no_trials,
    policy_confirmed_at: Instant | None = None,
    signals: Signals = NO_SIGNALS,
    among: Collection[str] | None = None,
    in_flight: InFlight = NOTHING,
    in_flight_tokens: InFlight = NOTHING,
    cold: Mapping[str, int] = NOTHING,
    turn: int = 0,
) -> Decision:
    """Return the same decision with a verdict on every candidate of the snapshot, in its order."""
    decision = decide(
        prepared,
        request,
        now,
        excluded=excluded,
        tried=tried,
        may_try=may_try,
        policy_confirmed_at=policy_confirmed_at,
        signals=signals,
        among=among,
        in_flight=in_flight,
        in_flight_tokens=in_flight_tokens,
        cold=cold,
        turn=turn,
    )
    model = prepared.resolve(request)
    if model is None:
        verdicts = tuple(Verdict(c.id, DropReason.MODEL_NOT_FOUND) for c in prepared.snapshot.candidates)
    else:
        plan = prepared.plan(model, request.residency, sheddable=request.priority < 0)
        if among is not None:
            excluded = _only(plan, among, excluded)
        board = None if prepared.profile.picker is _WEIGHTED_DRAW else _reachable(plan.board, excluded, tried)
        told: Mapping[str, Told] = {}
        if board is not None:
            point = fraction(words(request.request_id)[2])
            told = tell(
                board,
                Arrival(board.endpoints, signals, in_flight, in_flight_tokens, cold, point),
                prepared.profile,
            )
        verdicts = _verdicts(prepared, request, model, excluded, tried, told)
    explanation = replace(decision.explanation, verdicts=verdicts)
    if isinstance(decision, Routed):
        return replace(decision, explanation=explanation)
    return replace(decision, explanation=explanation)


def _verdicts(
    prepared: Prepared,
    request: InferenceRequest,
    model: ModelName,
    excluded: Excluded,
    tried: Collection[str],
    told: Mapping[str, Told],
) -> tuple[Verdict, ...]:
    sheddable = request.priority < 0
    plan = prepared.plan(model, request.residency, sheddable=sheddable)
    limit = prepared.saturation_limit(sheddable=sheddable)
    members = {member.candidate.id: member for member in prepared.members(model)}
    planned = {member.candidate.id for member in plan.members}
    reason_of = prepared.profile.words.reason

    def verdict(candidate: Candidate) -> Verdict:
        member = members.get(candidate.id)
        if member is None:
            return Verdict(candidate.id, REASONS[Stage.SERVES], note="does not serve the model")
        reason = removed(member, candidate.id in planned)
        weight = plan.near[0].share(candidate.id) if plan.near else 0.0
        scores, left_out = told.get(candidate.id, UNTOLD)
        return Verdict(
            candidate.id,
            None if reason is None else reason_of(reason),
            weight,
            int(member.level),
            scores,
            f"{candidate.state.value}, left out by filter {left_out}" if left_out else candidate.state.value,
        )

    def removed(member: Member, kept: bool) -> DropReason | None:
        name = member.candidate.id
        stage = None if kept else refused_at(member, request.residency, limit)
        if stage is not None:
            return REASONS[stage]
        return DropReason.ATTEMPTS_EXHAUSTED if name in tried else excluded.get(name)

    return tuple(verdict(candidate) for candidate in prepared.snapshot.candidates)
