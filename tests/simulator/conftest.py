"""A simulated pod on a real socket and a client of it."""

from collections.abc import AsyncIterator

import httpx
import pytest

from services.simulator.assembly import RunningPod
from tests.simulator.pods import running_pod


@pytest.fixture
async def pod() -> AsyncIterator[RunningPod]:
    async with running_pod(pod="pod-7", aliases=("alias",)) as started:
        yield started


@pytest.fixture
async def http(pod: RunningPod) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{pod.address}") as client:
        yield client
