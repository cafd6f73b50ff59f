"""The driver on a running loop: order of telling, one timer, silence after close."""

import asyncio
from dataclasses import replace

from services.adapters.system.clock import SystemClock
from services.simulator.driver import EngineDriver
from services.simulator.engine import Engine
from services.simulator.events import (
    AllBlocksCleared,
    BlocksStored,
    EngineRequest,
    Finished,
    FirstToken,
    KvChange,
)
from tests.simulator.profiles import TINY
from tests.support.wait import eventually


class Told:
    """Keeps what it is told, in order; may ask the driver to settle while being told."""

    def __init__(self, driver: EngineDriver, *, meddle: bool = False) -> None:
        self.words: list[str] = []
        self._driver = driver
        self._meddle = meddle

    def first_token(self, index: int, event: FirstToken) -> None:
        self._say(f"{index} first {event.request_id}")

    def token(self, index: int) -> None:
        self._say(f"{index} token")

    def finished(self, index: int, event: Finished) -> None:
        self._say(f"{index} {event.reason.value}")

    def flush(self) -> None:
        self.words.append("flush")

    def spoken(self) -> list[str]:
        return [word for word in self.words if word != "flush"]

    def _say(self, words: str) -> None:
        if self._meddle:
            self._driver.settle()
        self.words.append(words)


def driver(wake_interval_ms: int = 1) -> EngineDriver:
    clock = SystemClock()
    return EngineDriver(Engine(TINY, clock.now()), clock, wake_interval_ms)


def request(name: str, output: int) -> EngineRequest:
    return EngineRequest(name, 10, output, streamed=True)


async def test_each_listener_hears_its_own_sequences_in_order() -> None:
    drive = driver()
    one, other = Told(drive), Told(drive)
    drive.submit(request("a", 3), one, 0)
    drive.submit(request("b", 2), other, 7)
    await eventually(lambda: one.words[-2:] == ["0 length", "flush"] and "7 length" in other.words)
    assert one.spoken() == ["0 first a", "0 token", "0 token", "0 length"]
    assert other.spoken() == ["7 first b", "7 token", "7 length"]


async def test_a_listener_that_settles_meanwhile_still_hears_in_order() -> None:
    drive = driver()
    told = Told(drive, meddle=True)
    drive.submit(request("a", 30), told, 0)
    await eventually(lambda: "0 length" in told.words)
    assert told.spoken() == ["0 first a", *["0 token"] * 29, "0 length"]


async def test_tokens_of_one_wake_are_flushed_together() -> None:
    drive = driver(wake_interval_ms=1_000)
    told = Told(drive)
    drive.submit(request("a", 3), told, 0)
    await eventually(lambda: "0 length" in told.words)
    assert told.words == ["0 first a", "0 token", "0 token", "0 length", "flush"]


async def test_an_abort_is_told_as_the_end() -> None:
    drive = driver()
    told = Told(drive)
    drive.submit(request("a", 200), told, 0)
    drive.abort("a")
    await eventually(lambda: "0 abort" in told.words)


async def test_a_closed_driver_never_wakes_again() -> None:
    drive = driver()
    told = Told(drive)
    drive.submit(request("a", 3), told, 0)
    drive.close()
    drive.abort("a")
    drive.slow_down(replace(drive.engine._slowdown, inter_token_factor=2.0))
    assert drive._timer is None
    await asyncio.sleep(0)
    assert told.words == []


async def test_what_happens_to_blocks_goes_to_the_sink_batch_by_batch() -> None:
    clock = SystemClock()
    batches: list[list[KvChange]] = []
    drive = EngineDriver(Engine(TINY, clock.now(), journal=True), clock, 1, batches.append)
    told = Told(drive)
    drive.submit(EngineRequest("a", 20, 3, (b"0",)), told, 0)
    await eventually(lambda: "0 length" in told.words)
    assert batches == [[BlocksStored((b"0",), None, 0, b"", "", "")]]
    assert drive.reset_prefix_cache()
    assert batches[1:] == [[AllBlocksCleared()]]


async def test_a_sleeping_driver_answers_once_woken() -> None:
    drive = driver()
    told = Told(drive)
    drive.sleep()
    drive.submit(request("a", 2), told, 0)
    drive.settle()
    assert told.words == []
    assert drive._timer is None
    drive.wake()
    await eventually(lambda: "0 length" in told.words)
