"""The table of outcomes: 429 while capacity exists and is contended, 503 when nobody can serve."""

import pytest

from services.core.admission.refusals import CONTENDED, MESSAGES, REASONS, Cause, reason_of
from services.core.outcomes import DropReason
from services.wire.status import STATUS

TABLE = [
    # cause, HTTP status and reason with endpoints, the same without
    (Cause.FULL, 429, DropReason.QUEUE_FULL, 503, DropReason.NO_ENDPOINTS),
    (Cause.EXPIRED, 429, DropReason.QUEUED_TOO_LONG, 503, DropReason.NO_ENDPOINTS),
    (Cause.NOBODY_CAME, 429, DropReason.QUEUED_TOO_LONG, 503, DropReason.NO_ENDPOINTS),
    (Cause.NOBODY_THERE, 429, DropReason.QUEUE_FULL, 503, DropReason.NO_ENDPOINTS),
    (Cause.PUSHED_OUT, 429, DropReason.EVICTED, 503, DropReason.NO_ENDPOINTS),
    (Cause.REVOKED, 429, DropReason.EVICTED, 429, DropReason.EVICTED),
    (Cause.SHED, 429, DropReason.SATURATED, 503, DropReason.NO_ENDPOINTS),
    (Cause.GONE, 503, DropReason.CANCELLED, 503, DropReason.CANCELLED),
    (Cause.CLOSING, 503, DropReason.SHUTTING_DOWN, 503, DropReason.SHUTTING_DOWN),
    (Cause.CLOSED, 503, DropReason.SHUTTING_DOWN, 503, DropReason.SHUTTING_DOWN),
]


@pytest.mark.parametrize(("cause", "with_http", "with_reason", "without_http", "without_reason"), TABLE)
def test_row(
    cause: Cause, with_http: int, with_reason: DropReason, without_http: int, without_reason: DropReason
) -> None:
    assert reason_of(cause, endpoints=True) is with_reason
    assert reason_of(cause, endpoints=False) is without_reason
    assert STATUS[with_reason].http == with_http
    assert STATUS[without_reason].http == without_http


def test_every_cause_has_a_row_and_every_reason_a_message() -> None:
    assert set(REASONS) == set(Cause) == {row[0] for row in TABLE}
    assert {reason for pair in REASONS.values() for reason in pair} == set(MESSAGES)


def test_what_carries_a_retry_after_is_429_and_nothing_else_is() -> None:
    assert {reason for reason in MESSAGES if STATUS[reason].http == 429} == CONTENDED
