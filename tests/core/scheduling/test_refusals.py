"""Refusals: one wording for each reason, hints only where waiting helps."""

from services.core.outcomes import DropReason
from services.core.scheduling.filters import REASONS
from services.core.scheduling.refusals import (
    CLUSTER_MESSAGES,
    ENDPOINT_MESSAGES,
    OF_CLUSTERS,
    OF_ENDPOINTS,
    RETRY_AFTER,
)


def test_every_reason_of_a_filter_or_a_picker_has_a_message() -> None:
    of_pickers = {DropReason.JURISDICTION_DENIED, DropReason.ATTEMPTS_EXHAUSTED}
    reasons = {*REASONS.values(), *of_pickers}
    assert reasons == set(CLUSTER_MESSAGES)
    assert {OF_ENDPOINTS.reason(reason) for reason in reasons} == set(ENDPOINT_MESSAGES)


def test_each_tier_speaks_of_its_own_candidates() -> None:
    assert OF_CLUSTERS.reason(DropReason.NO_HEALTHY_CLUSTER) is DropReason.NO_HEALTHY_CLUSTER
    assert OF_ENDPOINTS.reason(DropReason.NO_HEALTHY_CLUSTER) is DropReason.NO_ENDPOINTS
    assert OF_ENDPOINTS.reason(DropReason.DRAINED) is DropReason.DRAINED
    assert "endpoint" in ENDPOINT_MESSAGES[DropReason.NO_ENDPOINTS]
    assert "cluster" in CLUSTER_MESSAGES[DropReason.NO_HEALTHY_CLUSTER]


def test_waiting_is_advised_only_where_it_can_help() -> None:
    permanent = {
        DropReason.MODEL_NOT_FOUND,
        DropReason.JURISDICTION_DENIED,
        DropReason.RESIDENCY_UNSATISFIABLE,
        DropReason.REPORT_POLICY_MISMATCH,
    }
    assert {*CLUSTER_MESSAGES, *ENDPOINT_MESSAGES} - set(RETRY_AFTER) == permanent
    assert all(span > 0 for span in RETRY_AFTER.values())
