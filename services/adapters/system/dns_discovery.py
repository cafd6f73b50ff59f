"""Discovery by DNS: every A and AAAA record of one name is an endpoint, asked again on an interval.

A name that cannot be resolved, or has no address, keeps the set that was found before: an outage of DNS and a
service without pods look alike here, and pods that are gone refuse their scrapes and leave by that. Order of
the records carries no meaning. Ports come from configuration.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from ipaddress import ip_address

from services.adapters.ports import Clock
from services.core.pods.discovered import DiscoveredEndpoint
from services.core.units import Duration, seconds

_LOG = logging.getLogger(__name__)

ASK_EVERY = seconds(5)
"""The usual time to live of records of a headless service; resolvers cache by the record's own."""
MAX_ADDRESSES = 4096
"""A DNS answer over TCP holds at most 64 KiB."""

Resolve = Callable[[str], Awaitable[Iterable[str]]]


class DnsDiscovery:
    """`EndpointDiscovery` over the addresses of `host`; each endpoint is named after its address.

    `resolve` returns addresses or raises OSError; by default it asks the system's resolver.
    """

    def __init__(
        self,
        host: str,
        ports: tuple[int, ...],
        clock: Clock,
        ask_every: Duration = ASK_EVERY,
        resolve: Resolve | None = None,
    ) -> None:
        self.trouble = ""
        self._host = host
        self._ports = ports
        self._clock = clock
        self._ask_every = ask_every
        self._resolve = resolve or resolve_by_system

    async def sets(self) -> AsyncGenerator[tuple[DiscoveredEndpoint, ...], None]:
        """Yield the name's endpoints, then again whenever its addresses changed."""
        told: list[str] = []
        while True:
            try:
                addresses = sorted(set(await self._resolve(self._host)), key=_numeric)[:MAX_ADDRESSES]
            except OSError as error:
                self._failed(error.strerror or str(error))
            else:
                if addresses:
                    self.trouble = ""
                    if addresses != told:
                        told = addresses
                        yield tuple(self._endpoint(address) for address in addresses)
                else:
                    self._failed("no address")
            await self._clock.sleep(self._ask_every)

    async def close(self) -> None:
        """Nothing is held open."""

    def _endpoint(self, address: str) -> DiscoveredEndpoint:
        return DiscoveredEndpoint(address.replace(":", "-").strip("-") or "unspecified", address, self._ports)

    def _failed(self, reason: str) -> None:
        trouble = f"{self._host}: {reason}"
        if trouble != self.trouble:
            self.trouble = trouble
            _LOG.warning("endpoints stay as they were: %s", trouble)


def _numeric(address: str) -> tuple[int, int]:
    parsed = ip_address(address)
    return parsed.version, int(parsed)


async def resolve_by_system(host: str) -> list[str]:
    """Return the IPv4 and IPv6 addresses of `host`, as the system's resolver has them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    # A scoped link-local address (`fe80::1%eth0`) means something on one host only and cannot stand in a URL.
    return [str(address[0]) for *_, address in found if "%" not in str(address[0])]
