"""Refusals: the words and the retry hint for each reason a decision can refuse with.

Status codes and OpenAI error forms live in `wire/status.py`. A message never tells an
unknown model from one that the caller may not use, and never names clusters. Each tier
speaks of its own candidates.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from services.core.outcomes import DropReason
from services.core.units import Duration, seconds

_SHARED: Mapping[DropReason, str] = {
    DropReason.MODEL_NOT_FOUND: "The model '{model}' does not exist or you do not have access to it.",
    DropReason.JURISDICTION_DENIED: (
        "The residency rules of this request leave no place where it may be processed."
    ),
    DropReason.SATURATED: "All capacity for '{model}' is in use at this priority.",
}
CLUSTER_MESSAGES: Mapping[DropReason, str] = {
    **_SHARED,
    DropReason.RESIDENCY_UNSATISFIABLE: (
        "No cluster that serves '{model}' lies where the residency rules of this request allow."
    ),
    DropReason.NO_HEALTHY_CLUSTER: "No healthy cluster can serve '{model}' right now.",
    DropReason.DRAINED: "Every cluster that could serve '{model}' is being drained.",
    DropReason.REPORT_POLICY_MISMATCH: (
        "The clusters that could serve '{model}' report another place than the policy declares."
    ),
    DropReason.ATTEMPTS_EXHAUSTED: "Every cluster that could serve '{model}' has been tried.",
}
ENDPOINT_MESSAGES: Mapping[DropReason, str] = {
    **_SHARED,
    DropReason.RESIDENCY_UNSATISFIABLE: (
        "This cluster does not lie where the residency rules of this request allow."
    ),
    DropReason.NO_ENDPOINTS: "No ready endpoint can serve '{model}' right now.",
    DropReason.DRAINED: "Every endpoint that could serve '{model}' is being drained.",
    DropReason.REPORT_POLICY_MISMATCH: (
        "The endpoints that could serve '{model}' report another place than is declared."
    ),
    DropReason.ATTEMPTS_EXHAUSTED: "Every endpoint that could serve '{model}' has been tried.",
}


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """How one tier refuses: `nobody` is its reason for nobody being there to serve, `messages` its sentences."""

    nobody: DropReason
    messages: Mapping[DropReason, str]

    def reason(self, reason: DropReason) -> DropReason:
        """Return `reason` as this tier calls it."""
        return self.nobody if reason is DropReason.NO_HEALTHY_CLUSTER else reason


OF_CLUSTERS = Words(DropReason.NO_HEALTHY_CLUSTER, CLUSTER_MESSAGES)
OF_ENDPOINTS = Words(DropReason.NO_ENDPOINTS, ENDPOINT_MESSAGES)

STALE_POLICY_MESSAGE = (
    "The router's policy is too old to prove the residency rules of this request; it is refused until "
    "the policy can be confirmed."
)

RETRY_AFTER: Mapping[DropReason, Duration] = {
    DropReason.NO_HEALTHY_CLUSTER: seconds(2),
    DropReason.NO_ENDPOINTS: seconds(2),
    DropReason.ATTEMPTS_EXHAUSTED: seconds(1),
    DropReason.SATURATED: seconds(1),
    DropReason.DRAINED: seconds(2),
}
"""Where waiting can help, and how long: two good probes and a report take about 2 s, a queue drains faster."""
