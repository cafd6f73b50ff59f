"""The Prometheus page of a pod in SGLang's words.

Text rendering only. SGLang's scheduler has a series per rank; what its front end counts (requests, tokens,
latencies) is one series for all. Source: sglang/srt/metrics/collector.py (SchedulerMetricsCollector,
TokenizerMetricsCollector).
"""

from collections.abc import Callable, Sequence

from services.core.units import Instant, WallMs
from services.simulator.engine import Engine
from services.simulator.exposition import Gauges, HistogramText, Metric, label
from services.simulator.tallies import DurationHistogram, Tallies

# Source: sglang/srt/metrics/collector.py, seconds.
TIME_TO_FIRST_TOKEN_S = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0,
)  # fmt: skip
REQUEST_LATENCY_S = (*TIME_TO_FIRST_TOKEN_S, 600.0, 1200.0, 1800.0, 2400.0)
INTER_TOKEN_S = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6,
    0.8, 1.0, 2.0, 4.0, 6.0, 8.0,
)  # fmt: skip
QUEUE_S = (
    0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0,
    100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 1200.0, 1400.0, 1600.0, 1800.0,
    2000.0, 2500.0, 3000.0,
)  # fmt: skip


def sglang_tallies() -> Tallies:
    """Return tallies whose histograms have SGLang's buckets."""
    return Tallies(
        time_to_first_token=DurationHistogram(TIME_TO_FIRST_TOKEN_S),
        inter_token=DurationHistogram(INTER_TOKEN_S),
        e2e=DurationHistogram(REQUEST_LATENCY_S),
        queue=DurationHistogram(QUEUE_S),
    )


def _gauge(name: str, text: str) -> Metric:
    return Metric(f"sglang:{name}", "gauge", text)


_RUNNING = _gauge("num_running_reqs", "The number of running requests.")
_QUEUED = _gauge("num_queue_reqs", "The number of requests in the waiting queue.")
_TOKEN_USAGE = _gauge("token_usage", "The token usage.")
_CACHE_CONFIG = _gauge("cache_config_info", "Static KV cache configuration.")

_SCHEDULER: tuple[tuple[Metric, Callable[[Engine], float]], ...] = (
    (
        _gauge("num_used_tokens", "The number of used tokens."),
        lambda e: e.kv_used_blocks * e.profile.block_size,
    ),
    (_gauge("gen_throughput", "The generation throughput (token/s)."), lambda e: e.decode_tokens_per_s),
    (_gauge("cache_hit_rate", "The prefix cache hit rate."), lambda e: _hit_rate(e.tallies)),
    # Nothing here is constrained by a grammar.
    (_gauge("num_grammar_queue_reqs", "The number of requests in the grammar waiting queue."), lambda _: 0),
    (
        _gauge("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool."),
        lambda e: e.profile.num_gpu_blocks * e.profile.block_size,
    ),
)
_LORA: tuple[tuple[Metric, Callable[[Engine], float]], ...] = (
    (
        _gauge("lora_pool_slots_used", "Number of LoRA adapter slots currently occupied in GPU memory."),
        lambda e: len(e.resident_adapters),
    ),
    (
        _gauge("lora_pool_slots_total", "Total number of LoRA adapter slots available."),
        lambda e: e.profile.max_loras,
    ),
)

_COUNTERS: tuple[tuple[Metric, Callable[[Tallies], int]], ...] = tuple(
    (Metric(f"sglang:{name}", "counter", text), pick)
    for name, text, pick in (
        ("prompt_tokens_total", "Number of prefill tokens processed.", lambda t: t.prompt_tokens),
        ("generation_tokens_total", "Number of generation tokens processed.", lambda t: t.generation_tokens),
        ("cached_tokens_total", "Number of cached prompt tokens.", lambda t: t.prefix_hits),
        ("num_retracted_requests_total", "Total number of retracted requests.", lambda t: t.preemptions),
        (
            "num_requests_total",
            "Number of requests processed.",
            lambda t: t.finished["stop"] + t.finished["length"],
        ),
        ("num_aborted_requests_total", "Number of requests aborted.", lambda t: t.finished["abort"]),
    )
)
_HISTOGRAMS: tuple[tuple[str, str, Callable[[Tallies], DurationHistogram]], ...] = (
    (
        "time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        lambda t: t.time_to_first_token,
    ),
    ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", lambda t: t.inter_token),
    ("e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds", lambda t: t.e2e),
    ("queue_time_seconds", "Histogram of queueing time in seconds.", lambda t: t.queue),
)


class SglangPage:
    """Renders the page of one server's engines (whose tallies are `sglang_tallies`), one per rank."""

    def __init__(self, model: str, engines: Sequence[Engine], tail: bytes = b"") -> None:
        self._engines = engines
        served = label("model_name", model)
        common = f'engine_type="unified",{served},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
        self._labels = [
            f'dp_rank="{rank}",{common}' if len(engines) > 1 else common for rank in range(len(engines))
        ]
        self._load = (self._lines(_RUNNING), self._lines(_QUEUED))
        self._kv = self._lines(_TOKEN_USAGE)
        lora = _LORA if engines[0].profile.max_loras else ()
        self._scheduler = [(self._lines(metric), pick) for metric, pick in _SCHEDULER + lora]
        self._counters = [(f"{metric.head()}{metric.name}{{{served}}} ", pick) for metric, pick in _COUNTERS]
        self._histograms = [
            (
                Metric(f"sglang:{name}", "histogram", text).head(),
                HistogramText(f"sglang:{name}", served, [pick(engine.tallies) for engine in engines]),
            )
            for name, text, pick in _HISTOGRAMS
        ]
        self._static = self._cache_config().encode() + tail

    def render(self, now: Instant, wall_ms: WallMs, gauges: Gauges = Gauges.TRUE) -> bytes:  # noqa: ARG002 -- one signature for every flavour's page
        """Return the page as of the engines' last advance."""
        engines = self._engines
        parts: list[str] = []
        for lines, values in (
            (self._load[0], [engine.running for engine in engines]),
            (self._load[1], [engine.waiting for engine in engines]),
            (self._kv, [] if gauges is Gauges.MISSING_KV else [engine.kv_usage for engine in engines]),
        ):
            parts += [f"{line}{gauges.show(value)}\n" for line, value in zip(lines, values, strict=False)]
        for lines, pick in self._scheduler:
            parts += [f"{line}{float(pick(engine))!r}\n" for line, engine in zip(lines, engines, strict=True)]
        parts += [f"{line}{sum(pick(e.tallies) for e in engines)}.0\n" for line, pick in self._counters]
        parts += [head + histogram.render() for head, histogram in self._histograms]
        return "".join(parts).encode() + self._static

    def _lines(self, metric: Metric) -> list[str]:
        """Return what stands before the value, by rank; the first carries the head."""
        lines = [f"{metric.name}{{{labels}}} " for labels in self._labels]
        return [metric.head() + lines[0], *lines[1:]]

    def _cache_config(self) -> str:
        lines = [_CACHE_CONFIG.head()]
        for labels, engine in zip(self._labels, self._engines, strict=True):
            profile = engine.profile
            own = f'num_pages="{profile.num_gpu_blocks}",page_size="{profile.block_size}"'
            lines.append(f"{_CACHE_CONFIG.name}{{{labels},{own}}} 1.0\n")
        return "".join(lines)


def _hit_rate(tallies: Tallies) -> float:
    return tallies.prefix_hits / tallies.prefix_queries if tallies.prefix_queries else 0.0
