"""Bytes of the protocol and back, as a data plane built on the public stubs writes and reads them."""

from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from google.protobuf.struct_pb2 import Struct

from services.core.outcomes import DropReason
from services.core.units import ms
from services.wire.errors import UndecodableError
from services.wire.ext_proc import events
from services.wire.ext_proc.messages import SERVICE, decode, encode
from services.wire.openai.errors import error_answer

DESTINATION = "x-gateway-destination-endpoint"


def headers(**more: Any) -> Any:
    pairs = base_pb2.HeaderMap(
        headers=[
            base_pb2.HeaderValue(key=":method", raw_value=b"POST"),
            base_pb2.HeaderValue(key="X-Old", value="text"),
            base_pb2.HeaderValue(key="x-both", value="text", raw_value=b"raw"),
        ]
    )
    return wire.HttpHeaders(headers=pairs, **more)


READ = ((b":method", b"POST"), (b"x-old", b"text"), (b"x-both", b"raw"))


def heard(**fields: Any) -> events.Event:
    return decode(wire.ProcessingRequest(**fields).SerializeToString())


def metadata(space: str, values: dict[str, Any]) -> Any:
    struct = Struct()
    struct.update(values)
    return base_pb2.Metadata(filter_metadata={space: struct})


def test_the_service_is_envoys() -> None:
    assert SERVICE.full_name == "envoy.service.ext_proc.v3.ExternalProcessor"


def test_every_part_of_an_exchange_is_read() -> None:
    assert heard(request_headers=headers()) == events.RequestHeaders(READ)
    assert heard(request_headers=headers(end_of_stream=True)) == events.RequestHeaders(READ, True)
    body = wire.HttpBody(body=b"x", end_of_stream=True)
    assert heard(request_body=body) == events.RequestBody(b"x", True)
    assert heard(request_trailers=wire.HttpTrailers()) == events.RequestTrailers()
    assert heard(response_headers=headers()) == events.ResponseHeaders(READ)
    assert heard(response_body=body) == events.ResponseBody(b"x", True)
    assert heard(response_trailers=wire.HttpTrailers()) == events.ResponseTrailers()


def test_the_filters_modes_are_read_from_the_first_message() -> None:
    config = wire.ProtocolConfiguration(request_body_mode=2, response_body_mode=4)
    event = heard(request_headers=headers(), protocol_config=config)
    assert isinstance(event, events.RequestHeaders)
    assert event.modes == events.Modes(events.BodyMode.BUFFERED, events.BodyMode.FULL_DUPLEX_STREAMED)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff",
        b"",
        wire.ProcessingRequest(
            request_headers=headers(), protocol_config=wire.ProtocolConfiguration(request_body_mode=99)
        ).SerializeToString(),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(UndecodableError):
        decode(data)


@pytest.mark.parametrize(
    ("space", "values", "hint"),
    [
        ("envoy.lb", {"x-gateway-destination-endpoint-subset": ["a:1"]}, None),
        ("envoy.lb.subset_hint", {}, None),
        ("envoy.lb.subset_hint", {"other": "a:1"}, None),
        ("envoy.lb.subset_hint", {"x-gateway-destination-endpoint-subset": []}, []),
        ("envoy.lb.subset_hint", {"x-gateway-destination-endpoint-subset": ""}, []),
        ("envoy.lb.subset_hint", {"x-gateway-destination-endpoint-subset": 7}, []),
        ("envoy.lb.subset_hint", {"x-gateway-destination-endpoint-subset": "a:1, b:2"}, ["a:1", "b:2"]),
        (
            "envoy.lb.subset_hint",
            {"x-gateway-destination-endpoint-subset": ["a:1", "b:2,c:3"]},
            ["a:1", "b:2", "c:3"],
        ),
    ],
)
def test_a_hint_is_a_list_or_a_comma_string(
    space: str, values: dict[str, Any], hint: list[str] | None
) -> None:
    """Absent is no hint; present but empty allows nobody."""
    event = heard(request_headers=headers(), metadata_context=metadata(space, values))
    assert isinstance(event, events.RequestHeaders)
    if hint is None:
        assert event.subset is None
    else:
        assert event.subset is not None
        assert event.subset.endpoints == set(hint)


@pytest.mark.parametrize(
    ("space", "values", "served"),
    [
        ("other", {}, None),
        ("envoy.lb", {}, None),
        ("envoy.lb", {"x-gateway-destination-endpoint-served": ""}, None),
        ("envoy.lb", {"x-gateway-destination-endpoint-served": "a:1"}, "a:1"),
    ],
)
def test_served_feedback_may_be_missing(space: str, values: dict[str, Any], served: str | None) -> None:
    event = heard(response_headers=headers(), metadata_context=metadata(space, values))
    assert isinstance(event, events.ResponseHeaders)
    assert event.served == served


def said(effect: events.ToDataPlane) -> Any:
    return wire.ProcessingResponse.FromString(encode(effect))


def lines(mutation: Any) -> dict[str, bytes]:
    overwrite = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    assert all(option.append_action == overwrite for option in mutation.set_headers)
    return {option.header.key: option.header.raw_value for option in mutation.set_headers}


@pytest.mark.parametrize("buffered", [True, False])
def test_a_decision_is_a_header_and_metadata_of_the_same_value(buffered: bool) -> None:
    mutation = events.Mutation(((b"content-length", b"1"),), (b"x-gir-class",))
    effect: events.ToDataPlane
    if buffered:
        effect = events.AnswerRequestBody(mutation, "a:1,b:2", body=b"x")
        message = said(effect)
        common = message.request_body.response
        assert common.body_mutation.body == b"x"
    else:
        effect = events.AnswerRequestHeaders(mutation, "a:1,b:2")
        message = said(effect)
        common = message.request_headers.response
    assert lines(common.header_mutation) == {"content-length": b"1", DESTINATION: b"a:1,b:2"}
    assert list(common.header_mutation.remove_headers) == ["x-gir-class"]
    assert common.clear_route_cache
    assert dict(message.dynamic_metadata["envoy.lb"]) == {DESTINATION: "a:1,b:2"}


def test_endpoint_scores_metadata() -> None:
    """Under `envoy.lb`, a struct from endpoint to score; absent when there are none."""
    message = said(events.AnswerRequestHeaders(destination="a:1", scores=(("a:1", 0.5), ("b:2", 0.25))))
    assert dict(message.dynamic_metadata["envoy.lb"][f"{DESTINATION}-scores"]) == {"a:1": 0.5, "b:2": 0.25}


def test_a_head_without_decision_changes_nothing() -> None:
    message = said(events.AnswerRequestHeaders())
    assert message.request_headers.response == wire.CommonResponse()
    assert not message.HasField("dynamic_metadata")


def test_pieces_and_parts_are_said() -> None:
    piece = said(events.StreamRequestBody(b"x", True)).request_body.response.body_mutation.streamed_response
    assert (piece.body, piece.end_of_stream) == (b"x", True)
    piece = said(events.StreamResponseBody(b"", True)).response_body.response.body_mutation.streamed_response
    assert (piece.body, piece.end_of_stream) == (b"", True)
    assert said(events.AnswerRequestTrailers()).WhichOneof("response") == "request_trailers"
    assert said(events.AnswerResponseTrailers()).WhichOneof("response") == "response_trailers"
    head = said(events.AnswerResponseHeaders(events.Mutation(((b"a", b"b"),))))
    assert lines(head.response_headers.response.header_mutation) == {"a": b"b"}
    assert not said(events.AnswerResponseBody()).response_body.response.HasField("body_mutation")
    replaced = said(events.AnswerResponseBody(b""))
    assert replaced.response_body.response.body_mutation.WhichOneof("mutation") == "body"
    kept = said(events.AnswerRequestBody(events.NO_MUTATION, "a:1"))
    assert not kept.request_body.response.HasField("body_mutation")


def test_an_immediate_answer_is_openais_with_reasons_and_when_to_come_back() -> None:
    answer = error_answer(DropReason.QUEUE_FULL, "Full.", retry_after=ms(1500))
    message = said(events.Immediate(answer)).immediate_response
    assert message.status.code == 429
    assert message.body == answer.body
    assert lines(message.headers) == {
        "content-type": b"application/json",
        "x-gir-drop-reason": b"queue_full",
        "x-llm-d-request-dropped-reason": b"rejected-saturated",
        "retry-after": b"2",
        "retry-after-ms": b"1500",
    }
