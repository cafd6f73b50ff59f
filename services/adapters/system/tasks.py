"""Background tasks that are kept, named, and reported when they fail.

A bare `asyncio.create_task` may be collected while running, and its exception is lost; this
is the only module that calls it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

OnFailure = Callable[[str, BaseException], None]


class TaskScope:
    """Owns the background tasks of one service.

    `on_failure(name, exception)` is called when a task ends with an exception; the scope does not
    restart it, because only the owner knows whether that is safe.
    """

    def __init__(self, on_failure: OnFailure) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start `coroutine` under `name`; the returned task may be cancelled or awaited."""
        task = asyncio.create_task(coroutine, name=name)  # noqa: TID251 -- the one place that keeps the reference
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None:
            self._on_failure(task.get_name(), failure)

    async def close(self) -> None:
        """Cancel every task and wait until all have ended."""
        pending = list(self._tasks)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
