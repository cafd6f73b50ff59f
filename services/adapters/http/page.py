"""A server of one page on a port of its own, such as metrics: no client of a data door can read it.

What the page says is handed in as a function. Apart from the doors because both tiers serve one.
"""

from collections.abc import Callable
from typing import Final

from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer
from services.wire.http1.requests import Request

PORTS_TRIED: Final = 100
"""More processes than this on one host are a mistake in a supervisor."""


class PageServer:
    """Answers `path` with what `render` returns, and nothing else."""

    def __init__(self, path: bytes, content_type: str, render: Callable[[], bytes]) -> None:
        self._path = path
        self._headers = ((b"content-type", content_type.encode("ascii")),)
        self._render = render
        self._server = HttpServer(self._handle)

    async def listen(self, host: str, port: int) -> int:
        """Listen on `port` or, on a host with several processes, the next free one; return it.

        Port 0 takes any. Raises OSError when the host cannot be listened on or no port is free.
        """
        last = port if port == 0 else port + PORTS_TRIED - 1
        for candidate in range(port, last):
            try:
                return await self._server.listen(host, candidate)
            except OSError:
                continue
        return await self._server.listen(host, last)

    async def close(self) -> None:
        """Stop at once."""
        await self._server.close()

    def _handle(self, request: Request, responder: Responder) -> None:
        if request.path == self._path:
            responder.respond(200, self._headers, self._render())
        else:
            responder.respond(404)
