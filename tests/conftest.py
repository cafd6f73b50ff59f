"""Fixtures for real servers and real processes, shared by every test.

`kafka_server`, `redis_server` and `kubernetes_server` are started once and shared: take names of topics, fleets
and namespaces from `fresh_name`. `own_kafka`, `own_redis` and `own_kubernetes` belong to one test, which may
stop, kill, pause and restart them.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from deploy.stack.kafka import KafkaServer
from deploy.stack.kubernetes import KubernetesServer
from deploy.stack.ports import free_port
from deploy.stack.redis import RedisServer
from tests.support.envoy import EnvoyPlaces, make_places
from tests.support.processes import GirProcess
from tests.support.stack import ServerTallies, made_or_skipped

# The summary of skips is itself tested, on small test runs.
pytest_plugins = ("pytester",)


# A property says what holds, never how fast: on a busy machine a first example may take a second.
settings.register_profile("gir", deadline=None)
settings.load_profile("gir")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ServerTallies(), "server-tallies")


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A real Kafka for the whole run; not to be stopped by a test."""
    server = made_or_skipped("kafka", lambda: KafkaServer(tmp_path_factory.mktemp("kafka")))
    with ExitStack() as undo:
        undo.callback(server.kill)
        server.start()
        yield server


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaServer]:
    """A real Kafka that the test alone uses and may do anything to."""
    server = made_or_skipped("kafka", lambda: KafkaServer(tmp_path / "kafka"))
    with ExitStack() as undo:
        undo.callback(server.kill)
        server.start()
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real Redis for the whole run; not to be stopped or flushed by a test."""
    server = made_or_skipped("redis", lambda: RedisServer(tmp_path_factory.mktemp("redis")))
    with ExitStack() as undo:
        undo.callback(server.kill)
        server.start()
        yield server


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A real Redis, empty after a restart, that the test alone uses and may do anything to."""
    server = made_or_skipped("redis", lambda: RedisServer(tmp_path / "redis"))
    with ExitStack() as undo:
        undo.callback(server.kill)
        server.start()
        yield server


@pytest.fixture(scope="session")
def kubernetes_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesServer]:
    """A real Kubernetes API server for the whole run; not to be stopped by a test."""
    server = made_or_skipped("kubernetes", lambda: KubernetesServer(tmp_path_factory.mktemp("kubernetes")))
    with ExitStack() as undo:
        undo.callback(server.kill)
        server.start()
        yield server


@pytest.fixture
def own_kubernetes(tmp_path: Path) -> Iterator[KubernetesServer]:
    """A real Kubernetes API server that the test alone uses and may do anything to."""
    server = made_or_skipped("kubernetes", lambda: KubernetesServer(tmp_path / "kubernetes"))
    with ExitStack() as undo:
        undo.callback(server.kill)
        server.start()
        yield server


@pytest.fixture(scope="session")
def envoy_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvoyPlaces]:
    """A real Envoy for the whole run; not to be stopped by a test, which puts pods and pickers in its places."""
    places = made_or_skipped("envoy", lambda: make_places(tmp_path_factory.mktemp("envoy")))
    with ExitStack() as undo:
        undo.callback(places.server.kill)
        places.server.start()
        yield places


@pytest.fixture
def fresh_name() -> str:
    """A name no other test uses: a prefix for topics, a fleet id, a key."""
    return f"t{secrets.token_hex(5)}"


@pytest.fixture
def new_port() -> Callable[[], int]:
    """Gives a free port of 127.0.0.1 at each call, which no outgoing connection will take."""
    return free_port


@pytest.fixture
def start_gir(tmp_path: Path) -> Iterator[Callable[..., GirProcess]]:
    """Starts `gir` verbs (`start_gir("router", "--config", path)`); whatever still runs is killed afterwards.

    Give each process of the same verb a `name` of its own: it names the files of its output.
    """
    with ExitStack() as undo:

        def start(
            *arguments: str, name: str | None = None, environment: Mapping[str, str] | None = None
        ) -> GirProcess:
            process = GirProcess(tmp_path / "processes", *arguments, name=name, environment=environment)
            undo.callback(process.kill)
            process.start()
            return process

        yield start
