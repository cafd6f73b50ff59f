"""A gRPC server on `grpc.aio`: limits, health, reflection, readiness and a graceful end.

    server = GrpcServer(Listen("127.0.0.1", 7000), [Door(DESCRIPTOR, register)])
    await server.start()
    await server.set_ready(ready=True)
    ...
    await server.stop(seconds(30))

What is served is handed in as doors; nothing here knows a method. `grpc.health.v1` answers for
`liveness` (this process works), `readiness`, the empty name and those of doors (it may be sent traffic).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from services.adapters.grpc.binding import Listen, bind_error, check
from services.adapters.grpc.reading import Registry
from services.core.units import NS_PER_S, Duration

MAX_MESSAGE_BYTES = 4 << 20
"""Requests are small; the largest answer is a fleet of 500 clusters with its pods."""
MAX_METADATA_BYTES = 16 << 10
"""A bearer token of 8 KiB and a hand-off token of 4 KiB with room to spare."""
MAX_STREAMS_PER_CONNECTION = 1000
MAX_CONCURRENT_CALLS = 10_000
"""Above it calls are refused with RESOURCE_EXHAUSTED: each holds memory and a task."""
MIN_PING_INTERVAL_MS = 10_000
"""Clients may ping this often on an idle connection; half of what our own channel does."""

LIVENESS = "liveness"
READINESS = "readiness"
OVERALL = ""

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass(frozen=True, slots=True)
class Door:
    """One service: its descriptor, and how its handlers, which must be guarded ones, are added to a server.

    `health_names` are further names under which health checks ask for it; `message_bytes_max` bounds what it reads.
    """

    service: ServiceDescriptor
    register: Callable[[grpc.aio.Server], None]
    health_names: tuple[str, ...] = ()
    message_bytes_max: int = MAX_MESSAGE_BYTES


class GrpcServer:
    """One listening server; `start` once, `stop` once."""

    def __init__(self, listen: Listen, doors: Sequence[Door], health_names: Sequence[str] = ()) -> None:
        """`health_names`: names that health checks may ask for beside those of doors."""
        self._listen = listen
        self._health = health.aio.HealthServicer()
        of_doors = [name for door in doors for name in door.health_names]
        self._ready_names = (READINESS, OVERALL, *of_doors, *health_names)
        # gRPC knows one bound for all services of a port.
        message_bytes_max = max([MAX_MESSAGE_BYTES, *[door.message_bytes_max for door in doors]])
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS,
            options=(
                ("grpc.so_reuseport", int(listen.reuse_port)),
                ("grpc.max_receive_message_length", message_bytes_max),
                ("grpc.max_send_message_length", message_bytes_max),
                ("grpc.max_metadata_size", MAX_METADATA_BYTES),
                ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
                ("grpc.max_concurrent_streams", MAX_STREAMS_PER_CONNECTION),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
                ("grpc.keepalive_permit_without_calls", 1),
            ),
        )
        registry = cast("grpc.aio.Server", Registry(self._server))
        for door in doors:
            door.register(registry)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [door.service.full_name for door in doors]
        reflection.enable_server_reflection(
            (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        self.port = 0

    async def start(self) -> None:
        """Listen and answer; alive at once, ready when told. Raises `BindError`. `port` is then the real one."""
        check(self._listen)
        try:
            self.port = self._server.add_insecure_port(self._listen.address)
        except RuntimeError as error:
            raise bind_error(self._listen, error) from error
        await self._health.set(LIVENESS, SERVING)
        await self.set_ready(ready=False)
        await self._server.start()

    async def set_ready(self, *, ready: bool) -> None:
        """Say whether traffic may be sent here."""
        for name in self._ready_names:
            await self._health.set(name, SERVING if ready else NOT_SERVING)

    async def stop(self, grace: Duration) -> None:
        """Turn unready, refuse new calls, let running ones finish for `grace`, then cancel them.

        It stays alive to the last: an orchestrator that reads otherwise would kill what is still finishing.
        """
        await self.set_ready(ready=False)
        await self._server.stop(grace / NS_PER_S)
