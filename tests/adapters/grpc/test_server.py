import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from services.adapters.grpc.binding import BindError, Listen
from services.adapters.grpc.channel import open_channel
from services.adapters.grpc.server import GrpcServer
from services.core.units import Duration, seconds
from services.wire.gen.gir.v1 import routing_pb2, routing_pb2_grpc
from tests.adapters.grpc.router_double import Router

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def router() -> Router:
    return Router()


@pytest.fixture
async def server(router: Router) -> AsyncIterator[GrpcServer]:
    server = GrpcServer(Listen(), [router.door()])
    await server.start()
    yield server
    await server.stop(Duration(0))


@pytest.fixture
async def channel(server: GrpcServer) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


async def status(channel: grpc.aio.Channel, service: str) -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)  # Its typing stub leaves the methods out.
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


async def test_a_new_server_is_alive_and_ready_only_when_told(
    server: GrpcServer, channel: grpc.aio.Channel
) -> None:
    assert await status(channel, "liveness") == SERVING
    assert await status(channel, "readiness") == await status(channel, "") == NOT_SERVING
    await server.set_ready(ready=True)
    assert await status(channel, "readiness") == await status(channel, "") == SERVING
    await server.set_ready(ready=False)
    assert await status(channel, "readiness") == NOT_SERVING
    assert await status(channel, "liveness") == SERVING


async def test_health_of_an_unknown_service_is_not_found(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await status(channel, "gir.v1.Nothing")
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_what_is_served(channel: grpc.aio.Channel) -> None:
    of_any: Any = reflection_pb2_grpc.ServerReflectionStub  # Its typing stub knows sync channels only.
    stub = of_any(channel)
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = [answer async for answer in stub.ServerReflectionInfo(iter([ask]))]
    assert {service.name for service in answers[0].list_services_response.service} == {
        "gir.v1.GlobalRouter",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_a_door_is_served(channel: grpc.aio.Channel) -> None:
    stub = routing_pb2_grpc.GlobalRouterStub(channel)
    answer = await stub.Route(
        routing_pb2.RouteRequest(model="m"), metadata=(("authorization", "Bearer abc"),)
    )
    assert (answer.cluster, answer.request_id) == ("eu-west-a", "Bearer abc")


async def test_a_port_in_use_is_an_error_and_not_shared(server: GrpcServer) -> None:
    with pytest.raises(BindError, match=f"gRPC 127.0.0.1:{server.port}: address already in use"):
        await GrpcServer(Listen(port=server.port), []).start()


async def test_a_port_lost_at_the_last_moment_is_an_error_too(
    server: GrpcServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.adapters.grpc.server.check", lambda _: None)
    with pytest.raises(BindError, match=f"gRPC 127.0.0.1:{server.port}: failed to bind"):
        await GrpcServer(Listen(port=server.port), []).start()


async def test_an_address_outside_loopback_is_refused_before_binding() -> None:
    with pytest.raises(BindError, match="not a loopback address"):
        await GrpcServer(Listen("0.0.0.0"), []).start()


async def test_workers_share_a_port_when_both_ask_for_it() -> None:
    first = GrpcServer(Listen(reuse_port=True), [])
    await first.start()
    second = GrpcServer(Listen(port=first.port, reuse_port=True), [])
    await second.start()
    assert second.port == first.port
    await first.stop(Duration(0))
    async with open_channel(f"127.0.0.1:{second.port}") as channel:
        assert await status(channel, "liveness") == SERVING
    await second.stop(Duration(0))


async def test_a_server_listens_on_ipv6() -> None:
    server = GrpcServer(Listen("::1"), [])
    await server.start()
    async with open_channel(f"[::1]:{server.port}") as channel:
        assert await status(channel, "liveness") == SERVING
    await server.stop(Duration(0))


async def test_stopping_lets_running_calls_finish(
    server: GrpcServer, router: Router, channel: grpc.aio.Channel
) -> None:
    stub = routing_pb2_grpc.GlobalRouterStub(channel)
    call = stub.Route(routing_pb2.RouteRequest(model="wait"))
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_finished(call))
        await router.entered.wait()
        stopping = tasks.create_task(server.stop(seconds(10)))
        # The stop has begun once new calls are refused; only then may the running one go on.
        while await _code(stub.Route(routing_pb2.RouteRequest(model="m"))) is not grpc.StatusCode.UNAVAILABLE:
            assert not stopping.done()
        router.leave.set()
    assert running.result().cluster == "eu-west-a"


async def test_stopping_cuts_calls_that_outlast_the_grace(
    server: GrpcServer, router: Router, channel: grpc.aio.Channel
) -> None:
    call = routing_pb2_grpc.GlobalRouterStub(channel).Route(routing_pb2.RouteRequest(model="wait"))
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_code(call))
        await router.entered.wait()
        await server.stop(Duration(0))
    assert running.result() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


async def test_stopping_tells_watchers_of_readiness(server: GrpcServer, channel: grpc.aio.Channel) -> None:
    await server.set_ready(ready=True)
    stub: Any = health_pb2_grpc.HealthStub(channel)  # Its typing stub leaves the methods out.
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="readiness"))
    seen = []
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        async for update in watch:
            seen.append(update.status)
            if update.status == SERVING:
                tasks.create_task(server.stop(seconds(5)))
            else:
                break
        watch.cancel()
    assert seen == [SERVING, NOT_SERVING]


async def _finished(
    call: grpc.aio.UnaryUnaryCall[routing_pb2.RouteRequest, routing_pb2.RouteResponse],
) -> routing_pb2.RouteResponse:
    return await call


async def _code(
    call: grpc.aio.UnaryUnaryCall[routing_pb2.RouteRequest, routing_pb2.RouteResponse],
) -> grpc.StatusCode:
    return await call.code()
