import asyncio

from services.adapters.memory.clock import VirtualClock
from services.core.units import WallMs, ms, seconds


async def test_sleepers_wake_in_the_order_of_their_deadlines_each_at_its_own_instant() -> None:
    clock = VirtualClock()
    start = clock.now()
    woken: list[tuple[str, int]] = []

    async def sleeper(name: str, span_ms: int) -> None:
        await clock.sleep(ms(span_ms))
        woken.append((name, clock.now() - start))

    async with asyncio.TaskGroup() as scope:
        for name, span_ms in (("late", 300), ("first", 100), ("tie", 100)):
            scope.create_task(sleeper(name, span_ms))
        await clock.advance(ms(200))
        assert woken == [("first", ms(100)), ("tie", ms(100))]
        assert clock.now() - start == ms(200)
        await clock.advance(ms(100))
    assert woken[-1] == ("late", ms(300))


async def test_a_loop_that_sleeps_again_runs_once_per_interval_within_one_advance() -> None:
    clock = VirtualClock()
    ticks = 0

    async def ticker() -> None:
        nonlocal ticks
        while ticks < 10:
            await clock.sleep(ms(100))
            ticks += 1

    async with asyncio.TaskGroup() as scope:
        scope.create_task(ticker())
        await clock.advance(ms(999))
        assert ticks == 9
        await clock.advance(ms(1))
    assert ticks == 10


async def test_a_cancelled_sleeper_is_passed_over() -> None:
    clock = VirtualClock()
    async with asyncio.TaskGroup() as scope:
        sleeper = scope.create_task(clock.sleep(seconds(1)))
        await clock.settle()
        sleeper.cancel()
        await clock.advance(seconds(2))
    assert sleeper.cancelled()


async def test_a_sleep_of_nothing_only_yields() -> None:
    clock = VirtualClock()
    before = clock.now()
    await clock.sleep(ms(0))
    assert clock.now() == before


async def test_the_wall_clock_follows_and_can_be_set_back_without_moving_instants() -> None:
    clock = VirtualClock(WallMs(5_000_000))
    await clock.advance(seconds(2))
    assert clock.wall_ms() == 5_002_000
    before = clock.now()
    clock.set_wall_ms(WallMs(1_402_000))
    assert (clock.wall_ms(), clock.now()) == (1_402_000, before)
    await clock.advance(ms(500))
    assert clock.wall_ms() == 1_402_500


async def test_sleepers_of_a_paused_process_wake_late_and_time_never_goes_back() -> None:
    clock = VirtualClock()
    start = clock.now()
    woken: list[int] = []

    async def sleeper() -> None:
        await clock.sleep(seconds(1))
        woken.append(clock.now() - start)

    async with asyncio.TaskGroup() as scope:
        scope.create_task(sleeper())
        await clock.settle()
        clock.pause(seconds(10))
        assert woken == []
        await clock.advance(seconds(1))
    assert woken == [seconds(10)]
    assert clock.now() - start == seconds(11)
