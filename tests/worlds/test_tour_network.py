import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from services.worlds.tour_network import SwitchedLoop


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


def switched(story: Callable[[SwitchedLoop, int], Awaitable[None]]) -> None:
    """Run `story(loop, port of an echo server)` in a loop whose network has a switch."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SwitchedLoop)
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            await story(loop, server.sockets[0].getsockname()[1])

    uvloop.run(play(), loop_factory=SwitchedLoop)


def test_a_cut_drops_what_leads_out_and_refuses_more_until_it_is_restored() -> None:
    async def story(loop: SwitchedLoop, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        loop.cut()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read(1) == b""
        writer.close()
        loop.restore()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        writer.close()

    switched(story)


def test_a_cut_leaves_the_worlds_own_connections_alone() -> None:
    async def story(loop: SwitchedLoop, port: int) -> None:
        loop.inside = {port}
        before = await asyncio.open_connection("127.0.0.1", port)
        loop.cut()
        after = await asyncio.open_connection("127.0.0.1", port)
        for reader, writer in (before, after):
            writer.write(b"x")
            assert await reader.read(1) == b"x"
            writer.close()

    switched(story)


def test_a_connection_that_was_being_made_when_the_network_was_cut_does_not_survive() -> None:
    async def story(loop: SwitchedLoop, port: int) -> None:
        connecting = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", port))  # noqa: TID251 -- awaited here
        await asyncio.sleep(0)
        loop.cut()
        with pytest.raises(ConnectionError):
            await connecting

    switched(story)
