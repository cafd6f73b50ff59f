"""Election by a file lock: one holder, handed on when released or when its process dies."""

import asyncio
import sys
from pathlib import Path

import pytest

from services.adapters.memory.clock import VirtualClock
from services.adapters.system.clock import SystemClock
from services.adapters.system.file_lease import FileLease
from services.core.units import seconds


async def test_one_of_several_holds_it_and_release_hands_it_on(tmp_path: Path) -> None:
    clock = VirtualClock()
    first, second = (FileLease(tmp_path / "lease", clock) for _ in range(2))
    await first.acquire()
    await first.acquire()
    assert first.held()
    async with asyncio.TaskGroup() as scope:
        waiting = scope.create_task(second.acquire())
        await clock.advance(seconds(5))
        assert not waiting.done()
        assert not second.held()
        await first.release()
        assert not first.held()
        await clock.advance(seconds(0.25))
        assert second.held()
    await second.release()
    await second.release()


async def test_giving_up_waiting_leaves_the_lock_to_others(tmp_path: Path) -> None:
    clock = VirtualClock()
    first, second = (FileLease(tmp_path / "lease", clock) for _ in range(2))
    await first.acquire()
    async with asyncio.TaskGroup() as scope:
        waiting = scope.create_task(second.acquire())
        await clock.settle()
        waiting.cancel()
    assert not second.held()
    await first.release()
    await second.acquire()
    assert second.held()
    await second.release()


HOLDER = """
import fcntl, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


async def test_a_holder_that_is_killed_is_succeeded(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(file), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        lease = FileLease(file, SystemClock())
        async with asyncio.timeout(10), asyncio.TaskGroup() as scope:
            waiting = scope.create_task(lease.acquire())
            await asyncio.sleep(0)
            assert not waiting.done()
            holder.kill()
        assert lease.held()
        await lease.release()
    finally:
        if holder.returncode is None:
            holder.kill()
        await holder.communicate()


async def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await FileLease(tmp_path / "no" / "lease", SystemClock()).acquire()
