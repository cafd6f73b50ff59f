"""A data plane in tests: speaks ext_proc to a picker's door over gRPC and says what came back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from google.protobuf.struct_pb2 import Struct
from grpc_health.v1 import health_pb2

from services.wire.ext_proc.metadata import SERVICE

WAIT_S = 10.0
MESSAGE_BYTES_MAX = 64 << 20


@dataclass
class Answer:
    """What a data plane was told of one request: an immediate answer, or the head and body that go on."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    body: bytes = b""
    ended: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def destination(self) -> str:
        return self.headers.get("x-gateway-destination-endpoint", "")


class Exchange:
    """One stream."""

    def __init__(self, call: "grpc.aio.StreamStreamCall[Any, Any]") -> None:
        self.call = call

    async def head(
        self,
        headers: dict[str, str] | None = None,
        *,
        end: bool = False,
        subset: Any = None,
        method: str = "POST",
    ) -> None:
        lines = {":method": method, ":path": "/v1/chat/completions", **(headers or {})}
        context = None
        if subset is not None:
            struct = Struct()
            struct.update({"x-gateway-destination-endpoint-subset": subset})
            context = base_pb2.Metadata(filter_metadata={"envoy.lb.subset_hint": struct})
        pairs = [base_pb2.HeaderValue(key=key, raw_value=value.encode()) for key, value in lines.items()]
        head = wire.HttpHeaders(headers=base_pb2.HeaderMap(headers=pairs), end_of_stream=end)
        await self.send(request_headers=head, metadata_context=context)

    async def body(self, data: bytes, *, end: bool = True) -> None:
        await self.send(request_body=wire.HttpBody(body=data, end_of_stream=end))

    async def send(self, **part: Any) -> None:
        await self.call.write(wire.ProcessingRequest(**part))

    async def read(self) -> Any:
        async with asyncio.timeout(WAIT_S):
            return await self.call.read()

    async def answer(self) -> Answer:
        """Read until the request is decided: an immediate answer, or head and whole body."""
        answer = Answer()
        while not answer.ended:
            message = await self.read()
            if message is grpc.aio.EOF:
                raise AssertionError(f"the stream ended before the answer did: {answer}")
            kind = message.WhichOneof("response")
            if kind == "immediate_response":
                immediate = message.immediate_response
                return Answer(immediate.status.code, _set(immediate.headers), body=immediate.body, ended=True)
            if kind == "request_headers":
                mutation = message.request_headers.response.header_mutation
                answer.headers, answer.removed = _set(mutation), list(mutation.remove_headers)
                if message.HasField("dynamic_metadata"):
                    answer.metadata = dict(message.dynamic_metadata["envoy.lb"])
            else:
                piece = message.request_body.response.body_mutation.streamed_response
                answer.body += piece.body
                answer.ended = piece.end_of_stream
        return answer

    async def close(self) -> None:
        await self.call.done_writing()


def _set(mutation: Any) -> dict[str, str]:
    return {each.header.key: each.header.raw_value.decode() for each in mutation.set_headers}


@asynccontextmanager
async def data_plane(port: int) -> "AsyncIterator[DataPlane]":
    """A connection to a picker's gRPC port."""
    options = (("grpc.max_send_message_length", MESSAGE_BYTES_MAX),)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        yield DataPlane(channel)


class DataPlane:
    """Opens streams."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._stub = external_processor_pb2_grpc.ExternalProcessorStub(channel)

    def exchange(self, timeout_s: float | None = None) -> Exchange:
        return Exchange(self._stub.Process(timeout=timeout_s))

    def raw(self) -> "grpc.aio.StreamStreamCall[bytes, bytes]":
        """A stream of bytes as they are."""
        call: grpc.aio.StreamStreamCall[bytes, bytes] = self._channel.stream_stream(
            f"/{SERVICE}/Process", request_serializer=None, response_deserializer=None
        )()
        return call

    async def health(self, name: str) -> str:
        """What the port says of a name: a status, or the code of the refusal."""
        check: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = self._channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = await check(health_pb2.HealthCheckRequest(service=name))
        except grpc.aio.AioRpcError as refused:
            return refused.code().name
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    async def ask(self, body: bytes, headers: dict[str, str] | None = None, subset: Any = None) -> Answer:
        """One request with a body in one piece."""
        exchange = self.exchange()
        await exchange.head(headers, subset=subset)
        await exchange.body(body)
        answer = await exchange.answer()
        await exchange.close()
        return answer
