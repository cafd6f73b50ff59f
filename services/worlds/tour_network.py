"""A switch on this process's own network: the tour's way to take Kafka and Redis away from itself.

The tour may not stop a user's servers, so it cuts its own connections to them: a loop that is cut off
drops and refuses every connection but those to ports of the world itself. gRPC has sockets of its own, and
only speaks within the world. Clients of bus and store know nothing of it.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

import uvloop

P = TypeVar("P", bound=asyncio.BaseProtocol)


class SwitchedLoop(uvloop.Loop):
    """A uvloop whose connections to ports outside `inside` can be cut and restored."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: Collection[int] = ()
        self._off = False
        self._outbound: set[asyncio.Transport] = set()

    def cut(self) -> None:
        """Drop every connection that leaves the world, and refuse new ones."""
        self._off = True
        for transport in self._outbound:
            transport.abort()
        self._outbound.clear()

    def restore(self) -> None:
        """Let connections be made again."""
        self._off = False

    async def create_connection(  # type: ignore[override]  # uvloop is untyped here; the words are asyncio's
        self, protocol_factory: Callable[[], P], host: Any = None, port: Any = None, **options: Any
    ) -> tuple[asyncio.Transport, P]:
        """Connect as uvloop does, unless that leads out while the network is cut."""
        leads_out = port is not None and int(port) not in self.inside
        if leads_out and self._off:
            raise ConnectionRefusedError(f"{host}:{port}: cut off")
        made, protocol = await super().create_connection(protocol_factory, host, port, **options)
        transport = cast("asyncio.Transport", made)
        if leads_out:
            if self._off:
                transport.abort()
                raise ConnectionResetError(f"{host}:{port}: cut off")
            self._outbound = {known for known in self._outbound if not known.is_closing()}
            self._outbound.add(transport)
        return transport, protocol
