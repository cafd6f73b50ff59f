"""Refusals: one wording for each reason, hints only where waiting helps."""

from services.core.outcomes import DropReason
from services.core.scheduling.filters import REASONS
from services.core.scheduling.refusals import MESSAGES, RETRY_AFTER


def test_every_reason_of_a_filter_or_a_picker_has_a_message() -> None:
    of_pickers = {DropReason.JURISDICTION_DENIED, DropReason.ATTEMPTS_EXHAUSTED}
    assert {*REASONS.values(), *of_pickers} == set(MESSAGES)


def test_waiting_is_advised_only_where_it_can_help() -> None:
    permanent = {
        DropReason.MODEL_NOT_FOUND,
        DropReason.JURISDICTION_DENIED,
        DropReason.RESIDENCY_UNSATISFIABLE,
        DropReason.REPORT_POLICY_MISMATCH,
    }
    assert set(MESSAGES) - set(RETRY_AFTER) == permanent
    assert all(span > 0 for span in RETRY_AFTER.values())
