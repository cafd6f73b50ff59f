"""The metrics page over HTTP, on a port of its own so that no client of the gateway can read it."""

from services.adapters.http.connection import RequestHandler
from services.adapters.http.responder import Responder
from services.adapters.telemetry.prometheus import CONTENT_TYPE, MetricsPage
from services.wire.http1.requests import Request


def metrics_handler(page: MetricsPage) -> RequestHandler:
    """Return a handler that answers `/metrics` and nothing else."""

    def handle(request: Request, responder: Responder) -> None:
        if request.path == b"/metrics":
            responder.respond(200, ((b"content-type", CONTENT_TYPE.encode()),), page.render())
        else:
            responder.respond(404)

    return handle
