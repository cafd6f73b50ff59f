"""A picker on real Kafka: it reports, a second one takes over above it, and an outage costs it nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from deploy.stack.kafka import KafkaServer
from services.adapters.kafka.reader import KafkaBusReader
from services.adapters.kafka.settings import KafkaSettings
from services.adapters.ports import BusRecord, Topic
from services.adapters.system.clock import SystemClock
from services.adapters.system.tasks import TaskScope
from services.core.fleet import HealthReport
from services.endpoint_picker.assembly import Shared, build
from services.endpoint_picker.process import EndpointPicker
from services.wire.health_codec import decode_report
from tests.endpoint_picker.cluster import KEY, picker_settings, simulated_pod
from tests.support.wait import eventually

pytestmark = pytest.mark.server
OUTAGE_S = 60.0
"""A broker's restart takes up to 20 s here, and its clients up to 2 s more."""


class Heard:
    """Every health report that Kafka delivered for the cluster, in order."""

    def __init__(self) -> None:
        self.reports: list[HealthReport] = []

    async def listen(self, reader: KafkaBusReader, cluster: str) -> None:
        async for batch in reader.records():
            for record in batch:
                if isinstance(record, BusRecord) and record.key == cluster and record.value is not None:
                    self.reports.append(decode_report(record.value))


@asynccontextmanager
async def heard(kafka: KafkaServer, cluster: str) -> AsyncIterator[Heard]:
    found = Heard()
    failures: list[BaseException] = []
    scope = TaskScope(lambda _, failure: failures.append(failure))
    reader = KafkaBusReader(KafkaSettings(kafka.bootstrap), (Topic.HEALTH,), SystemClock())
    await reader.start()
    scope.spawn(found.listen(reader, cluster), "listen")
    yield found
    await scope.close()
    await reader.close()
    assert failures == []


def picker_on(kafka: KafkaServer, cluster: str, pods: list[str]) -> EndpointPicker:
    endpoints = [{"id": f"pod-{number}", "address": address} for number, address in enumerate(pods)]
    pools = [{"name": "chat", "models": ["m"], "endpoints": endpoints}]
    settings = picker_settings([], cluster=cluster, pools=pools, kafka={"bootstrap": kafka.bootstrap})
    return build(settings, Shared(hand_off_keys={KEY.kid: KEY.secret}))


async def test_reports_arrive_and_a_successor_speaks_above_its_predecessor(
    kafka_server: KafkaServer, fresh_name: str
) -> None:
    pod = await simulated_pod(0)
    first = picker_on(kafka_server, fresh_name, [pod.address])
    second = picker_on(kafka_server, fresh_name, [pod.address])
    async with heard(kafka_server, fresh_name) as found:
        await first.start()
        await eventually(lambda: any(r.pools[0].ready_endpoints for r in found.reports), 30.0)
        await second.start()
        publisher = first.bus
        assert publisher is not None
        await eventually(lambda: len({r.id.epoch for r in found.reports}) == 2, 30.0)
        await eventually(lambda: not (s := publisher.publisher.standing) or not s.may_publish, 10.0)
        await second.abort()
        newest = max(r.id.epoch for r in found.reports)
        await eventually(lambda: found.reports[-1].id.epoch == newest + 1, 10.0)
        ids = [report.id for report in found.reports]
        assert len(set(ids)) == len(ids)
        await first.abort()
    await pod.stop()


async def test_kafka_away_stops_nothing_and_reports_go_on_when_it_returns(
    own_kafka: KafkaServer, fresh_name: str
) -> None:
    pod = await simulated_pod(0)
    picker = picker_on(own_kafka, fresh_name, [pod.address])
    await picker.start()
    async with heard(own_kafka, fresh_name) as found:
        await eventually(lambda: any(r.pools[0].ready_endpoints for r in found.reports), 30.0)
        own_kafka.kill()
        bus = picker.bus
        assert bus is not None
        await eventually(lambda: not bus.sender.connected, 30.0)
        assert picker.ready
        own_kafka.start()
        count = len(found.reports)
        await eventually(lambda: len(found.reports) > count + 2, OUTAGE_S)
        assert picker.failure is not None
        assert not picker.failure.done()
    await picker.abort()
    await pod.stop()
