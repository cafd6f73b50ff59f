"""The Prometheus page of a pod in vLLM's own words, of both metric generations.

Text rendering only; one series per data-parallel rank, told apart by the label `engine`. Sources:
vllm/v1/metrics/loggers.py for today's names; vllm/engine/metrics.py of 0.8 for the elder ones.
"""

import enum
from collections.abc import Callable, Sequence

from services.core.units import NS_PER_MS, NS_PER_S, Instant, WallMs
from services.simulator.engine import Engine
from services.simulator.exposition import Gauges, HistogramText, Metric, label
from services.simulator.tallies import DurationHistogram, Tallies


class MetricNames(enum.Enum):
    """Which generation of vLLM's names a pod uses: `current` (V1 engine) or `old` (before 0.9.2)."""

    CURRENT = "current"
    OLD = "old"


def _metric(name: str, kind: str, text: str) -> Metric:
    return Metric(f"vllm:{name}", kind, text)


_RUNNING = _metric("num_requests_running", "gauge", "Number of requests in model execution batches.")
_WAITING = _metric("num_requests_waiting", "gauge", "Number of requests waiting to be processed.")
_KV = {
    MetricNames.CURRENT: _metric(
        "kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage."
    ),
    MetricNames.OLD: _metric(
        "gpu_cache_usage_perc", "gauge", "GPU KV-cache usage. 1 means 100 percent usage."
    ),
}
_FINISHED = _metric("request_success_total", "counter", "Count of successfully processed requests.")
_CACHE_CONFIG = _metric("cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
_SLEEP = _metric("engine_sleep_state", "gauge", "Engine sleep state; awake = 0 means engine is sleeping.")
_LORA = _metric("lora_requests_info", "gauge", "Running stats on lora requests.")
# The gauges that only the elder engine had; nothing here swaps.
_GONE = (
    _metric("num_requests_swapped", "gauge", "Number of requests swapped to CPU."),
    _metric("cpu_cache_usage_perc", "gauge", "CPU KV-cache usage. 1 means 100 percent usage."),
)

_Counter = tuple[Metric, Callable[[Tallies], int]]


def _counter(name: str, text: str, pick: Callable[[Tallies], int]) -> _Counter:
    return _metric(name, "counter", text), pick


_COUNTERS: tuple[_Counter, ...] = (
    _counter("num_preemptions_total", "Cumulative number of preemptions.", lambda t: t.preemptions),
    _counter("prompt_tokens_total", "Number of prefill tokens processed.", lambda t: t.prompt_tokens),
    _counter(
        "generation_tokens_total", "Number of generation tokens processed.", lambda t: t.generation_tokens
    ),
)


def _prefix_counters(prefix: str) -> tuple[_Counter, ...]:
    return (
        _counter(
            f"{prefix}_queries_total", "Prefix cache queries, in queried tokens.", lambda t: t.prefix_queries
        ),
        _counter(f"{prefix}_hits_total", "Prefix cache hits, in cached tokens.", lambda t: t.prefix_hits),
    )


_PREFIX_COUNTERS = {
    MetricNames.CURRENT: _prefix_counters("prefix_cache"),
    MetricNames.OLD: _prefix_counters("gpu_prefix_cache"),
}

_Histogram = tuple[Metric, Callable[[Tallies], DurationHistogram]]


def _histogram(name: str, text: str, pick: Callable[[Tallies], DurationHistogram]) -> _Histogram:
    return _metric(name, "histogram", text), pick


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


class VllmPage:
    """Renders the page of one server's engines, one per rank, for a served model and a generation of names.

    `tail` is what the server process adds of its own (`process_page`).
    """

    def __init__(self, names: MetricNames, model: str, engines: Sequence[Engine], tail: bytes = b"") -> None:
        self._engines = engines
        current = names is MetricNames.CURRENT
        served = label("model_name", model)
        # The elder engine had no ranks.
        self._labels = [f'engine="{rank}",{served}' if current else served for rank in range(len(engines))]
        self._load = (self._lines(_RUNNING), self._lines(_WAITING))
        self._kv = self._lines(_KV[names])
        self._sleep = self._labels if current else []
        self._counters = [(self._lines(metric), pick) for metric, pick in _COUNTERS + _PREFIX_COUNTERS[names]]
        self._finished = [
            (tallies.finished, reason, f'{_FINISHED.name}{{{labels},finished_reason="{reason}"}} ')
            for labels, tallies in self._by_rank()
            for reason in tallies.finished
        ]
        histograms = _HISTOGRAMS + (_CURRENT_HISTOGRAMS if current else ())
        self._histograms = [
            (
                metric.head(),
                [HistogramText(metric.name, labels, [pick(tallies)]) for labels, tallies in self._by_rank()],
            )
            for metric, pick in histograms
        ]
        gone = "" if current else "".join(f"{self._lines(metric)[0]}0.0\n" for metric in _GONE)
        self._static = self._cache_config(ranked=current).encode() + gone.encode() + tail

    def render(self, now: Instant, wall_ms: WallMs, gauges: Gauges = Gauges.TRUE) -> bytes:
        """Return the page as of the engines' last advance; `wall_ms` is the wall time at `now`."""
        engines = self._engines
        parts: list[str] = []
        for lines, values in (
            (self._load[0], [engine.running for engine in engines]),
            (self._load[1], [engine.waiting for engine in engines]),
            (self._kv, [] if gauges is Gauges.MISSING_KV else [engine.kv_usage for engine in engines]),
        ):
            parts += [f"{line}{gauges.show(value)}\n" for line, value in zip(lines, values, strict=False)]
        for counter_lines, pick in self._counters:
            parts += [
                f"{line}{pick(engine.tallies)}.0\n"
                for line, engine in zip(counter_lines, engines, strict=True)
            ]
        parts += self._sleep_states()
        parts.append(_FINISHED.head())
        parts += [f"{line}{finished[reason]}.0\n" for finished, reason, line in self._finished]
        for head, series in self._histograms:
            parts.append(head)
            parts += [one.render() for one in series]
        if engines[0].profile.max_loras:
            parts.append(self._adapters(now, wall_ms))
        return "".join(parts).encode() + self._static

    def _by_rank(self) -> list[tuple[str, Tallies]]:
        return [(labels, engine.tallies) for labels, engine in zip(self._labels, self._engines, strict=True)]

    def _lines(self, metric: Metric) -> list[str]:
        """Return what stands before the value, by rank; the first carries the head."""
        lines = [f"{metric.name}{{{labels}}} " for labels in self._labels]
        return [metric.head() + lines[0], *lines[1:]]

    def _sleep_states(self) -> list[str]:
        """Return a series per rank and state; the engines sleep at level 1. The elder page has none."""
        lines = [_SLEEP.head()] if self._sleep else []
        for labels, engine in zip(self._sleep, self._engines, strict=False):
            for state, held in (
                ("awake", not engine.asleep),
                ("weights_offloaded", engine.asleep),
                ("discard_all", False),
            ):
                lines.append(f'{_SLEEP.name}{{{labels},sleep_state="{state}"}} {float(held)}\n')
        return lines

    def _adapters(self, now: Instant, wall_ms: WallMs) -> str:
        """Return a series per set of adapters, whose value is the wall time in seconds it was last the case.

        vLLM gives it no rank and no model, and old series stay: only the newest is true.
        """
        newest: dict[tuple[str, str], Instant] = {}
        for engine in self._engines:
            for pair, at in engine.adapters_seen.items():
                newest[pair] = max(at, newest.get(pair, at))
        most = self._engines[0].profile.max_loras
        lines = [_LORA.head()]
        for (running, waiting), at in newest.items():
            labels = ",".join(
                (
                    f'max_lora="{most}"',
                    label("running_lora_adapters", running),
                    label("waiting_lora_adapters", waiting),
                )
            )
            seconds = (wall_ms - (now - at) / NS_PER_MS) * NS_PER_MS / NS_PER_S
            lines.append(f"{_LORA.name}{{{labels}}} {seconds!r}\n")
        return "".join(lines)

    def _cache_config(self, *, ranked: bool) -> str:
        lines = [_CACHE_CONFIG.head()]
        for rank, engine in enumerate(self._engines):
            profile = engine.profile
            # vLLM labels this one with the engine only: it belongs to the process, not to a model.
            own = f',engine="{rank}"' if ranked else ""
            lines.append(
                f'{_CACHE_CONFIG.name}{{block_size="{profile.block_size}",cache_dtype="auto",'
                f'enable_prefix_caching="{profile.prefix_caching}",gpu_memory_utilization="0.9",'
                f'num_gpu_blocks="{profile.num_gpu_blocks}"{own}}} 1.0\n'
            )
        return "".join(lines)
