"""Metrics pages in the shape of releases, and what the readers, the version check and the pod table make of them.

The pages in `fixtures` carry the names, labels and help texts of their release, with made-up values.
`compatibility_table` and `scorer_table` are what docs/engines.md shows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from services.adapters.model_server.engines import ENGINES, Readers
from services.core.fleet import PodState
from services.core.pods.reading import EngineIdentity, EngineReading
from services.core.pods.table import Pod, PodTable
from services.core.units import Instant, ms

FIXTURES = Path(__file__).parent / "fixtures"
READERS = Readers()


@dataclass(frozen=True, slots=True)
class Release:
    """A release of an engine whose page is a fixture."""

    engine: str
    version: str

    @property
    def page(self) -> bytes:
        return (FIXTURES / f"{self.engine}-{self.version}.txt").read_bytes()

    @property
    def reading(self) -> EngineReading:
        return READERS.reader(self.engine)(self.page, with_ttft=True)

    @property
    def identity(self) -> EngineIdentity:
        return ENGINES[self.engine].identify(self.version)

    @property
    def verdict(self) -> tuple[PodState, str]:
        """The state of a pod of this release and why, after two scrapes and a look at its version."""
        table = PodTable((Pod("a", "10.0.0.1:8000", "pool"),), Instant(0))
        for tick in (1, 2):
            table.read("a", self.reading, Instant(ms(200) * tick))
        table.identified("a", self.identity, Instant(ms(400)))
        return table["a"].state, table["a"].reason


RELEASES = (
    Release("vllm", "0.9.1"),
    Release("vllm", "0.9.2"),
    Release("vllm", "0.30.0"),
    Release("sglang", "0.3.5"),
    Release("sglang", "0.3.5.post1"),
    Release("sglang", "0.5.10"),
    Release("sglang", "0.5.11"),
    Release("trtllm-serve", "1.1.0"),
    Release("trtllm-serve", "1.3.0"),
    Release("triton-tensorrt-llm", "2.60.0"),
    Release("triton", "2.60.0"),
    Release("tgi", "3.3.4"),
)
NEWEST = tuple({release.engine: release for release in RELEASES}.values())


def compatibility_table() -> str:
    """Return what is read from each release, as Markdown."""
    head = (
        *("Engine", "Release", "Waiting", "Running", "KV use", "First token", "Token rates"),
        *("Prefix hits", "Adapters", "Cache size", "A pod is"),
    )
    return _markdown(head, (_compatibility(release) for release in RELEASES))


def _compatibility(release: Release) -> Iterator[str]:
    reading = release.reading
    totals = reading.totals
    yield f"`{release.engine}`"
    yield release.version
    for value in (reading.waiting, reading.running, reading.kv_use, reading.ttft):
        yield _mark(value)
    yield _mark(totals and totals.generation)
    yield _mark(totals and totals.prefix_hits)
    if reading.active_adapters or reading.waiting_adapters:
        yield "names"
    else:
        yield _mark(reading.max_adapters, "free slots")
    yield _mark(reading.kv_blocks and reading.block_tokens)
    state, reason = release.verdict
    yield f"{state.value}: {reason}" if reason else state.value


def scorer_table() -> str:
    """Return which scorer has a pod's own signal on the newest release of each engine, as Markdown."""
    head = ("Scorer", *(f"`{release.engine}`" for release in NEWEST))
    signals: dict[str, list[object]] = {
        "queue": [release.reading.waiting for release in NEWEST],
        "running requests": [release.reading.running for release in NEWEST],
        "KV use": [release.reading.kv_use for release in NEWEST],
        "LoRA affinity": [release.reading.max_adapters for release in NEWEST],
        "prefix, sized by the pod": [release.reading.block_tokens for release in NEWEST],
        "predicted latency": [release.reading.ttft for release in NEWEST],
    }
    return _markdown(head, ((name, *map(_mark, values)) for name, values in signals.items()))


def _mark(value: object, yes: str = "yes") -> str:
    return "no" if value is None else yes


def _markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = list(head)
    lines = [cells, ["---"] * len(cells), *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
