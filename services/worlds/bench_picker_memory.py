"""Whether the picker's memory stays flat: paced unique prompts through Envoy, resident memory read every second.

What is remembered of prompts fills to its bound first; only what comes after that is a slope. Judging is the
figures' own, and only over a span in which a leak of any size would show.
"""

import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

from services.adapters.metric_names.prefix import PICKER_PREFIX_ENTRIES
from services.worlds.bench_http import BenchError
from services.worlds.bench_picker_envoy import EnvoyOptions, EnvoyStage, staged
from services.worlds.bench_picker_figures import Figure, at_most, slope
from services.worlds.bench_picker_load import RequestShape
from services.worlds.bench_picker_stage import MODEL, load

SLOPE_MIB_PER_MIN_MAX = 0.5
"""Above what an allocator's rounding does over ten minutes; 500 requests a second that each kept 20 bytes show."""
WARM_SHARE = 0.3
"""Of the time: buffers, tables and the index grow to their bounds."""
JUDGED_FROM_MINUTES = 5.0
"""A shorter run tells its slope, but page-wise growth of a few hundred KiB would decide a verdict."""
SAMPLE_EVERY_S = 1.0
BLOCKS_OF_POD = 1024
"""Of 64 tokens: a pod of 65,536 tokens, so that ten pods' records are full within the first seconds."""
_TOKENS_OF_POD = BLOCKS_OF_POD * 64
MODE = "duplex"


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """How long, and how fast."""

    minutes: float = 0.5
    rate: int = 500
    envoy: EnvoyOptions = field(default_factory=EnvoyOptions)


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident memory, and entries of the prefix index, so many minutes after the start."""

    minutes: float
    rss_mib: float
    entries: float


def figures_of(
    samples: list[Sample], answered_per_s: float, failed: float, minutes: float, most: int
) -> list[Figure]:
    """Return slope, size and bounds; `most`: entries that the index may hold. Raises BenchError without samples."""
    warm = [sample for sample in samples if sample.minutes >= minutes * WARM_SHARE]
    if len(warm) < 2:
        raise BenchError("the run was too short to see memory after its warm-up")
    rise = slope([(sample.minutes, sample.rss_mib) for sample in warm])
    judged = minutes >= JUDGED_FROM_MINUTES
    name, unit = "memory.slope", "MiB/min"
    return [
        at_most(name, rise, unit, SLOPE_MIB_PER_MIN_MAX) if judged else Figure(name, rise, unit),
        Figure("memory.after_warm_up", warm[0].rss_mib, "MiB"),
        Figure("memory.at_the_end", warm[-1].rss_mib, "MiB", warm[0].rss_mib),
        at_most("memory.index_entries", max(sample.entries for sample in samples), "blocks", float(most)),
        Figure("memory.requests", answered_per_s, "1/s"),
        at_most("memory.failed", failed, "share", 0.0),
        Figure("memory.minutes", minutes, "min"),
    ]


def run(options: MemoryOptions, progress: Callable[[str], None]) -> list[Figure]:
    """Drive the load and watch. Raises BenchError."""
    engine = {"num_gpu_blocks": _TOKENS_OF_POD // 16, "max_model_len": 16_384}
    with staged(options.envoy, engine) as stage:
        watch = _Watch(stage, progress)
        watch.start()
        count = round(options.minutes * 60 * options.rate)
        try:
            figures = load(stage.ports[MODE], RequestShape(MODEL), options.rate, count)
        finally:
            watch.stop()
    most = options.envoy.pods * BLOCKS_OF_POD
    failed = figures["faults"] / count
    rate = figures["requests_per_s"]
    return figures_of(watch.samples, rate, failed, options.minutes, most)


class _Watch:
    """Reads memory and entries every second, in a thread beside the load generator's process."""

    def __init__(self, stage: EnvoyStage, progress: Callable[[str], None]) -> None:
        self.samples: list[Sample] = []
        self._stage = stage
        self._progress = progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        began = time.monotonic()
        told = 0
        while not self._over.wait(SAMPLE_EVERY_S):
            minutes = (time.monotonic() - began) / 60
            port = self._stage.picker.ready["metrics"]
            sample = Sample(minutes, self._stage.picker.rss_mib(), index_entries(port))
            self.samples.append(sample)
            if int(minutes) > told:
                told = int(minutes)
                self._progress(f"minute {told}: {sample.rss_mib:.1f} MiB, {sample.entries:.0f} blocks known")


def index_entries(port: int) -> float:
    """Return how many blocks the picker's prefix index holds, by its metrics page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        page: str = answer.read().decode()
    return entries_on(page)


def entries_on(page: str) -> float:
    """Return the entries of the approximate index on a metrics page. Raises BenchError when it tells none."""
    for line in page.splitlines():
        if line.startswith(f'{PICKER_PREFIX_ENTRIES}{{index="approximate"}}'):
            return float(line.rpartition(" ")[2])
    raise BenchError("the picker's metrics page says nothing of a prefix index")
