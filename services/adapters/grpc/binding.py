"""Where a gRPC server may listen: loopback unless said otherwise, and on a port that is free.

gRPC itself shares a busy port silently (SO_REUSEPORT is its default) and reports other failures
on stderr only, so both are decided here before it is asked.
"""

import ipaddress
import socket
from dataclasses import dataclass

from services.adapters.ports import AdapterError

MAX_PORT = 65535


class BindError(AdapterError):
    """The server cannot or must not listen there; the message names the address and the reason."""


@dataclass(frozen=True, slots=True)
class Listen:
    """An address to listen on. Port 0 takes a free one.

    `insecure_bind` allows plain text outside loopback. `reuse_port` lets several processes share the
    port; each must set it.
    """

    host: str = "127.0.0.1"
    port: int = 0
    insecure_bind: bool = False
    reuse_port: bool = False

    @property
    def address(self) -> str:
        """The address as text, IPv6 hosts in brackets."""
        host = self.host.strip("[]")
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def check(listen: Listen) -> None:
    """Raise `BindError` when `listen` is outside loopback without leave, or cannot be bound now."""
    host = listen.host.strip("[]")
    if not listen.insecure_bind and not is_loopback(host):
        raise BindError(
            f"gRPC {listen.address}: not a loopback address, and the traffic is plain text; "
            "listen on 127.0.0.1 or allow it with insecure_bind"
        )
    if not 0 <= listen.port <= MAX_PORT:
        raise BindError(f"gRPC {listen.address}: the port must lie in 0..{MAX_PORT}")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if listen.reuse_port:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            probe.bind(place)
    except (OSError, UnicodeError) as error:
        raise bind_error(listen, error) from error


def is_loopback(host: str) -> bool:
    """Whether traffic to `host` cannot leave this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind_error(listen: Listen, error: Exception) -> BindError:
    """Return the error that says why `listen` cannot be bound."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BindError(f"gRPC {listen.address}: {why[:1].lower()}{why[1:]}")
