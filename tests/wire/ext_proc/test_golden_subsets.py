"""The subset and served cases of gateway-api-inference-extension's light-weight picker, by their names.

Source: pkg/lwepp/handlers/request_test.go and its response twin, v1.6.0. Each case is a message of a data plane,
the endpoints that exist, and those that a pick may come from. What the picker does with them is the door's test.
"""

from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from google.protobuf.struct_pb2 import Struct

from services.core.units import Instant
from services.wire.ext_proc import events
from services.wire.ext_proc.messages import decode, encode
from services.wire.ext_proc.session import Session

POD_1, POD_1B, POD_2, POD_3 = "10.0.0.1:8080", "10.0.0.1:8081", "10.0.0.2:8080", "10.0.0.3:8080"
PODS = [POD_1, POD_1B, POD_2, POD_3]
HINT_SPACE = "envoy.lb.subset_hint"
HINT_KEY = "x-gateway-destination-endpoint-subset"
CONFORMANCE = events.StreamRules(conformance=True)
NOW = Instant(0)


def request(hint: Any = None, *, space: dict[str, Any] | None = None, **headers: str) -> bytes:
    values = {HINT_KEY: hint} if hint is not None else space
    context = None
    if values is not None:
        struct = Struct()
        struct.update(values)
        context = base_pb2.Metadata(filter_metadata={HINT_SPACE: struct})
    lines = [
        base_pb2.HeaderValue(key=name.replace("_", "-"), raw_value=value.encode())
        for name, value in headers.items()
    ]
    head = wire.HttpHeaders(headers=base_pb2.HeaderMap(headers=lines), end_of_stream=True)
    return bytes(wire.ProcessingRequest(request_headers=head, metadata_context=context).SerializeToString())


def allowed(data: bytes) -> list[str]:
    (ask,) = Session(CONFORMANCE).receive(decode(data), NOW)
    assert isinstance(ask, events.Ask)
    return PODS if ask.subset is None else [pod for pod in PODS if ask.subset.holds(pod)]


@pytest.mark.parametrize(
    ("data", "right"),
    [
        pytest.param(request(test_epp_endpoint_selection=POD_2), [POD_2], id="FilteringViaHeader"),
        pytest.param(request([POD_2]), [POD_2], id="FilteringViaFilterMetadata"),
        pytest.param(request(POD_2), [POD_2], id="FilteringViaFilterMetadata_StringValue"),
        pytest.param(
            request([POD_3], test_epp_endpoint_selection=POD_2),
            [POD_2],
            id="HeaderTakesPrecedenceOverMetadata",
        ),
        pytest.param(request(), PODS, id="NoSubsetMetadataReturnsAllPods"),
        pytest.param(request(space={}), PODS, id="MetadataNamespaceEmptyReturnsAllPods"),
        pytest.param(request([]), [], id="SubsetFilterEmptyReturnsNoPods"),
        pytest.param(
            request(f"  {POD_1} ,   {POD_2},"), [POD_1, POD_2], id="StringMetadataMalformedWhitespaceTrimming"
        ),
        pytest.param(request("192.0.2.1:1"), [], id="StringMetadataNoMatchesReturnsNoPods"),
        pytest.param(
            request([POD_1, f"{POD_2}, {POD_3}"]),
            [POD_1, POD_2, POD_3],
            id="MixedArrayAndCommaStringElements",
        ),
        pytest.param(request([POD_1B]), [POD_1B], id="PortAwareFiltering_specific_port_only"),
        pytest.param(request(["10.0.0.1"]), [POD_1, POD_1B], id="PortAwareFiltering_IP_only_all_ports"),
        pytest.param(request(["10.0.0.1", POD_3]), [POD_1, POD_1B, POD_3], id="PortAwareFiltering_mix"),
    ],
)
def test_subset(data: bytes, right: list[str]) -> None:
    assert allowed(data) == right


def answered(session: Session, metadata: base_pb2.Metadata | None) -> dict[str, bytes]:
    head = wire.HttpHeaders(
        headers=base_pb2.HeaderMap(headers=[base_pb2.HeaderValue(key=":status", raw_value=b"200")])
    )
    data = wire.ProcessingRequest(response_headers=head, metadata_context=metadata).SerializeToString()
    session.receive(decode(request()), NOW)
    session.decided(events.Decision((POD_1,)))
    effects = session.receive(decode(data), NOW)
    (answer,) = [each for each in effects if isinstance(each, events.AnswerResponseHeaders)]
    message = wire.ProcessingResponse.FromString(encode(answer)).response_headers.response
    assert not message.header_mutation.remove_headers, "ForwardsOriginalHeaders: none of them is touched"
    return {each.header.key: each.header.raw_value for each in message.header_mutation.set_headers}


def served(values: dict[str, str]) -> base_pb2.Metadata:
    struct = Struct()
    struct.update(values)
    return base_pb2.Metadata(filter_metadata={"envoy.lb": struct})


@pytest.mark.parametrize(
    ("metadata", "mirrored"),
    [
        pytest.param(None, None, id="MissingEnvoyLBMetadata"),
        pytest.param(served({}), None, id="MissingDestinationEndpointServedKey"),
        pytest.param(
            served({"x-gateway-destination-endpoint-served": POD_2}),
            POD_2,
            id="UsesServedEndpointFromMetadata",
        ),
    ],
)
def test_served(metadata: base_pb2.Metadata | None, mirrored: str | None) -> None:
    headers = answered(Session(CONFORMANCE), metadata)
    assert headers["x-went-into-resp-headers"] == b"true"
    assert headers.get("x-conformance-test-served-endpoint") == (mirrored and mirrored.encode())


def test_forwards_original_headers() -> None:
    assert set(answered(Session(CONFORMANCE), None)) == {"x-went-into-resp-headers"}


def test_duplicate_headers_are_preserved() -> None:
    """DuplicateHeadersArePreserved: repeats go on because no header but the protocol's own is ever set."""
    lines = [base_pb2.HeaderValue(key="x-twice", raw_value=value) for value in (b"1", b"2")]
    head = wire.HttpHeaders(headers=base_pb2.HeaderMap(headers=lines), end_of_stream=True)
    session = Session(events.StreamRules())
    (ask,) = session.receive(decode(wire.ProcessingRequest(request_headers=head).SerializeToString()), NOW)
    assert isinstance(ask, events.Ask)
    assert ask.headers == ((b"x-twice", b"1"), (b"x-twice", b"2"))
    answer = session.decided(events.Decision((POD_1,)))[0]
    assert answer == events.AnswerRequestHeaders(events.NO_MUTATION, POD_1)
