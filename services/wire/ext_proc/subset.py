"""The endpoints that a gateway allows for one request, as its hint says them.

An entry `ip` (or host name) allows every port of it, `ip:port` one endpoint; IPv6 hosts stand in brackets
before a port and may be spelt in any way. Apart from the messages because conformance headers say it too.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address

PORT_DIGITS_MAX = 5


@dataclass(frozen=True, slots=True)
class Subset:
    """Hosts of which every port is allowed, and single endpoints (`host:port`); both empty: nobody is."""

    hosts: frozenset[str]
    endpoints: frozenset[str]

    def holds(self, address: str) -> bool:
        """Whether the endpoint `host:port`, an IPv6 host in brackets, is allowed."""
        return address in self.endpoints or address.rpartition(":")[0] in self.hosts


def read_subset(values: Iterable[str]) -> Subset:
    """Return the subset of a list whose members may themselves be comma strings; blanks are trimmed.

    What is no address matches no endpoint, so that a malformed hint narrows and never widens.
    """
    hosts: set[str] = set()
    endpoints: set[str] = set()
    for value in values:
        for part in value.split(","):
            entry = part.strip()
            if entry:
                host, port = _split(entry)
                if port:
                    endpoints.add(f"{host}:{port}")
                else:
                    hosts.add(host)
    return Subset(frozenset(hosts), frozenset(endpoints))


def _split(entry: str) -> tuple[str, str]:
    """Return (host, port or nothing), an IPv6 host in its shortest spelling and in brackets."""
    whole = _ipv6(entry)
    if whole is not None:
        return whole, ""
    host, colon, port = entry.rpartition(":")
    if colon and port.isascii() and port.isdigit() and len(port) <= PORT_DIGITS_MAX:
        return _ipv6(host) or host, port
    return entry, ""


def _ipv6(host: str) -> str | None:
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return f"[{IPv6Address(bare)}]"
    except ValueError:
        return None
