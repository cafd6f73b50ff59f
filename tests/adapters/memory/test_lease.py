import asyncio

from services.adapters.memory.lease import MemoryElection, StaticLease


async def test_the_lease_passes_to_a_waiting_candidate_when_released() -> None:
    election = MemoryElection()
    first, second = election.candidate(), election.candidate()
    await first.acquire()
    async with asyncio.TaskGroup() as scope:
        waiting = scope.create_task(second.acquire())
        await asyncio.sleep(0)
        assert not waiting.done()
        assert (first.held(), second.held()) == (True, False)
        await first.release()
    assert (first.held(), second.held()) == (False, True)


async def test_a_revoked_holder_knows_and_its_late_release_harms_nobody() -> None:
    election = MemoryElection()
    first, second = election.candidate(), election.candidate()
    await first.acquire()
    election.revoke()
    assert not first.held()
    await second.acquire()
    await first.release()
    assert second.held()


async def test_acquiring_twice_is_held_once() -> None:
    lease = MemoryElection().candidate()
    await lease.acquire()
    await lease.acquire()
    assert lease.held()


async def test_the_static_lease_is_always_held() -> None:
    lease = StaticLease()
    await lease.acquire()
    await lease.release()
    assert lease.held()
