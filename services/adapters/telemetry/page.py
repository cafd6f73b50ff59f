"""The metrics page over HTTP, on a port of its own so that no client of a door can read it.

Both tiers serve it with the HTTP room's server, which this room does not know: it answers through whatever
can respond. What stands on the page is `prometheus`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from services.adapters.telemetry.prometheus import CONTENT_TYPE, MetricsPage
from services.wire.http1.requests import Request


class Responds(Protocol):
    """What is needed of a responder."""

    def respond(self, status: int, headers: Sequence[tuple[bytes, bytes]] = (), body: bytes = b"") -> None:
        """Answer completely."""


def metrics_handler(page: MetricsPage) -> Callable[[Request, Responds], None]:
    """Return a request handler that answers `/metrics` and nothing else."""

    def handle(request: Request, responder: Responds) -> None:
        if request.path == b"/metrics":
            responder.respond(200, ((b"content-type", CONTENT_TYPE.encode()),), page.render())
        else:
            responder.respond(404)

    return handle
