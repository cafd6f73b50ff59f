"""Where doors listen: the settings that both tiers share.

Until TLS is built every listener speaks plain text, so it stays on loopback unless told otherwise.
Apart from each service's settings so that the rule is one.
"""

from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import Field

from services.wire.config.settings_source import Settings

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

Port = Annotated[int, Field(ge=0, le=65535)]


class Listener(Settings):
    """Where one door listens. Port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: Port = 0


class MetricsDoor(Listener):
    """Prometheus metrics; on one host the next free port is taken and printed."""

    port: Port = 9090


def check_loopback(doors: Iterable[Listener]) -> None:
    """Raise `ValueError` for a door that would speak plain text beyond this host."""
    for door in doors:
        if door.host not in LOOPBACK:
            raise ValueError(
                f"{door.host}: listening outside loopback in plain text needs insecure_bind: true"
            )
