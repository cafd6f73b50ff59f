"""Through the real Envoy in small: every mode has its figures beside the bare one's, and a broken one is told."""

from collections.abc import Callable

import pytest

from deploy.stack import envoy
from deploy.stack.errors import PartMissingError
from services.worlds.bench_http import BenchError
from services.worlds.bench_picker_envoy import EnvoyOptions, run, staged
from services.worlds.bench_picker_memory import MemoryOptions
from services.worlds.bench_picker_memory import run as run_memory

SMALL = EnvoyOptions(
    pods=2, rates=(200,), stream_rates=(50,), seconds=0.1, rounds=1, requests_min=10, output_tokens=4
)


@pytest.mark.usefixtures("envoy_places")
def test_every_mode_is_measured_beside_the_envoy_without_picker() -> None:
    lines: list[str] = []
    figures = {figure.name: figure for figure in run(SMALL, lines.append)}
    limited = {name: figure.reference for name, figure in figures.items() if figure.limited}
    assert limited == {"envoy.json.duplex.200.added_p95_ms": 4.7}
    for kind, rate, modes in (
        ("json", 200, ("duplex", "buffered", "observed")),
        ("sse", 50, ("duplex", "observed")),
    ):
        bare = figures[f"envoy.{kind}.bare.{rate}.p50_ms"]
        assert bare.value > 0
        for mode in modes:
            name = f"envoy.{kind}.{mode}.{rate}"
            assert figures[f"{name}.p50_ms"].reference == bare.value
            added = figures[f"{name}.added_p50_ms"].value
            assert added == pytest.approx(figures[f"{name}.p50_ms"].value - bare.value)
            assert figures[f"{name}.cpu_picker"].value >= 0
    assert "envoy.sse.duplex.50.added_first_byte_p95_ms" in figures
    assert len(lines) == 2


@pytest.mark.usefixtures("envoy_places")
def test_memory_is_watched_through_the_same_envoy() -> None:
    options = MemoryOptions(minutes=0.06, rate=50, envoy=SMALL)
    figures = {figure.name: figure for figure in run_memory(options, lambda _line: None)}
    assert 0 < figures["memory.index_entries"].value <= 2 * 1024
    assert figures["memory.at_the_end"].value > 10
    assert figures["memory.slope"].held is None


def test_a_machine_without_envoy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise PartMissingError("envoy is not installed")

    program: Callable[[], str] = nowhere
    monkeypatch.setattr(envoy, "program", program)
    with pytest.raises(BenchError, match="no Envoy: envoy is not installed"), staged(SMALL):
        pass
