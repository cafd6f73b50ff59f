"""Waiting for an instant that may be brought forward: one task waits, anybody may ring earlier.

Time comes from the injected clock, so that virtual time drives it too. Nothing here knows
what the waiting is for. Apart because the view and the prober's schedule wait alike.
"""

import asyncio
from functools import partial

from services.adapters.ports import Clock
from services.adapters.system.tasks import TaskScope
from services.core.units import Duration, Instant


class Alarm:
    """For one waiting task. `ring_by` costs a comparison when the alarm is set early enough already."""

    def __init__(self, clock: Clock, scope: TaskScope, name: str) -> None:
        self._clock = clock
        self._scope = scope
        self._name = name
        self._set_for: Instant | None = None
        self._asked_for: Instant | None = None
        self._rung: asyncio.Future[None] | None = None

    def ring_by(self, at: Instant) -> None:
        """Let the wait, now or next, end at `at` if it would end later."""
        if self._set_for is not None and self._set_for <= at:
            return
        if self._asked_for is None or at < self._asked_for:
            self._asked_for = at
            _ring(self._rung)

    async def wait_until(self, at: Instant) -> None:
        """Wait until `at`, or the earlier instant that `ring_by` asks for."""
        while True:
            if self._asked_for is not None:
                at, self._asked_for = min(at, self._asked_for), None
            span = Duration(at - self._clock.now())
            if span <= 0:
                return
            rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            sleeper = self._scope.spawn(self._clock.sleep(span), self._name)
            sleeper.add_done_callback(partial(_slept, rung))
            self._set_for, self._rung = at, rung
            try:
                await rung
            finally:
                self._set_for = self._rung = None
                sleeper.cancel()


def _slept(rung: asyncio.Future[None], _: asyncio.Task[None]) -> None:
    _ring(rung)


def _ring(rung: asyncio.Future[None] | None) -> None:
    if rung is not None and not rung.done():
        rung.set_result(None)
