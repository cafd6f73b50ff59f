"""A broadcast wake-up that any number of tasks may wait for, bounded by an injected clock.

It carries no data: the woken task looks again at what it waits for. Apart because the bus
and the store wait in the same way.
"""

import asyncio

from services.adapters.ports import Clock
from services.core.units import Duration


class Signal:
    """`fire` wakes everyone who waits now; later waiters wait for the next one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Wake all present waiters."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next `fire`."""
        await self._event.wait()

    async def wait_within(self, clock: Clock, span: Duration) -> bool:
        """Wait for the next `fire` for at most `span` of `clock`; return whether it came."""
        event = self._event
        async with asyncio.TaskGroup() as scope:
            fired = scope.create_task(event.wait())
            slept = scope.create_task(clock.sleep(span))
            await asyncio.wait((fired, slept), return_when=asyncio.FIRST_COMPLETED)
            fired.cancel()
            slept.cancel()
        return event.is_set()
