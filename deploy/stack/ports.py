"""Choice of TCP ports on loopback for servers that tests and the local stack start.

Only the choice lives here; the servers bind for themselves. Apart because Kafka, Redis, Sentinel and the
processes of `gir` all need the same guarantee: a port stays free for a server while that server is down.
"""

import secrets
import socket

# Linux takes the ports of outgoing connections from 32768 upwards. Below that no client connection can sit
# on the port of a server that is being restarted.
LOWEST_PORT = 20_000
HIGHEST_PORT = 32_000
_TRIES = 200


def is_free(port: int) -> bool:
    """True when nothing listens on `port` of 127.0.0.1; connections of an earlier server that linger do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        # The servers set this too, so a port in TIME_WAIT is theirs to take.
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port of 127.0.0.1 that is free now and that no outgoing connection will take."""
    for _ in range(_TRIES):
        port = LOWEST_PORT + secrets.randbelow(HIGHEST_PORT - LOWEST_PORT)
        if is_free(port):
            return port
    raise OSError(f"no free port found between {LOWEST_PORT} and {HIGHEST_PORT} in {_TRIES} tries")
