"""A screen refuses from the head alone: the body is neither asked for nor read."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer
from services.wire.http1.requests import Request


class Door:
    """Refuses targets under /no from the head; counts complete requests."""

    def __init__(self) -> None:
        self.screened = 0
        self.handled: list[bytes] = []

    def screen(self, request: Request, responder: Responder) -> bool:
        self.screened += 1
        assert request.body == b""
        if request.path.startswith(b"/no"):
            responder.respond(403, (), b"no")
            return True
        return False

    def handle(self, request: Request, responder: Responder) -> None:
        self.handled.append(request.body)
        responder.respond(200, (), b"yes")


@pytest.fixture
async def door() -> AsyncIterator[tuple[Door, int]]:
    door = Door()
    server = HttpServer(door.handle, screen=door.screen)
    port = await server.listen("127.0.0.1", 0)
    yield door, port
    await server.close()


async def test_an_expecting_client_is_refused_without_100_continue(door: tuple[Door, int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door[1])
    writer.write(b"POST /no HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 5)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"100 Continue" not in answer
    assert b"connection: close" in answer
    assert door[0].handled == []
    writer.close()


async def test_a_body_that_comes_later_is_screened_once_and_handled_whole(door: tuple[Door, int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door[1])
    for part in (b"POST /yes HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n", b"ab", b"cde"):
        writer.write(part)
        await writer.drain()
    answer = await asyncio.wait_for(reader.readuntil(b"yes"), 5)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert door[0].handled == [b"abcde"]
    assert door[0].screened <= 1
    writer.write(b"POST /no HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 403 ")
    writer.close()
