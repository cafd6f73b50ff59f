"""Discovery inside one process: the endpoints that configuration lists, or that a world or a test declares.

No clock and no files. Apart from the other sources because nothing can be away here.
"""

from collections.abc import AsyncGenerator

from services.adapters.memory.signal import Signal
from services.core.pods.discovered import DiscoveredEndpoint


class MemoryDiscovery:
    """`EndpointDiscovery` over a set that `declare` replaces; given none at birth, it knows nothing yet."""

    trouble = ""

    def __init__(self, endpoints: tuple[DiscoveredEndpoint, ...] | None = None) -> None:
        self._endpoints = endpoints
        self._changed = Signal()

    def declare(self, *endpoints: DiscoveredEndpoint) -> None:
        """Make these the whole set."""
        self._endpoints = endpoints
        self._changed.fire()

    async def sets(self) -> AsyncGenerator[tuple[DiscoveredEndpoint, ...], None]:
        """Yield the set, then every set that differs from the one before."""
        told: tuple[DiscoveredEndpoint, ...] | None = None
        while True:
            now = self._endpoints
            if now is not None and now != told:
                told = now
                yield now
            else:
                await self._changed.wait()

    async def close(self) -> None:
        """Nothing is open."""
