"""What every `PublisherLease` promises, in one process and between descriptors of one file."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from services.adapters.memory.lease import MemoryElection
from services.adapters.ports import PublisherLease
from services.adapters.system.clock import SystemClock
from services.adapters.system.file_lease import FileLease


@pytest.fixture(params=["memory", "file"])
def candidate(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], PublisherLease]:
    """Makes candidates of one election."""
    if request.param == "memory":
        return MemoryElection().candidate
    return lambda: FileLease(tmp_path / "publisher.lock", SystemClock())


Candidate = Callable[[], PublisherLease]


async def test_one_of_many_candidates_holds_it(candidate: Candidate) -> None:
    first, second = candidate(), candidate()
    assert not first.held()
    await first.acquire()
    async with asyncio.TaskGroup() as scope:
        waiting = scope.create_task(second.acquire())
        done, _ = await asyncio.wait((waiting,), timeout=0)
        assert not done
        assert (first.held(), second.held()) == (True, False)
        await first.release()
        assert not first.held()
    assert second.held()
    await second.release()


async def test_acquiring_what_is_held_returns_and_releasing_twice_harms_nobody(candidate: Candidate) -> None:
    first, second = candidate(), candidate()
    await first.acquire()
    await first.acquire()
    await first.release()
    await second.acquire()
    await first.release()
    assert second.held()
    await second.release()


async def test_a_candidate_that_gives_up_waiting_does_not_get_it(candidate: Candidate) -> None:
    first, second, third = candidate(), candidate(), candidate()
    await first.acquire()
    waiting = asyncio.get_running_loop().create_task(second.acquire())
    await asyncio.wait((waiting,), timeout=0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    await first.release()
    await third.acquire()
    assert (second.held(), third.held()) == (False, True)
    await third.release()
