"""A namespace on the run's API server, and the adapter's connection to it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from deploy.stack.kubernetes import KubernetesServer
from services.adapters.kubernetes.api import KubernetesApi
from tests.support.kubernetes import Namespace, install, make_namespace


@pytest.fixture
def namespace(kubernetes_server: KubernetesServer, fresh_name: str) -> Iterator[Namespace]:
    """An empty namespace on a server that knows the field's resources."""
    install(kubernetes_server)
    with kubernetes_server.client() as client:
        yield make_namespace(kubernetes_server, fresh_name, client)


@pytest.fixture
async def api(kubernetes_server: KubernetesServer) -> AsyncIterator[KubernetesApi]:
    """The administrator's connection."""
    connected = KubernetesApi(kubernetes_server.kubeconfig())
    yield connected
    await connected.close()


@pytest.fixture
async def own_kubernetes_api(own_kubernetes: KubernetesServer) -> AsyncIterator[KubernetesApi]:
    """The administrator's connection to a server that the test alone uses, without any custom resource."""
    connected = KubernetesApi(own_kubernetes.kubeconfig())
    yield connected
    await connected.close()


class Latest:
    """What a source yielded last, read in the background."""

    def __init__(self) -> None:
        self.sets: list[Any] = []

    @property
    def last(self) -> Any:
        return self.sets[-1] if self.sets else None


@pytest.fixture
async def follow() -> AsyncIterator[Callable[[Any], Latest]]:
    """Follows a source until the test ends; what it died of fails the test."""
    import asyncio

    tasks: list[asyncio.Task[None]] = []
    async with AsyncExitStack():

        def begin(source: Any) -> Latest:
            latest = Latest()

            async def read() -> None:
                async for each in source.sets():
                    latest.sets.append(each)

            tasks.append(asyncio.get_running_loop().create_task(read()))
            return latest

        yield begin
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError), outcome
