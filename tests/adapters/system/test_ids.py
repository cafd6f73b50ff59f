"""Request ids are UUIDv7 and unique."""

import time
import uuid

from services.adapters.system.ids import SystemIds


def test_request_ids_are_uuid7_sorted_by_time_and_unique() -> None:
    ids = SystemIds()
    made = [ids.request_id() for _ in range(5_000)]
    assert len(set(made)) == len(made)
    for text in (made[0], made[-1]):
        parsed = uuid.UUID(text)
        assert parsed.version == 7
        assert parsed.variant == uuid.RFC_4122
        assert abs((parsed.int >> 80) - time.time_ns() // 1_000_000) < 60_000
    assert made[0][:8] <= made[-1][:8]


def test_tokens_have_the_size_asked_for() -> None:
    ids = SystemIds()
    assert len(ids.token(32)) == 32
    assert ids.token(16) != ids.token(16)
