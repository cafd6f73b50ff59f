"""OpenAI error bodies, the two retry headers, and the in-band form."""

import json

import pytest

from services.core.outcomes import DropReason
from services.core.units import ms
from services.wire.openai.errors import error_answer, in_band_error
from services.wire.status import STATUS, DoorReason


@pytest.mark.parametrize("reason", list(STATUS))
def test_every_reason_renders(reason: DropReason | DoorReason) -> None:
    answer = error_answer(reason, "Sentence.", param="model")
    error = json.loads(answer.body)["error"]
    assert error == {
        "message": "Sentence.",
        "type": STATUS[reason].type,
        "param": "model",
        "code": STATUS[reason].code,
    }
    headers = dict(answer.headers)
    assert headers["content-type"] == "application/json"
    assert headers["x-gir-drop-reason"] == reason.value
    assert "retry-after" not in headers


@pytest.mark.parametrize(
    ("wait_ms", "seconds", "millis"), [(1, "1", "1"), (999.5, "1", "1000"), (1500, "2", "1500")]
)
def test_retry_after_comes_in_both_forms(wait_ms: float, seconds: str, millis: str) -> None:
    headers = dict(error_answer(DropReason.SATURATED, "Busy.", retry_after=ms(wait_ms)).headers)
    assert headers["retry-after"] == seconds
    assert headers["retry-after-ms"] == millis
    assert "x-should-retry" not in headers


def test_a_residency_refusal_is_not_to_be_retried() -> None:
    headers = dict(error_answer(DropReason.RESIDENCY_UNSATISFIABLE, "No.").headers)
    assert headers["x-should-retry"] == "false"


def test_in_band_is_one_data_event_without_done() -> None:
    event = in_band_error(DropReason.ATTEMPTS_EXHAUSTED, "Line\nbreak.")
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert event.count(b"\n") == 2
    assert b"[DONE]" not in event
