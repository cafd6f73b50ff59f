"""The status table is total, and 429 and 503 are never confused."""

from services.core.outcomes import DropReason
from services.wire.status import GRPC_RESOURCE_EXHAUSTED, GRPC_UNAVAILABLE, STATUS, DoorReason


def test_every_reason_has_exactly_one_row() -> None:
    assert set(STATUS) == set(DropReason) | set(DoorReason)


def test_back_pressure_and_absence_stay_apart_on_both_wires() -> None:
    for reason, row in STATUS.items():
        assert (row.http == 429) == (row.grpc == GRPC_RESOURCE_EXHAUSTED), reason
        if row.grpc == GRPC_UNAVAILABLE:
            assert row.http == 503, reason


def test_hard_denials_tell_clients_not_to_retry() -> None:
    for reason, row in STATUS.items():
        if row.http < 429 or reason is DropReason.RESIDENCY_UNSATISFIABLE:
            assert row.should_retry is False, reason


def test_codes_are_unique() -> None:
    codes = [row.code for row in STATUS.values()]
    assert len(codes) == len(set(codes))
