"""Bytes of `envoy.service.ext_proc.v3` <-> the values of `events`.

The one place that knows the protobuf shapes. Header values are read from `raw_value`, else `value`; written as
`raw_value`, which Envoy does not re-encode.
"""

from typing import Any, Final

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError

from services.wire.errors import UndecodableError
from services.wire.ext_proc import events
from services.wire.ext_proc.metadata import (
    DESTINATION,
    LB_NAMESPACE,
    SCORES_KEY,
    SERVED_KEY,
    SUBSET_KEY,
    SUBSET_NAMESPACE,
)
from services.wire.ext_proc.subset import Subset, read_subset

SERVICE: Final[ServiceDescriptor] = wire.DESCRIPTOR.services_by_name["ExternalProcessor"]
_WHAT: Final = "ProcessingRequest"
_OVERWRITE: Final = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
_DESTINATION_NAME: Final = DESTINATION.encode()


def decode(data: bytes) -> events.Event:
    """Return what the data plane says. Raises `UndecodableError`."""
    try:
        message = wire.ProcessingRequest.FromString(data)
    except DecodeError:
        raise UndecodableError(_WHAT, "the bytes are no such message") from None
    match message.WhichOneof("request"):
        case "request_headers":
            part = message.request_headers
            return events.RequestHeaders(
                _headers(part), part.end_of_stream, _subset(message), _modes(message)
            )
        case "request_body":
            return events.RequestBody(message.request_body.body, message.request_body.end_of_stream)
        case "request_trailers":
            return events.RequestTrailers()
        case "response_headers":
            part = message.response_headers
            return events.ResponseHeaders(_headers(part), part.end_of_stream, _served(message))
        case "response_body":
            return events.ResponseBody(message.response_body.body, message.response_body.end_of_stream)
        case "response_trailers":
            return events.ResponseTrailers()
        case _:
            raise UndecodableError(_WHAT, "request: holds none of the six parts of an exchange")


def _headers(part: Any) -> events.Headers:
    return tuple(
        [(line.key.lower().encode(), line.raw_value or line.value.encode()) for line in part.headers.headers]
    )


def _subset(message: Any) -> Subset | None:
    """Return the hint; None where its namespace or its key is absent."""
    spaces = message.metadata_context.filter_metadata
    if SUBSET_NAMESPACE not in spaces:
        return None
    fields = spaces[SUBSET_NAMESPACE].fields
    if SUBSET_KEY not in fields:
        return None
    hint = fields[SUBSET_KEY]
    values = hint.list_value.values if hint.WhichOneof("kind") == "list_value" else (hint,)
    return read_subset(each.string_value for each in values)


def _served(message: Any) -> str | None:
    spaces = message.metadata_context.filter_metadata
    if LB_NAMESPACE not in spaces:
        return None
    fields = spaces[LB_NAMESPACE].fields
    return (fields[SERVED_KEY].string_value or None) if SERVED_KEY in fields else None


def _modes(message: Any) -> events.Modes | None:
    """Return the filter's modes; None from a data plane that does not tell them."""
    if not message.HasField("protocol_config"):
        return None
    config = message.protocol_config
    try:
        return events.Modes(
            events.BodyMode(config.request_body_mode), events.BodyMode(config.response_body_mode)
        )
    except ValueError as error:
        raise UndecodableError(_WHAT, f"protocol_config: {error}") from None


def encode(effect: events.ToDataPlane) -> bytes:
    """Return the `ProcessingResponse` that says it."""
    encoded: bytes = _message(effect).SerializeToString()
    return encoded


def _message(effect: events.ToDataPlane) -> Any:
    """Build the message; the commonest effects first."""
    match effect:
        case events.StreamRequestBody():
            return wire.ProcessingResponse(request_body=_streamed(effect.data, effect.end_of_stream))
        case events.AnswerRequestHeaders():
            response = wire.HeadersResponse(response=_common(effect.mutation, effect.destination))
            return _decided(
                wire.ProcessingResponse(request_headers=response), effect.destination, effect.scores
            )
        case events.StreamResponseBody():
            return wire.ProcessingResponse(response_body=_streamed(effect.data, effect.end_of_stream))
        case events.AnswerRequestBody():
            common = _common(effect.mutation, effect.destination)
            if effect.body is not None:
                common.body_mutation.body = effect.body
            return _decided(
                wire.ProcessingResponse(request_body=wire.BodyResponse(response=common)),
                effect.destination,
                effect.scores,
            )
        case events.AnswerResponseHeaders():
            return wire.ProcessingResponse(
                response_headers=wire.HeadersResponse(response=_common(effect.mutation, None))
            )
        case events.AnswerResponseBody():
            body = None if effect.body is None else wire.BodyMutation(body=effect.body)
            return wire.ProcessingResponse(
                response_body=wire.BodyResponse(response=wire.CommonResponse(body_mutation=body))
            )
        case events.AnswerRequestTrailers():
            return wire.ProcessingResponse(request_trailers=wire.TrailersResponse())
        case events.AnswerResponseTrailers():
            return wire.ProcessingResponse(response_trailers=wire.TrailersResponse())
        case events.Immediate():
            return wire.ProcessingResponse(immediate_response=_immediate(effect))


def _streamed(data: bytes, end_of_stream: bool) -> Any:
    piece = wire.StreamedBodyResponse(body=data, end_of_stream=end_of_stream)
    return wire.BodyResponse(
        response=wire.CommonResponse(body_mutation=wire.BodyMutation(streamed_response=piece))
    )


def _common(mutation: events.Mutation, destination: str | None) -> Any:
    lines = mutation.set
    if destination is not None:
        lines = (*lines, (_DESTINATION_NAME, destination.encode()))
    # A route that matched before the decision may not fit after it.
    return wire.CommonResponse(
        header_mutation=_header_mutation(lines, mutation.remove), clear_route_cache=destination is not None
    )


def _header_mutation(lines: events.Headers, remove: tuple[bytes, ...]) -> Any:
    if not lines and not remove:
        return None
    return wire.HeaderMutation(
        set_headers=[
            base_pb2.HeaderValueOption(
                header=base_pb2.HeaderValue(key=name.decode(), raw_value=value), append_action=_OVERWRITE
            )
            for name, value in lines
        ],
        remove_headers=[name.decode() for name in remove],
    )


def _decided(message: Any, destination: str | None, scores: tuple[tuple[str, float], ...]) -> Any:
    """Add the decision as metadata for load-balancing policies."""
    if destination is not None:
        space = message.dynamic_metadata.fields[LB_NAMESPACE].struct_value.fields
        space[DESTINATION].string_value = destination
        if scores:
            told = space[SCORES_KEY].struct_value.fields
            for endpoint, score in scores:
                told[endpoint].number_value = score
    return message


def _immediate(effect: events.Immediate) -> Any:
    answer = effect.answer
    lines = tuple((name.encode(), value.encode()) for name, value in answer.headers)
    immediate = wire.ImmediateResponse(headers=_header_mutation(lines, ()), body=answer.body)
    immediate.status.code = answer.status
    return immediate
