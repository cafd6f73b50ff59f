"""What a door read becomes one intake: with a hand-off what it signed holds, without one the gateway's headers."""

from collections.abc import Mapping

import orjson
import pytest

from services.core.inference import ModelName, RequestId, TenantId
from services.core.locality import ClusterId
from services.core.residency import ANYWHERE
from services.core.units import WallMs
from services.endpoint_picker.entry import EntryRefusedError
from services.endpoint_picker.intake import Header, Reception
from services.wire.control_headers import BadHeaderError
from services.wire.hand_off import HandOff
from services.wire.openai.requests import BadBodyError
from services.wire.pick_controls import NO_PICK_CONTROLS
from services.wire.status import DoorReason

BODY = orjson.dumps({"model": "m", "prompt": "hello", "max_tokens": 7, "stream": True})
HAND_OFF = HandOff(
    ClusterId("c"),
    RequestId("signed"),
    TenantId("acme"),
    ModelName("m"),
    ANYWHERE,
    WallMs(1_000),
    None,
    priority=4,
    session="talk",
)


class Ids:
    def request_id(self) -> RequestId:
        return RequestId("minted")


def headers(given: Mapping[bytes, bytes] | None = None) -> Header:
    return (given or {}).get


def test_a_direct_request_believes_the_gateways_headers() -> None:
    given = {
        b"x-llm-d-inference-fairness-id": b"team-a",
        b"x-session-id": b"talk-2",
        b"x-llm-d-inference-objective": b"gold",
        b"prefer": b"if-available",
        b"traceparent": b"00-aa-bb-01",
    }
    intake = Reception(Ids()).read(None, BODY, headers(given), among=["a"])
    request = intake.inference
    assert (request.request_id, request.tenant.id, request.model) == ("minted", "direct", "m")
    assert (request.session, request.stream, request.max_output_tokens) == ("talk-2", True, 7)
    assert (intake.flow, intake.controls.objective, intake.controls.if_available) == ("team-a", "gold", True)
    assert (intake.body, intake.among, intake.handed_over) == (BODY, ["a"], False)
    assert intake.traceparent == "00-aa-bb-01"


def test_a_handed_over_request_believes_only_what_was_signed() -> None:
    given = {b"x-llm-d-inference-fairness-id": b"team-a", b"x-llm-d-inference-objective": b"gold"}
    intake = Reception(Ids()).read(HAND_OFF, BODY, headers(given))
    request = intake.inference
    assert (request.request_id, request.tenant.id, request.priority) == ("signed", "acme", 4)
    assert (intake.flow, request.session, intake.controls) == ("acme", "talk", NO_PICK_CONTROLS)
    assert (intake.handed_over, intake.traceparent) == (True, None)


def test_headers_that_the_profile_reads_reach_the_pick() -> None:
    given = {b"x-tier": b"gold", b"x-other": b"1"}
    reception = Reception(Ids(), headers=("x-tier", "x-absent"))
    assert reception.read(None, BODY, headers(given)).headers == {"x-tier": "gold"}
    assert reception.read(HAND_OFF, BODY, headers(given)).headers == {"x-tier": "gold"}
    assert Reception(Ids()).read(None, BODY, headers(given)).headers == {}


def test_a_token_grants_no_other_model_than_its_own() -> None:
    with pytest.raises(EntryRefusedError) as refused:
        Reception(Ids()).read(HAND_OFF, orjson.dumps({"model": "other", "prompt": "x"}), headers())
    assert refused.value.reason is DoorReason.HAND_OFF_REFUSED


def test_prompts_are_read_where_somebody_needs_them() -> None:
    with_prompt = Reception(Ids()).read(None, BODY, headers())
    assert with_prompt.prompt is not None
    assert b"hello" in with_prompt.prompt.data
    assert Reception(Ids(), reads_prompts=False).read(None, BODY, headers()).prompt is None


@pytest.mark.parametrize("reads_prompts", [True, False])
def test_a_body_that_is_none_is_refused_either_way(reads_prompts: bool) -> None:
    with pytest.raises(BadBodyError):
        Reception(Ids(), reads_prompts).read(None, b"{", headers())


def test_a_malformed_control_is_refused() -> None:
    with pytest.raises(BadHeaderError):
        Reception(Ids()).read(None, BODY, headers({b"x-llm-d-slo-ttft-ms": b"soon"}))
