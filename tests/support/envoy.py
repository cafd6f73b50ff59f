"""One Envoy for the whole run, in front of places where each test puts pods and pickers of its own.

Envoy's configuration is fixed at its start, so the addresses are: three pods, and three pickers' ports, one for
each set of rules a stream may have. A test starts on them what it needs and leaves them free again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.stack.envoy import EnvoyServer
from deploy.stack.envoy_config import Body, Follow, Gateway
from deploy.stack.ports import free_port

PODS = 3


@dataclass(frozen=True, slots=True)
class EnvoyPlaces:
    """The running Envoy; ports of its listeners by name, and the ports where pods and pickers are looked for.

    Listeners: `production` and `observed` follow metadata with duplex bodies, the latter through the response
    phase; `open` and `closed` buffer bodies and fail open or closed; `field` is a Gateway API implementation's
    shape: ORIGINAL_DST, every phase duplex; `bare` asks no picker.
    """

    server: EnvoyServer
    listeners: Mapping[str, int]
    pod_ports: tuple[int, ...]
    picker_port: int
    observing_port: int
    field_port: int

    def url(self, listener: str) -> str:
        """Where clients of a listener go."""
        return f"http://127.0.0.1:{self.listeners[listener]}"


def make_places(directory: Path) -> EnvoyPlaces:
    """Return an Envoy that is not started. Raises `PartMissingError` where there is none."""
    pod_ports = tuple(free_port() for _ in range(PODS))
    pods = tuple(f"127.0.0.1:{port}" for port in pod_ports)
    picker, observing, field = free_port(), free_port(), free_port()

    def gateway(name: str, port: int | None, **shape: object) -> Gateway:
        address = None if port is None else f"127.0.0.1:{port}"
        return Gateway(name, free_port(), address, pods, subset_header=True, **shape)  # type: ignore[arg-type]  # fields of Gateway

    gateways = (
        gateway("production", picker),
        gateway("open", picker, body=Body.BUFFERED, fail_open=True, message_timeout_s=2.0),
        gateway("closed", picker, body=Body.BUFFERED, message_timeout_s=2.0),
        gateway("observed", observing, responses=True),
        gateway("field", field, follow=Follow.HEADER, responses=True),
        gateway("bare", None),
    )
    server = EnvoyServer(directory, gateways)
    listeners = {each.name: each.port for each in gateways}
    return EnvoyPlaces(server, listeners, pod_ports, picker, observing, field)
