import asyncio

import pytest

from services.adapters.memory.clock import VirtualClock
from services.adapters.system.tasks import TaskScope
from services.core.units import Instant, after, ms
from services.global_router.alarm import Alarm


def fail(name: str, failure: BaseException) -> None:
    raise AssertionError(name) from failure


class Waiter:
    """One task that waits for given instants, one after the other, and notes when it woke."""

    def __init__(self, *ats: Instant, clock: VirtualClock) -> None:
        self.clock = clock
        self.scope = TaskScope(fail)
        self.alarm = Alarm(clock, self.scope, "test alarm")
        self.woken: list[Instant] = []
        self.scope.spawn(self._wait(ats), "waiter")

    async def _wait(self, ats: tuple[Instant, ...]) -> None:
        for at in ats:
            await self.alarm.wait_until(at)
            self.woken.append(self.clock.now())


async def test_a_wait_ends_at_its_instant() -> None:
    clock = VirtualClock()
    start = clock.now()
    waiter = Waiter(after(start, ms(100)), after(start, ms(50)), after(start, ms(250)), clock=clock)
    await clock.advance(ms(1000))
    assert waiter.woken == [after(start, ms(100)), after(start, ms(100)), after(start, ms(250))]
    await waiter.scope.close()


async def test_a_wait_can_be_brought_forward_but_not_put_off() -> None:
    clock = VirtualClock()
    start = clock.now()
    waiter = Waiter(after(start, ms(500)), after(start, ms(900)), clock=clock)
    await clock.advance(ms(10))
    waiter.alarm.ring_by(after(start, ms(700)))
    waiter.alarm.ring_by(after(start, ms(300)))
    waiter.alarm.ring_by(after(start, ms(400)))
    await clock.advance(ms(2000))
    assert waiter.woken == [after(start, ms(300)), after(start, ms(900))]
    await waiter.scope.close()


@pytest.mark.parametrize("asked_ms", [0, 20])
async def test_what_is_asked_for_while_nobody_waits_holds_for_the_next_wait(asked_ms: int) -> None:
    clock = VirtualClock()
    start = clock.now()
    alarm = Alarm(clock, TaskScope(fail), "test alarm")
    alarm.ring_by(after(start, ms(asked_ms)))
    waiting = asyncio.ensure_future(alarm.wait_until(after(start, ms(500))))  # noqa: TID251 -- the test keeps it
    await clock.advance(ms(asked_ms))
    assert waiting.done()


async def test_a_cancelled_wait_leaves_no_sleeper_behind() -> None:
    clock = VirtualClock()
    waiter = Waiter(after(clock.now(), ms(500)), clock=clock)
    await clock.settle()
    await waiter.scope.close()
    await clock.advance(ms(1000))
    assert waiter.woken == []
