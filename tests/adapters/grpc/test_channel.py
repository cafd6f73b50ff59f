import asyncio

import grpc
import pytest

from services.adapters.grpc.binding import Listen
from services.adapters.grpc.channel import open_channel
from services.adapters.grpc.server import GrpcServer
from services.core.units import Duration
from services.wire.gen.gir.v1 import routing_pb2, routing_pb2_grpc
from tests.adapters.grpc.router_double import Router


async def test_a_channel_comes_back_with_its_server() -> None:
    first = GrpcServer(Listen(), [Router().door()])
    await first.start()
    async with open_channel(f"127.0.0.1:{first.port}") as channel:
        stub = routing_pb2_grpc.GlobalRouterStub(channel)
        assert (await stub.Route(routing_pb2.RouteRequest(model="m"))).cluster == "eu-west-a"
        await first.stop(Duration(0))
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.Route(routing_pb2.RouteRequest(model="m"))
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        second = GrpcServer(Listen(port=first.port), [Router().door()])
        await second.start()
        async with asyncio.timeout(10):
            answer = await stub.Route(routing_pb2.RouteRequest(model="m"), wait_for_ready=True)
        assert answer.cluster == "eu-west-a"
        await second.stop(Duration(0))


async def test_proxies_of_the_environment_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = GrpcServer(Listen(), [Router().door()])
    await server.start()
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        stub = routing_pb2_grpc.GlobalRouterStub(channel)
        assert (await stub.Route(routing_pb2.RouteRequest(model="m"))).cluster == "eu-west-a"
    await server.stop(Duration(0))
