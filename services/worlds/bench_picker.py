"""`gir bench picker`: what the endpoint picker costs and how well it picks, each figure beside its limit.

Puts the parts together and nothing else: scraping, picking, prefixes, Envoy, sharing, memory are files of their
own. Parts run one after the other, because two cores carry all of them.
"""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from services.worlds import (
    bench_picker_envoy,
    bench_picker_memory,
    bench_picker_picks,
    bench_picker_prefix,
    bench_picker_scrape,
    bench_picker_sharing,
)
from services.worlds.bench_http import BenchError
from services.worlds.bench_picker_envoy import EnvoyOptions
from services.worlds.bench_picker_figures import Figure
from services.worlds.bench_picker_memory import MemoryOptions
from services.worlds.bench_picker_picks import PickOptions
from services.worlds.bench_picker_prefix import PrefixOptions
from services.worlds.bench_picker_scrape import ScrapeOptions
from services.worlds.bench_picker_workloads import ONE_SHOT, SHARED, UNIFORM, Workload

Progress = Callable[[str], None]

PARTS: Final = ("picks", "prefix", "scrape", "sharing", "envoy", "memory")
"""In the order in which they run: the ones that need a quiet machine least come last."""


@dataclass(frozen=True, slots=True)
class PickerBenchOptions:
    """How much is measured, by part."""

    parts: Sequence[str] = PARTS
    picks: PickOptions = field(default_factory=PickOptions)
    prefix: PrefixOptions = field(default_factory=PrefixOptions)
    scrape: ScrapeOptions = field(default_factory=ScrapeOptions)
    workloads: tuple[Workload, ...] = (SHARED, ONE_SHOT, UNIFORM)
    envoy: EnvoyOptions = field(default_factory=EnvoyOptions)
    memory: MemoryOptions = field(default_factory=MemoryOptions)


def run(options: PickerBenchOptions | None = None, progress: Progress = lambda _line: None) -> dict[str, Any]:
    """Measure and return the benchmark's one JSON object; `failed` are the parts that could not be measured.

    A part that fails does not take the figures of the others with it. `load_average` is the machine's, of the
    minute before the first part: what else runs here is in the figures too.
    """
    chosen = options or PickerBenchOptions()
    load_average = os.getloadavg()[0]
    figures: list[Figure] = []
    failed: dict[str, str] = {}
    for name in chosen.parts:
        try:
            figures += _measure(name, chosen, progress)
        except BenchError as error:
            failed[name] = str(error)
            progress(f"{name} could not be measured: {error}")
    return {
        "bench": "picker",
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
            "load_average": round(load_average, 2),
        },
        "figures": [figure.document() for figure in figures],
        "failed": failed,
    }


def missed(result: Mapping[str, Any]) -> list[str]:
    """Return what a check complains of, in words: limits that were not kept and parts that were not measured."""
    complaints = [
        f"{figure['name']}: {figure['value']:g} {figure['unit']}, limit {figure['reference']:g}"
        for figure in result["figures"]
        if figure["held"] is False
    ]
    return complaints + [f"{name}: not measured: {why}" for name, why in result["failed"].items()]


def _measure(name: str, options: PickerBenchOptions, progress: Progress) -> list[Figure]:
    if name == "picks":
        return bench_picker_picks.run(options.picks, progress)
    if name == "prefix":
        return bench_picker_prefix.run(options.prefix, progress)
    if name == "scrape":
        return bench_picker_scrape.run(options.scrape, progress)
    if name == "sharing":
        return bench_picker_sharing.run(progress, options.workloads)
    if name == "envoy":
        return bench_picker_envoy.run(options.envoy, progress)
    return bench_picker_memory.run(options.memory, progress)
