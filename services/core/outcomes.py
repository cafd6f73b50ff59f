"""Outcomes of a decision: routed or rejected, with the reason and the explanation as data.

`DropReason` is closed: every member has exactly one row in `wire/status.py`, and a test
fails when one is missing. Rendering, logging and HTTP status are not here.
"""

import enum
from dataclasses import dataclass

from services.core.inference import RequestId
from services.core.units import Duration
from services.core.values import value


class DropReason(enum.Enum):
    """Why a request is not served. 429 and 503 reasons are never confused (back-pressure or nobody home)."""

    MODEL_NOT_FOUND = "model_not_found"
    JURISDICTION_DENIED = "jurisdiction_denied"
    RESIDENCY_UNSATISFIABLE = "residency_unsatisfiable"
    NO_HEALTHY_CLUSTER = "no_healthy_cluster"
    DRAINED = "drained"
    REPORT_POLICY_MISMATCH = "report_policy_mismatch"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    SATURATED = "saturated"
    CONTEXT_TOO_LONG = "context_too_long"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NO_ENDPOINTS = "no_endpoints"
    QUEUE_FULL = "queue_full"
    QUEUED_TOO_LONG = "queued_too_long"
    EVICTED = "evicted"
    SHUTTING_DOWN = "shutting_down"
    CANCELLED = "cancelled"
    CACHE_MISS = "cache_miss"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one filter or the picker said of one candidate: `reason` is None for those kept."""

    candidate: str
    reason: DropReason | None
    weight: float = 0.0
    level: int = 0
    scores: tuple[tuple[str, float], ...] = ()
    note: str = ""


@value
class Explanation:
    """Why this decision: enough, with the recorded snapshot and policy, to replay it.

    `draw` is the point in [0, 1) that the request id hashed to (tier 2), None in tier 1. `verdicts`
    is empty on the hot path; `scheduling.explain` fills it by replaying the decision. `excluded`
    names the clusters that a draw or a trial met and passed over because they had left since the
    snapshot or had been tried. `trial` marks a probation trial.
    """

    request_id: RequestId
    snapshot_version: int
    policy_revision: int
    verdicts: tuple[Verdict, ...]
    draw: float | None = None
    panic: bool = False
    note: str = ""
    excluded: tuple[str, ...] = ()
    trial: bool = False


@value
class Routed:
    """The chosen candidate and the ordered fallbacks, all of them eligible."""

    target: str
    fallbacks: tuple[str, ...]
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class Rejected:
    """Nobody may or can serve; `retry_after` only where waiting can help."""

    reason: DropReason
    message: str
    explanation: Explanation
    retry_after: Duration | None = None


Decision = Routed | Rejected
