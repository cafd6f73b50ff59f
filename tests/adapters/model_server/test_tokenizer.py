import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from services.adapters.model_server.tokenizer import MAX_ANSWER_BYTES, HttpTokenizer
from services.core.units import ms, seconds

PATIENCE = seconds(10)


@asynccontextmanager
async def server(answer: Callable[[bytes], bytes | None]) -> AsyncIterator[str]:
    """An HTTP server that answers each body; None: it stays silent."""

    served: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"POST /tokenize HTTP/1.1\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        said = answer(await reader.readexactly(length))
        # The client may leave before the end: that is what some tests are about.
        with suppress(ConnectionError):
            if said is None:
                await reader.read()
            else:
                writer.write(said)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with asyncio.TaskGroup() as scope:
        listening = await asyncio.start_server(
            lambda reader, writer: served.append(scope.create_task(serve(reader, writer))), "127.0.0.1", 0
        )
        async with listening:
            yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            await asyncio.gather(*served)


def page(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


async def test_a_server_is_asked_for_the_ids_of_a_body() -> None:
    asked: list[bytes] = []
    tokenizer = HttpTokenizer()

    def answer(body: bytes) -> bytes:
        asked.append(body)
        return page(b'{"tokens":[1,2]}')

    async with server(answer) as address:
        assert await tokenizer.tokenize(address, b'{"prompt":"hi"}', PATIENCE) == struct.pack("<2I", 1, 2)
    assert asked == [b'{"prompt":"hi"}']
    await tokenizer.close()


async def test_every_failure_is_no_answer() -> None:
    tokenizer = HttpTokenizer()
    for said in (
        page(b"", b"404 Not Found"),
        page(b"{}"),
        b"nonsense\r\n\r\n",
        page(b" " * (MAX_ANSWER_BYTES + 1)),
    ):
        async with server(lambda _, said=said: said) as address:  # type: ignore[misc]  # bound per turn
            assert await tokenizer.tokenize(address, b"{}", PATIENCE) is None
    assert await tokenizer.tokenize("127.0.0.1:1", b"{}", PATIENCE) is None
    assert await tokenizer.tokenize("not an address", b"{}", PATIENCE) is None
    await tokenizer.close()


async def test_a_silent_server_costs_its_time_and_no_more() -> None:
    tokenizer = HttpTokenizer()
    async with server(lambda _: None) as address:
        assert await tokenizer.tokenize(address, b"{}", ms(50)) is None
    await tokenizer.close()
