"""Ports of a world on one host: chosen before anything starts, because addresses are policy.

A port is asked of the kernel by binding it once; what listens later binds it again. Nothing is
kept open here. Apart from the topology so that it stays a function of the ports it is given.
"""

import socket

LOOPBACK = "127.0.0.1"
_LAST_PORT = 65_535


class PortTakenError(Exception):
    """A port that must be this one is in use; `port` is its number."""

    def __init__(self, port: int) -> None:
        super().__init__(f"port {port} on {LOOPBACK} is in use")
        self.port = port


class HostPorts:
    """Hands out ports of this host, each once."""

    def __init__(self) -> None:
        self._given: set[int] = set()

    def exactly(self, port: int) -> int:
        """Return `port` if it is free, else raise `PortTakenError`."""
        if port in self._given or not _is_free(port):
            raise PortTakenError(port)
        self._given.add(port)
        return port

    def next_free(self, preferred: int) -> int:
        """Return the first free port from `preferred` on; raise `PortTakenError` when there is none."""
        for port in range(preferred, _LAST_PORT + 1):
            if port not in self._given and _is_free(port):
                self._given.add(port)
                return port
        raise PortTakenError(preferred)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers set it too: a connection of an earlier run in TIME_WAIT keeps no port from them.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
