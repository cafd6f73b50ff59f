"""Decision records render every fact once and leave absent ones out."""

import json

import pytest

from services.core.inference import ModelName, RequestId, TenantId, TrafficClass
from services.core.units import Instant, WallMs
from services.global_router.records import AttemptRecord, DecisionRecord, render


def record() -> DecisionRecord:
    return DecisionRecord(
        RequestId("r"),
        "",
        "http",
        TenantId("acme"),
        ModelName("m"),
        TrafficClass.INTERACTIVE,
        Instant(1_000_000),
        WallMs(5),
        policy_revision=3,
        snapshot_version=7,
    )


def test_an_open_record_has_no_empty_fields() -> None:
    assert json.loads(render(record())) == {
        "request_id": "r",
        "door": "http",
        "tenant": "acme",
        "model": "m",
        "traffic_class": "interactive",
        "received_at_ms": 5,
        "received_at_ns": 1_000_000,
        "policy_revision": 3,
        "snapshot_version": 7,
        "decide_us": 0.0,
        "attempts": [],
    }


def test_a_finished_record_has_spans_in_milliseconds_and_attempts_in_order() -> None:
    done = record()
    done.first_byte_at, done.ended_at = Instant(3_000_000), Instant(5_500_000)
    done.attempts = [
        AttemptRecord(1, "a", False, Instant(1), "connect_failed", 0, Instant(2)),
        AttemptRecord(2, "b", True, Instant(3), "served", 200),
    ]
    fields = json.loads(render(done))
    assert fields["first_byte_ms"] == 2.0
    assert fields["duration_ms"] == 4.5
    assert fields["attempts"] == [
        {"number": 1, "cluster": "a", "sent_at_ns": 1, "outcome": "connect_failed", "ended_at_ns": 2},
        {
            "number": 2,
            "cluster": "b",
            "redispatch": True,
            "sent_at_ns": 3,
            "outcome": "served",
            "status": 200,
        },
    ]


@pytest.mark.parametrize(
    "usage",
    [
        b'{"total_tokens":1e400}',
        b'{"total_tokens":NaN}',
        b'{"total_tokens":' + b"9" * 400 + b"}",
        b'{"a":"\\ud83d"}',
        b'{"a":"\xff"}',
        b'{"a":' + b"[" * 600 + b"]" * 600 + b"}",
    ],
)
def test_f062_usage_that_cannot_be_read_is_unknown_and_costs_no_record(usage: bytes) -> None:
    """A model server's usage may be any bytes; the record of its request is rendered without it."""
    poisoned = record()
    poisoned.usage = usage
    assert json.loads(render(poisoned)) == json.loads(render(record()))
