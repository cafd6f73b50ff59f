"""Counters as metrics: every name of the closed list for tier 1 is fed, and unknown is absent, not zero."""

from services.adapters.memory.bus import MemoryBus
from services.adapters.memory.clock import VirtualClock
from services.adapters.metric_names import picker as names
from services.adapters.telemetry.histogram import Histogram
from services.core.inference import ModelName
from services.core.pods.reading import EngineIdentity, EngineReading, TokenTotals
from services.core.pods.report import PoolSpec
from services.core.pods.table import Pod, PodTable
from services.core.units import Instant, seconds
from services.endpoint_picker.counters import Counters, picker_values

KV = "vllm:kv_cache_usage_perc"
START = Instant(0)


def values(
    counters: Counters, table: PodTable, *, bus: bool = True
) -> dict[tuple[str, tuple[str, ...]], float | Histogram]:
    sender = MemoryBus(VirtualClock()).publisher() if bus else None
    source = picker_values(counters, table, (PoolSpec("pool", (ModelName("m"),)),), sender)
    return {(value.name, value.labels): value.value for value in source()}


def test_every_tier_1_name_is_fed() -> None:
    counters = Counters()
    for labelled in (counters.scrapes, counters.rejections, counters.outcomes, counters.hand_off_refusals):
        labelled["x"] += 1
    table = PodTable([Pod(name, f"{name}:1", "pool") for name in ("a", "b", "c", "d")], START)
    for pod, tokens, hits in (("c", 100.0, 30.0), ("d", 300.0, None)):
        for at_s in (0, 10):
            grown = [None if total is None else total * at_s for total in (tokens, 2 * tokens, tokens, hits)]
            reading = EngineReading("vllm", 5, 1, 0.1, totals=TokenTotals(*grown))
            table.read(pod, reading, Instant(seconds(at_s)))
    table.read("a", EngineReading("vllm", 5, 1, None, missing=(KV,)), START)
    table.identified("a", EngineIdentity("vllm", "0.8.0", KV), START)
    found = values(counters, table)
    elsewhere = {names.PICKER_HELD_BODIES}  # The door's, told with its streams.
    assert {name for name, _ in found} | elsewhere == {spec.name for spec in names.SPECS}
    assert found[names.PICKER_PROMPT_TOKENS, ("pool",)] == 400
    assert found[names.PICKER_GENERATION_TOKENS, ("pool",)] == 800
    assert found[names.PICKER_SERVER_PREFIX_HITS, ("pool",)] == 0.3
    assert found[names.PICKER_MISSING_METRIC_PODS, (KV,)] == 1
    assert found[names.PICKER_OLD_ENGINE_PODS, (KV,)] == 1
    assert found[names.PICKER_PODS, ("pool", "DEGRADED")] == 1
    assert found[names.PICKER_PODS, ("pool", "WARMING")] == 1
    assert found[names.PICKER_PODS, ("pool", "READY")] == 2
    assert found[names.PICKER_SATURATION, ("pool",)] == 1.0


def test_an_unknown_saturation_is_absent_and_no_bus_says_nothing_of_one() -> None:
    table = PodTable([Pod("a", "a:1", "pool")], START)
    found = values(Counters(), table, bus=False)
    assert (names.PICKER_SATURATION, ("pool",)) not in found
    assert (names.PICKER_BUS_CONNECTED, ()) not in found
    assert (names.PICKER_PROMPT_TOKENS, ("pool",)) not in found
    assert (names.PICKER_SERVER_PREFIX_HITS, ("pool",)) not in found
    assert found[names.PICKER_SERVING_WITHOUT_METRICS, ("pool",)] == 1
