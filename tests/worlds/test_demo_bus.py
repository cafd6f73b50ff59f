import pytest

from services.adapters.memory.bus import MemoryBus
from services.adapters.memory.clock import VirtualClock
from services.adapters.ports import ChangeKind, Topic, UnreachableError
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.core.fleet import ReportId
from services.core.units import Instant, ms, seconds
from services.worlds.demo_bus import LoggedPublisher, Parts, SendLog
from services.worlds.topology import IN_MEMORY, Bus


async def test_each_health_report_is_noted_when_it_is_handed_over_and_passed_on() -> None:
    clock = VirtualClock()
    bus = MemoryBus(clock)
    log = SendLog()
    publisher = LoggedPublisher(bus.publisher(), log, clock)
    await publisher.start()
    began = clock.now()
    publisher.offer(Topic.HEALTH, "c1", b"1")
    await clock.advance(ms(500))
    publisher.offer(Topic.HEALTH, "c1", b"2")
    publisher.offer(Topic.PODS, "c1/p", b"pods")
    await publisher.publish(Topic.POLICY, "snapshot", b"policy", ms(1))
    assert {cluster: list(sent) for cluster, sent in log.sent.items()} == {"c1": [began, began + ms(500)]}
    reader = bus.reader((Topic.HEALTH, Topic.PODS, Topic.POLICY))
    assert await reader.last_value(Topic.HEALTH, "c1") == b"2"
    assert await reader.last_value(Topic.PODS, "c1/p") == b"pods"
    assert await reader.last_value(Topic.POLICY, "snapshot") == b"policy"
    assert publisher.connected
    assert (publisher.coalesced, publisher.expired, publisher.refused) == (0, 0, 0)
    await publisher.close()


def test_the_last_report_before_an_instant_is_found() -> None:
    log = SendLog()
    log.sent["c1"] += [Instant(1), Instant(5), Instant(9)]
    assert log.last_before("c1", Instant(9)) == 5
    assert log.last_before("c1", Instant(1)) is None
    assert log.last_before("c2", Instant(9)) is None


async def test_parts_in_memory_can_be_cut_and_come_back_with_empty_stores() -> None:
    parts = Parts(IN_MEMORY, SystemClock(), SystemIds())
    store, reader = parts.store("f", "eu"), parts.reader("r", (Topic.POLICY,))
    await parts.publisher("p").publish(Topic.POLICY, "snapshot", b"x", ms(1))
    await store.put(ChangeKind.HEALTH, "c1", ReportId(1, 1), b"x", live=True)
    parts.cut()
    with pytest.raises(UnreachableError):
        await store.list()
    with pytest.raises(UnreachableError):
        await reader.last_value(Topic.POLICY, "snapshot")
    parts.restore()
    assert (await store.list()).entries == ()
    assert await reader.last_value(Topic.POLICY, "snapshot") == b"x"


async def test_regions_have_stores_of_their_own() -> None:
    parts = Parts(IN_MEMORY, SystemClock(), SystemIds())
    await parts.store("f", "eu").put(ChangeKind.HEALTH, "c1", ReportId(1, 1), b"x", live=True)
    assert len((await parts.store("f", "eu").list()).entries) == 1
    assert (await parts.store("f", "us").list()).entries == ()


async def test_memory_is_reached_at_once() -> None:
    await Parts(IN_MEMORY, VirtualClock(), SystemIds()).reach("f", "eu", seconds(1))


@pytest.mark.parametrize(
    ("bus", "who"),
    [
        (Bus(redis_url="redis://127.0.0.1:1"), "redis 127.0.0.1:1"),
        (Bus(kafka="127.0.0.1:1"), "kafka 127.0.0.1:1"),
    ],
)
async def test_who_does_not_answer_is_named(bus: Bus, who: str) -> None:
    with pytest.raises(UnreachableError, match=who):
        await Parts(bus, SystemClock(), SystemIds()).reach("f", "eu", ms(300))
