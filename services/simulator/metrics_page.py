"""The Prometheus page of a pod in vLLM's own words, of both metric generations.

Text rendering only. A page is scraped five times a second per pod, so names, labels and bounds are
rendered once, and a histogram again only after it changed. Sources: vllm/v1/metrics/loggers.py for today's
names; vllm/engine/metrics.py of 0.8 for the elder ones.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from services.core.units import NS_PER_S
from services.simulator.engine import Engine
from services.simulator.tallies import DurationHistogram, Tallies


class MetricNames(enum.Enum):
    """Which generation of vLLM's names a pod uses: `current` (V1 engine) or `old` (before 0.9.2)."""

    CURRENT = "current"
    OLD = "old"


class Gauges(enum.Enum):
    """What the load gauges say: the truth, nothing usable, nothing at all of KV, or zero."""

    TRUE = "true"
    NAN = "nan"
    MISSING_KV = "missing_kv"
    ZERO = "zero"


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    kind: str
    help: str


_RUNNING = _Metric("num_requests_running", "gauge", "Number of requests in model execution batches.")
_WAITING = _Metric("num_requests_waiting", "gauge", "Number of requests waiting to be processed.")
_KV = {
    MetricNames.CURRENT: _Metric(
        "kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage."
    ),
    MetricNames.OLD: _Metric(
        "gpu_cache_usage_perc", "gauge", "GPU KV-cache usage. 1 means 100 percent usage."
    ),
}

_Counter = tuple[_Metric, Callable[[Tallies], int]]
_COUNTERS: tuple[_Counter, ...] = (
    (
        _Metric("num_preemptions_total", "counter", "Cumulative number of preemptions."),
        lambda t: t.preemptions,
    ),
    (
        _Metric("prompt_tokens_total", "counter", "Number of prefill tokens processed."),
        lambda t: t.prompt_tokens,
    ),
    (
        _Metric("generation_tokens_total", "counter", "Number of generation tokens processed."),
        lambda t: t.generation_tokens,
    ),
)


def _prefix_counters(prefix: str) -> tuple[_Counter, ...]:
    return (
        (
            _Metric(f"{prefix}_queries_total", "counter", "Prefix cache queries, in queried tokens."),
            lambda t: t.prefix_queries,
        ),
        (
            _Metric(f"{prefix}_hits_total", "counter", "Prefix cache hits, in cached tokens."),
            lambda t: t.prefix_hits,
        ),
    )


_PREFIX_COUNTERS = {
    MetricNames.CURRENT: _prefix_counters("prefix_cache"),
    MetricNames.OLD: _prefix_counters("gpu_prefix_cache"),
}

_Histogram = tuple[_Metric, Callable[[Tallies], DurationHistogram]]


def _histogram(name: str, text: str, pick: Callable[[Tallies], DurationHistogram]) -> _Histogram:
    return _Metric(name, "histogram", text), pick


_HISTOGRAMS: tuple[_Histogram, ...] = (
    _histogram("time_to_first_token_seconds", "Time to first token.", lambda t: t.time_to_first_token),
    # The per-token gap under its elder name; the V1 engine kept it beside the new one.
    _histogram("time_per_output_token_seconds", "Time per output token.", lambda t: t.inter_token),
    _histogram("e2e_request_latency_seconds", "E2E request latency.", lambda t: t.e2e),
    _histogram("request_queue_time_seconds", "Time in WAITING phase.", lambda t: t.queue),
    _histogram("request_inference_time_seconds", "Time in RUNNING phase.", lambda t: t.inference),
    _histogram("request_prefill_time_seconds", "Time in PREFILL phase.", lambda t: t.prefill),
    _histogram("request_decode_time_seconds", "Time in DECODE phase.", lambda t: t.decode),
)
_CURRENT_HISTOGRAMS: tuple[_Histogram, ...] = (
    _histogram("inter_token_latency_seconds", "Inter-token latency.", lambda t: t.inter_token),
    _histogram(
        "request_time_per_output_token_seconds",
        "Mean time per output token of a request.",
        lambda t: t.time_per_output_token,
    ),
)


class MetricsPage:
    """Renders one engine's page for one served model name and one generation of names."""

    def __init__(self, names: MetricNames, model: str, engine: Engine) -> None:
        self._engine = engine
        escaped = model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        current = names is MetricNames.CURRENT
        self._labels = f'engine="0",model_name="{escaped}"' if current else f'model_name="{escaped}"'
        self._load = (self._line(_RUNNING), self._line(_WAITING))
        self._kv = self._line(_KV[names])
        self._counters = [(self._line(metric), pick) for metric, pick in _COUNTERS + _PREFIX_COUNTERS[names]]
        finished = _Metric("request_success_total", "counter", "Count of successfully processed requests.")
        self._finished_head = _head(finished)
        self._finished = {
            reason: self._sample(finished.name, f'finished_reason="{reason}"')
            for reason in engine.tallies.finished
        }
        histograms = _HISTOGRAMS + (_CURRENT_HISTOGRAMS if current else ())
        self._histograms = [
            _HistogramText(metric, self._labels, pick(engine.tallies)) for metric, pick in histograms
        ]
        self._static = self._cache_config() + (b"" if current else self._gone())

    def render(self, gauges: Gauges = Gauges.TRUE) -> bytes:
        """Return the page as of the engine's last advance."""
        engine, tallies = self._engine, self._engine.tallies
        running, waiting, kv = f"{engine.running}.0", f"{engine.waiting}.0", repr(engine.kv_usage)
        if gauges is Gauges.NAN:
            running = waiting = kv = "NaN"
        elif gauges is Gauges.ZERO:
            running = waiting = kv = "0.0"
        parts = [f"{self._load[0]}{running}\n{self._load[1]}{waiting}\n"]
        if gauges is not Gauges.MISSING_KV:
            parts.append(f"{self._kv}{kv}\n")
        parts += [f"{line}{pick(tallies)}.0\n" for line, pick in self._counters]
        parts.append(self._finished_head)
        parts += [f"{self._finished[reason]}{count}.0\n" for reason, count in tallies.finished.items()]
        text = "".join(parts).encode()
        return b"".join([text, *(histogram.render() for histogram in self._histograms), self._static])

    def _line(self, metric: _Metric) -> str:
        return _head(metric) + self._sample(metric.name)

    def _sample(self, name: str, more: str = "") -> str:
        labels = ",".join(filter(None, (self._labels, more)))
        return f"vllm:{name}{{{labels}}} "

    def _cache_config(self) -> bytes:
        profile = self._engine.profile
        info = _Metric("cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
        own = (
            f'block_size="{profile.block_size}",cache_dtype="auto",'
            f'enable_prefix_caching="{profile.prefix_caching}",gpu_memory_utilization="0.9",'
            f'num_gpu_blocks="{profile.num_gpu_blocks}"'
        )
        # vLLM labels this one with the engine only: it belongs to the process, not to a model.
        rank = ',engine="0"' if self._labels.startswith("engine=") else ""
        return f"{_head(info)}vllm:{info.name}{{{own}{rank}}} 1.0\n".encode()

    def _gone(self) -> bytes:
        """Return the gauges that only the elder engine had."""
        swapped = _Metric("num_requests_swapped", "gauge", "Number of requests swapped to CPU.")
        cpu = _Metric("cpu_cache_usage_perc", "gauge", "CPU KV-cache usage. 1 means 100 percent usage.")
        return f"{self._line(swapped)}0.0\n{self._line(cpu)}0.0\n".encode()


class _HistogramText:
    """One histogram with its last rendering, kept until something new is observed."""

    def __init__(self, metric: _Metric, labels: str, histogram: DurationHistogram) -> None:
        self._histogram = histogram
        bounds = [repr(float(bound)) for bound in histogram.bounds_s] + ["+Inf"]
        name = f"vllm:{metric.name}"
        # The labels may hold a percent sign from a model's name, which must not look like a format.
        fixed = labels.replace("%", "%%")
        buckets = "".join(f'{name}_bucket{{{fixed},le="{bound}"}} %d.0\n' for bound in bounds)
        self._template = f"{_head(metric)}{buckets}{name}_count{{{fixed}}} %d.0\n{name}_sum{{{fixed}}} %r\n"
        self._rendered_count = -1
        self._text = b""

    def render(self) -> bytes:
        histogram = self._histogram
        if histogram.count != self._rendered_count:
            values = (*accumulate(histogram.counts), histogram.count, histogram.sum_ns / NS_PER_S)
            self._text = (self._template % values).encode()
            self._rendered_count = histogram.count
        return self._text


def _head(metric: _Metric) -> str:
    return f"# HELP vllm:{metric.name} {metric.help}\n# TYPE vllm:{metric.name} {metric.kind}\n"
