"""What watching a hundred pods costs, and whether one pod that hangs holds up the others.

Pods answer with metrics pages of real length; the picker's CPU is read from /proc over a span in which nothing
else happens to it. Judging is the figures' own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from services.worlds.bench_http import BenchError
from services.worlds.bench_picker_figures import Figure, at_most
from services.worlds.bench_picker_stage import picker, pods

SHARE_MAX = 0.25
"""Of one core, for a hundred pods five times a second."""
INTERVALS_MAX = 2.0
"""A reading is an interval old just before the next; one lost scrape makes two. A pod that hangs must not add to it."""
_HUNG = 0


@dataclass(frozen=True, slots=True)
class ScrapeOptions:
    """How much is scraped: `pods` with pages of at least `page_lines` lines, for `seconds` each way."""

    pods: int = 100
    page_lines: int = 1_500
    interval_ms: int = 200
    seconds: float = 8.0


def run(options: ScrapeOptions, progress: Callable[[str], None]) -> list[Figure]:
    """Measure both. Raises BenchError."""
    settings = {"scrape": {"interval_ms": options.interval_ms}}
    with (
        pods(options.pods, page_lines=options.page_lines) as simulated,
        picker(simulated.ready["ports"], **settings) as subject,
    ):
        before = subject.ask({})
        cpu, pods_cpu, began = subject.cpu_s(), simulated.cpu_s(), time.monotonic()
        time.sleep(options.seconds)
        took = time.monotonic() - began
        share = (subject.cpu_s() - cpu) / took
        pods_share = (simulated.cpu_s() - pods_cpu) / took
        after = subject.ask({"watch": True})
        done = after["scrapes"].get("ok", 0) - before["scrapes"].get("ok", 0)
        if not done:
            raise BenchError("the picker scraped nothing")
        progress(f"scraping {options.pods} pods: {share:.1%} of a core, {done / took:.0f} pages/s")
        simulated.ask({"pod": _HUNG, "configure": {"metrics": "hang"}})
        time.sleep(options.seconds)
        ages = subject.ask({})["oldest_ms"]
    others = [age for pod, age in ages.items() if pod != f"pod-{_HUNG}"]
    progress(f"one of them hanging: readings of the others at most {max(others):.0f} ms old")
    wanted = options.pods * 1000 / options.interval_ms
    return [
        at_most(f"scrape.cpu.{options.pods}", share, "cores", SHARE_MAX),
        Figure(f"scrape.pages.{options.pods}", done / took, "1/s", wanted),
        Figure("scrape.pods_cpu", pods_share, "cores"),
        Figure("scrape.hung_pod_age", ages[f"pod-{_HUNG}"], "ms"),
        at_most("scrape.oldest_beside_hung", max(others), "ms", INTERVALS_MAX * options.interval_ms),
    ]
