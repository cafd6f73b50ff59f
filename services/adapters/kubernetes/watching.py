"""Several watches of one source at a time, and one reader that is woken when any of them has news.

The tasks live as long as the reader's loop: a fault in one of them is raised there, and its end cancels them all.
Apart from the sources because both need exactly this and neither should keep tasks itself.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self

from services.adapters.kubernetes.watch import Objects, ObjectWatch
from services.adapters.ports import Clock
from services.core.units import Duration


class Watching:
    """`async with Watching() as watching`, then `follow` watches and `await changed()` in turn."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def follow(self, watch: ObjectWatch, take: Callable[[Objects], None]) -> Callable[[], object]:
        """Call `take` with each set of `watch`; returns what ends that."""
        return self._spawn(self._taken(watch, take)).cancel

    def remind(self, clock: Clock, every: Duration) -> None:
        """Count the passing of `every` as news, for what depends on more than the watches."""
        self._spawn(self._reminded(clock, every))

    async def changed(self) -> None:
        """Return once any watch had news since the last call; raises what a watch died of."""
        await self._news.wait()
        self._news.clear()
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def _taken(self, watch: ObjectWatch, take: Callable[[Objects], None]) -> None:
        async for objects in watch.sets():
            take(objects)
            self._news.set()

    async def _reminded(self, clock: Clock, every: Duration) -> None:
        while True:
            await clock.sleep(every)
            self._news.set()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            self._tasks.discard(task)
        else:
            self._news.set()
