"""The ages of readings: the oldest moment of each pod counts, and a pod never read has none."""

from services.core.pods.reading import EngineReading
from services.core.units import Instant, ms
from services.endpoint_picker.assembly import build
from services.endpoint_picker.settings import PickerSettings
from services.worlds.bench_picker_parts import Ages


async def test_an_age_is_kept_at_its_highest() -> None:
    endpoints = [{"id": name, "address": f"127.0.0.1:{port}"} for port, name in enumerate("ab", 9)]
    settings = PickerSettings.model_validate(
        {
            "cluster": "bench",
            "region": "bench",
            "jurisdiction": "bench",
            "pools": [{"name": "chat", "models": ["m"], "endpoints": endpoints}],
            "http": {"accept": "direct"},
        }
    )
    picker = build(settings)
    ages = Ages(picker)
    table = picker.observer.table
    table.read("a", EngineReading("vllm"), Instant(ms(100)))
    ages.look(Instant(ms(250)))
    table.read("a", EngineReading("vllm"), Instant(ms(260)))
    ages.look(Instant(ms(270)))
    assert ages.oldest == {"a": ms(150)}
