"""What an engine has counted since it started: the numbers behind its metrics page.

Histograms and plain integers; rendering is in `metrics_page`. Bucket bounds are vLLM's, so that quantiles
read from a simulated pod have the resolution they have in the field.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.core.units import NS_PER_S

# Source: vllm/v1/metrics/loggers.py (histogram definitions of PrometheusStatLogger), seconds.
TIME_TO_FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
INTER_TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_LATENCY_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
)  # fmt: skip


class DurationHistogram:
    """Counts of durations by upper bound. `counts[i]` holds those in (bounds[i-1], bounds[i]]; the last is +Inf."""

    __slots__ = ("_bounds_ns", "bounds_s", "count", "counts", "sum_ns")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self.bounds_s = tuple(bounds_s)
        self._bounds_ns = tuple(round(bound * NS_PER_S) for bound in bounds_s)
        self.counts = [0] * (len(bounds_s) + 1)
        self.count = 0
        self.sum_ns = 0

    def observe(self, duration_ns: int, times: int = 1) -> None:
        """Record a duration that occurred `times` times."""
        self.counts[bisect_left(self._bounds_ns, duration_ns)] += times
        self.count += times
        self.sum_ns += duration_ns * times


@dataclass(slots=True)
class Tallies:
    """Totals of one engine since it started. Tokens, requests, durations; never reset."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    steps: int = 0
    busy_ns: int = 0
    finished: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "abort": 0})
    time_to_first_token: DurationHistogram = field(
        default_factory=lambda: DurationHistogram(TIME_TO_FIRST_TOKEN_S)
    )
    inter_token: DurationHistogram = field(default_factory=lambda: DurationHistogram(INTER_TOKEN_S))
    time_per_output_token: DurationHistogram = field(default_factory=lambda: DurationHistogram(INTER_TOKEN_S))
    e2e: DurationHistogram = field(default_factory=lambda: DurationHistogram(REQUEST_LATENCY_S))
    queue: DurationHistogram = field(default_factory=lambda: DurationHistogram(REQUEST_LATENCY_S))
    prefill: DurationHistogram = field(default_factory=lambda: DurationHistogram(REQUEST_LATENCY_S))
    decode: DurationHistogram = field(default_factory=lambda: DurationHistogram(REQUEST_LATENCY_S))
    inference: DurationHistogram = field(default_factory=lambda: DurationHistogram(REQUEST_LATENCY_S))
