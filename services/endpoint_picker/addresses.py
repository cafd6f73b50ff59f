"""Addresses and paths of model servers, normalised once or refused; never guessed at request time.

Pure text. IPv6 hosts are bracketed wherever a port follows (RFC 3986 section 3.2.2).
"""

import re
from ipaddress import IPv6Address

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?\Z")
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*(\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?\Z")
PORT_MAX = 65535


def join(host: str, port: int) -> str:
    """Return `host:port`, an IPv6 host in exactly one pair of brackets. Raises ValueError with the rule."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not 1 <= port <= PORT_MAX:
        raise ValueError(f"port {port}: must lie in 1..{PORT_MAX}")
    if ":" in bare:
        try:
            IPv6Address(bare)
        except ValueError:
            raise ValueError(f"host {host!r}: not an IPv6 address") from None
        return f"[{bare}]:{port}"
    if not _HOST.match(bare) or bare is not host:
        raise ValueError(f"host {host!r}: must be a host name or an IP address")
    return f"{bare}:{port}"


def split(address: str) -> tuple[str, int]:
    """Return (host without brackets, port) of an address made by `join`. Raises ValueError otherwise."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or len(port) > len(str(PORT_MAX)):
        raise ValueError(f"address {address!r}: must be host:port, an IPv6 host in brackets")
    if ":" in host and not host.startswith("["):
        raise ValueError(f"address {address!r}: an IPv6 host must stand in brackets before its port")
    if join(host, int(port)) != address:
        raise ValueError(f"address {address!r}: must be host:port, an IPv6 host in brackets")
    return host.removeprefix("[").removesuffix("]"), int(port)


def normal_path(path: str) -> str:
    """Return the path with outer blanks gone and one leading slash; a blank or control inside is refused."""
    normal = "/" + path.strip().lstrip("/")
    if not _PATH.match(normal):
        raise ValueError(f"metrics path {path!r}: holds a character that a URL path cannot")
    return normal
