"""One fleet for all process stories, with a Kafka and a Redis that the stories may stop and kill."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from deploy.stack.kafka import KafkaServer
from deploy.stack.ports import free_port
from deploy.stack.redis import RedisServer
from tests.scenarios.processes.fleet import ProcessFleet
from tests.scenarios.processes.plan import make_plan
from tests.support.stack import made_or_skipped


@pytest.fixture(scope="package")
def fleet_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = made_or_skipped("kafka", lambda: KafkaServer(tmp_path_factory.mktemp("fleet-kafka")))
    with ExitStack() as undo:
        undo.callback(server.kill)
        server.start()
        yield server


@pytest.fixture(scope="package")
def fleet_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Empty after every restart."""
    server = made_or_skipped("redis", lambda: RedisServer(tmp_path_factory.mktemp("fleet-redis")))
    with ExitStack() as undo:
        undo.callback(server.kill)
        server.start()
        yield server


@pytest.fixture(scope="package")
def fleet(
    tmp_path_factory: pytest.TempPathFactory, fleet_kafka: KafkaServer, fleet_redis: RedisServer
) -> Iterator[ProcessFleet]:
    given: set[int] = set()

    def port() -> int:
        while (chosen := free_port()) in given:
            continue
        given.add(chosen)
        return chosen

    fleet = ProcessFleet(tmp_path_factory.mktemp("fleet"), make_plan(port), fleet_kafka, fleet_redis)
    with ExitStack() as undo:
        undo.callback(fleet.stop)
        fleet.start()
        yield fleet
        assert fleet.tracebacks() == {}, "a service told its trouble as a traceback"
