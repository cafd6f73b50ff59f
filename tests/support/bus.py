"""Reading a bus in tests: everything up to a condition, with a deadline."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from services.adapters.ports import BusReader, BusRecord, CaughtUp

Read = list[BusRecord | CaughtUp]


async def read_until(reader: BusReader, done: Callable[[Read], object], timeout_s: float = 30.0) -> Read:
    """Return all that `reader` yields until `done` holds."""
    read: Read = []
    try:
        async with asyncio.timeout(timeout_s), aclosing(reader.records()) as records:
            async for batch in records:
                read += batch
                if done(read):
                    return read
    except TimeoutError:
        raise TimeoutError(f"not within {timeout_s:g} s; read so far: {read}") from None
    raise EOFError(f"the reader ended; read so far: {read}")


def caught_up(read: Read) -> bool:
    """Whether the replay is complete."""
    return any(isinstance(item, CaughtUp) for item in read)


def kept(read: Read) -> list[BusRecord]:
    """Return the records without the marks between them."""
    return [item for item in read if isinstance(item, BusRecord)]
