"""What every `PublisherLease` promises: in one process, between descriptors of one file, through Kubernetes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deploy.stack.kubernetes import KubernetesServer
from services.adapters.kubernetes.api import KubernetesApi
from services.adapters.kubernetes.lease import KubernetesLease, LeaseRules
from services.adapters.memory.lease import MemoryElection
from services.adapters.ports import PublisherLease
from services.adapters.system.clock import SystemClock
from services.adapters.system.file_lease import FileLease
from services.adapters.system.ids import SystemIds
from services.core.units import ms


@pytest.fixture(params=["memory", "file", pytest.param("kubernetes", marks=pytest.mark.server)])
async def candidate(
    request: pytest.FixtureRequest, tmp_path: Path, fresh_name: str
) -> AsyncIterator[Callable[[], PublisherLease]]:
    """Makes candidates of one election."""
    if request.param == "memory":
        yield MemoryElection().candidate
    elif request.param == "file":
        yield lambda: FileLease(tmp_path / "publisher.lock", SystemClock())
    else:
        server: KubernetesServer = request.getfixturevalue("kubernetes_server")
        api = KubernetesApi(server.kubeconfig())
        clock, ids, rules = SystemClock(), SystemIds(), LeaseRules(every=ms(50))
        yield lambda: KubernetesLease(api, "default", fresh_name, "picker", clock, ids, rules)
        await api.close()


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
