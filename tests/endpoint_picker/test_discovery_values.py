"""Metrics of discovery: broken sources by pool, and an ETA only where one is known."""

from services.adapters.memory.clock import VirtualClock
from services.adapters.memory.discovery import MemoryDiscovery
from services.adapters.metric_names import discovery as names
from services.adapters.telemetry.prometheus import Value
from services.core.inference import ModelName
from services.core.pods.report import PoolSpec
from services.core.pods.table import Pod, PodTable
from services.core.units import seconds
from services.endpoint_picker.discovery_values import discovery_values


async def test_broken_sources_and_known_etas_are_told() -> None:
    clock = VirtualClock()
    table = PodTable([Pod("a", "a:1", "chat"), Pod("b", "b:1", "code")], clock.now())
    source = MemoryDiscovery()
    specs = [
        PoolSpec("chat", (ModelName("m"),), start_takes=seconds(30)),
        PoolSpec("code", (ModelName("c"),)),
    ]
    read = discovery_values({"chat": source}, table, specs, clock)
    await clock.advance(seconds(10))
    assert [*read()] == [
        Value(names.DISCOVERY_BROKEN, False, ("chat",)),
        Value(names.WARMING_ETA, 20.0, ("chat",)),
    ]
    source.trouble = "away"
    await clock.advance(seconds(30))
    assert [*read()] == [Value(names.DISCOVERY_BROKEN, True, ("chat",))]
