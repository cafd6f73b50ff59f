"""Text Generation Inference: what it publishes, and what it never does and so does not lack."""

from services.adapters.model_server.tgi import RUNNING, WAITING, TgiReader, identify
from services.core.pods.reading import EngineIdentity, EngineReading, TokenTotals, pod_saturation
from tests.adapters.model_server.releases import Release

PAGE = Release("tgi", "3.3.4").page


def test_a_whole_page() -> None:
    assert TgiReader().read(PAGE) == EngineReading(
        "tgi", waiting=3, running=12, totals=TokenTotals(prompt=812450.0, generation=96213.0)
    )
    assert TgiReader().read(PAGE, with_ttft=False) == EngineReading("tgi", waiting=3, running=12)


def test_kv_use_is_absent_by_nature_and_the_queue_alone_saturates() -> None:
    reading = TgiReader().read(PAGE)
    assert (reading.kv_use, reading.missing) == (None, ())
    assert pod_saturation(reading.waiting, reading.kv_use) == 0.6


def test_the_names_needed_are_the_ones_reported_missing() -> None:
    assert TgiReader().read(b"tgi_queue_size_max 3\n").missing == (WAITING, RUNNING)


def test_every_version_is_served() -> None:
    assert identify("0.9.0") == EngineIdentity("tgi", "0.9.0")
