"""A small real `GlobalRouter` service for tests of the gRPC room: it answers, waits, refuses or breaks by model."""

import asyncio
from collections.abc import AsyncIterator

import grpc

from services.adapters.grpc.failures import Context, guard_stream, guard_unary, refuse
from services.adapters.grpc.metadata import authorization
from services.adapters.grpc.server import Door
from services.core.outcomes import DropReason
from services.core.units import ms
from services.wire.errors import UndecodableError
from services.wire.gen.gir.v1 import routing_pb2, routing_pb2_grpc

SERVICE = routing_pb2.DESCRIPTOR.services_by_name["GlobalRouter"]


class Router:
    """`entered` is set when a call waits; setting `leave` lets it go on."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()
        self.Route = guard_unary(self._route)
        self.RouteStream = guard_stream(self._route_stream)
        self.WatchFleet = guard_stream(self._watch)

    def door(self) -> Door:
        """Return this service as a door."""

        def register(server: grpc.aio.Server) -> None:
            routing_pb2_grpc.add_GlobalRouterServicer_to_server(self, server)  # type: ignore[arg-type]  # The generated base class binds methods, not the wrapped ones.

        return Door(SERVICE, register)

    async def _route(self, request: routing_pb2.RouteRequest, context: Context) -> routing_pb2.RouteResponse:
        await self._act(request, context)
        token = authorization(context.invocation_metadata())
        return routing_pb2.RouteResponse(cluster="eu-west-a", request_id=(token or b"").decode())

    async def _route_stream(
        self, requests: AsyncIterator[routing_pb2.RouteStreamRequest], context: Context
    ) -> AsyncIterator[routing_pb2.RouteStreamResponse]:
        async for request in requests:
            await self._act(request.request, context)
            yield routing_pb2.RouteStreamResponse(correlation_id=request.correlation_id)

    async def _watch(
        self, _: routing_pb2.WatchFleetRequest, context: Context
    ) -> AsyncIterator[routing_pb2.WatchFleetResponse]:
        yield routing_pb2.WatchFleetResponse(fleet_version=1)
        await refuse(context, DropReason.NO_HEALTHY_CLUSTER, "nobody left")

    async def _act(self, request: routing_pb2.RouteRequest, context: Context) -> None:
        match request.model:
            case "wait":
                self.entered.set()
                await self.leave.wait()
            case "saturated":
                await refuse(
                    context, DropReason.SATURATED, "all full", retry_after=ms(1500), request_id="r-1"
                )
            case "unreadable":
                raise UndecodableError("route request", "model is missing")
            case "broken":
                raise RuntimeError("secret of the house")
