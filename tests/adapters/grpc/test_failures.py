import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from services.adapters.grpc.binding import Listen
from services.adapters.grpc.channel import open_channel
from services.adapters.grpc.failures import CallRefusedError, translated
from services.adapters.grpc.server import GrpcServer
from services.adapters.ports import UnreachableError
from services.core.units import Duration
from services.wire.gen.gir.v1 import routing_pb2, routing_pb2_grpc
from services.wire.status import STATUS
from tests.adapters.grpc.router_double import Router

if TYPE_CHECKING:
    Stub = routing_pb2_grpc.GlobalRouterAsyncStub  # The generated stub file alone knows this name.


@pytest.fixture
async def stub() -> AsyncIterator["Stub"]:
    server = GrpcServer(Listen(), [Router().door()])
    await server.start()
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        yield routing_pb2_grpc.GlobalRouterStub(channel)
    await server.stop(Duration(0))


async def failure(
    stub: "Stub", model: str, metadata: tuple[tuple[str, str], ...] = ()
) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stub.Route(routing_pb2.RouteRequest(model=model), metadata=metadata)
    return failed.value


async def test_a_refusal_travels_with_code_reason_and_wait(
    stub: "Stub",
) -> None:
    error = translated(await failure(stub, "saturated"), "Route on eu")
    assert isinstance(error, CallRefusedError)
    assert str(error) == "Route on eu: all full"
    assert (error.code, error.reason, error.retry_after_ms, error.request_id) == (8, "saturated", 1500, "r-1")


async def test_an_unreadable_request_is_an_invalid_argument(
    stub: "Stub",
) -> None:
    error = translated(await failure(stub, "unreadable"), "Route")
    assert isinstance(error, CallRefusedError)
    assert (error.code, error.reason, error.retry_after_ms) == (3, "invalid_value", None)
    assert str(error) == "Route: route request: model is missing"


@pytest.mark.parametrize("method", ["Route", "WatchFleet", "RouteStream"])
async def test_bytes_that_are_no_message_are_an_invalid_argument_and_cost_no_traceback(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever can reach the port can send any bytes; the log must not grow with each of them."""
    garbage: Any = b"\xff\xff"
    server = GrpcServer(Listen(), [Router().door()])
    await server.start()
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        path = f"/gir.v1.GlobalRouter/{method}"
        calls: dict[str, Any] = {
            "Route": lambda: channel.unary_unary(path)(garbage),
            "WatchFleet": lambda: channel.unary_stream(path)(garbage).read(),
            "RouteStream": lambda: channel.stream_stream(path)(iter((garbage,))).read(),
        }
        with caplog.at_level(logging.DEBUG), pytest.raises(grpc.aio.AioRpcError) as failed:
            await calls[method]()
    await server.stop(Duration(0))
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert failed.value.details() == "request: the bytes are no message of this method"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_two_bearer_tokens_are_unauthenticated(
    stub: "Stub",
) -> None:
    twice = (("authorization", "Bearer a"), ("authorization", "Bearer b"))
    error = await failure(stub, "m", twice)
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_an_unforeseen_exception_is_logged_and_not_told(
    stub: "Stub", caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        error = await failure(stub, "broken")
    assert error.code() is grpc.StatusCode.INTERNAL
    assert error.details() == "internal error"
    assert "secret" not in str(error.trailing_metadata())
    assert "secret of the house" in caplog.text


async def test_streams_are_guarded_too(stub: "Stub", caplog: pytest.LogCaptureFixture) -> None:
    requests = [
        routing_pb2.RouteStreamRequest(correlation_id=number, request=routing_pb2.RouteRequest(model=model))
        for number, model in ((1, "m"), (2, "broken"), (3, "m"))
    ]
    call = stub.RouteStream(iter(requests))
    first = await call.read()
    assert isinstance(first, routing_pb2.RouteStreamResponse)
    assert first.correlation_id == 1
    with caplog.at_level(logging.ERROR), pytest.raises(grpc.aio.AioRpcError) as failed:
        await call.read()
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert failed.value.details() == "internal error"


async def test_a_stream_may_end_with_a_refusal(stub: "Stub") -> None:
    call = stub.WatchFleet(routing_pb2.WatchFleetRequest())
    first = await call.read()
    assert isinstance(first, routing_pb2.WatchFleetResponse)
    assert first.fleet_version == 1
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call.read()
    error = translated(failed.value, "WatchFleet")
    # UNAVAILABLE with a reason was said by a peer that was reached.
    assert isinstance(error, CallRefusedError)
    assert (error.code, error.reason) == (14, "no_healthy_cluster")


async def test_a_peer_that_is_away_is_unreachable(new_port: Callable[[], int]) -> None:
    async with open_channel(f"127.0.0.1:{new_port()}") as channel:
        error = translated(await failure(routing_pb2_grpc.GlobalRouterStub(channel), "m"), "Route on eu")
    assert isinstance(error, UnreachableError)
    assert str(error).startswith("Route on eu: ")


@pytest.mark.parametrize(
    ("trailing", "wait"),
    [
        ((("x-gir-drop-reason", "saturated"), ("retry-after-ms", "12")), 12),
        ((("x-gir-drop-reason", "saturated"), ("retry-after-ms", "soon")), None),
        ((("x-gir-drop-reason", "saturated"), ("retry-after-ms", "9" * 5000)), None),
        ((("x-gir-drop-reason", "saturated"), ("retry-after-ms", "1"), ("retry-after-ms", "2")), None),
        ((), None),
    ],
)
def test_senseless_waits_of_a_peer_are_no_wait(
    trailing: tuple[tuple[str, str], ...], wait: int | None
) -> None:
    raw = grpc.aio.AioRpcError(
        grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing)
    )
    error = translated(raw, "Route")
    assert isinstance(error, CallRefusedError)
    assert error.retry_after_ms == wait
    assert str(error) == "Route: RESOURCE_EXHAUSTED"


def test_every_reason_has_a_code_that_grpc_knows() -> None:
    known = {code.value[0] for code in grpc.StatusCode}
    assert {row.grpc for row in STATUS.values()} <= known
