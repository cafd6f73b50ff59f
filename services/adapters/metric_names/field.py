"""Metrics under the names of the endpoint-picker field, so that dashboards made for other pickers work.

Two generations of names mean the same: `llm_d_epp_*`, and the `inference_*` that came before it. A value is
told once and exported under both. Source: llm-d-router docs/metrics.md; Gateway API Inference Extension v1.5.
Label values that come from requests are capped (`telemetry/cardinality`).
"""

from dataclasses import dataclass, replace
from typing import Final

from services.adapters.metric_names.spec import MetricSpec, counter, gauge, histogram

_LATEST: Final = "llm_d_epp_"
_OBJECTIVE: Final = "inference_objective_"
_POOL: Final = "inference_pool_"
_EXTENSION: Final = "inference_extension_"


@dataclass(frozen=True, slots=True)
class FieldMetric:
    """One meaning and the names it has, the current one first."""

    specs: tuple[MetricSpec, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names to export each value under."""
        return tuple(spec.name for spec in self.specs)


def _named(spec: MetricSpec, *elders: str) -> FieldMetric:
    """Return `spec` under its current name and, in full, those it had before."""
    current = replace(spec, name=_LATEST + spec.name)
    return FieldMetric((current, *(replace(spec, name=elder) for elder in elders)))


_REQUEST: Final = ("model_name", "target_model_name", "fairness_id", "priority")
_QUEUED: Final = ("fairness_id", "priority", "inference_pool")
_SEE: Final = "Compare models and tenants; slow ones show here first."

REQUESTS: Final = _named(
    counter("request_total", _REQUEST, "Requests taken in.", "Traffic; nothing to do."),
    _OBJECTIVE + "request_total",
)
REQUEST_ERRORS: Final = _named(
    counter("request_error_total", (*_REQUEST, "error_code"), "Requests that failed, by code.", _SEE),
    _OBJECTIVE + "request_error_total",
)
REQUEST_SECONDS: Final = _named(
    histogram("request_duration_seconds", _REQUEST, "From intake to the end of the answer.", _SEE, "seconds"),
    _OBJECTIVE + "request_duration_seconds",
)
REQUEST_BYTES: Final = _named(
    histogram("request_size_bytes", _REQUEST, "Size of request bodies.", _SEE, "bytes"),
    _OBJECTIVE + "request_sizes",
)
RESPONSE_BYTES: Final = _named(
    histogram("response_size_bytes", _REQUEST, "Size of answers that were watched.", _SEE, "bytes"),
    _OBJECTIVE + "response_sizes",
)
INPUT_TOKENS: Final = _named(
    histogram("request_input_tokens", _REQUEST, "Prompt tokens as model servers count them.", _SEE),
    _OBJECTIVE + "input_tokens",
)
OUTPUT_TOKENS: Final = _named(
    histogram("request_output_tokens", _REQUEST, "Generated tokens as model servers count them.", _SEE),
    _OBJECTIVE + "output_tokens",
)
CACHED_TOKENS: Final = _named(
    histogram("request_cached_tokens", _REQUEST, "Prompt tokens that came from a prefix cache.", _SEE),
    _OBJECTIVE + "prompt_cached_tokens",
)
RUNNING: Final = _named(
    gauge("request_running", ("model_name",), "Requests between intake and end.", _SEE),
    _OBJECTIVE + "running_requests",
)
NTPOT_SECONDS: Final = _named(
    histogram("request_ntpot_seconds", _REQUEST, "Duration divided by generated tokens.", _SEE, "seconds"),
    _OBJECTIVE + "normalized_time_per_output_token_seconds",
)
TTFT_SECONDS: Final = _named(
    histogram("request_ttft_seconds", (*_REQUEST, "streaming"), "Time to first token.", _SEE, "seconds"),
)
TPOT_SECONDS: Final = _named(
    histogram(
        "request_streaming_tpot_seconds", _REQUEST, "Time per token after the first one.", _SEE, "seconds"
    ),
)
REWRITES: Final = _named(
    counter(
        "model_rewrite_decisions_total",
        ("model_rewrite_name", "model_name", "target_model"),
        "Requests given another model than they named.",
        "Shares off the weights: read the rewrite rules.",
    ),
    _EXTENSION + "model_rewrite_decisions_total",
)

POOL_KV_USE: Final = _named(
    gauge("average_kv_cache_utilization", ("name",), "Mean KV-cache use of ready pods.", "Near 1: add pods."),
    _POOL + "average_kv_cache_utilization",
)
POOL_QUEUE: Final = _named(
    gauge("average_queue_size", ("name",), "Mean waiting requests of ready pods.", "Rising: add pods."),
    _POOL + "average_queue_size",
)
POOL_RUNNING: Final = _named(
    gauge("average_running_requests", ("name",), "Mean running requests of ready pods.", "Rising: add pods."),
    _POOL + "average_running_requests",
)
POOL_KV_USE_SPREAD: Final = _named(
    gauge("std_dev_kv_cache_utilization", ("name",), "Spread of KV use over pods.", "High: affinity is hot."),
)
POOL_QUEUE_SPREAD: Final = _named(
    gauge("std_dev_queue_size", ("name",), "Spread of queues over pods.", "High: affinity is hot."),
)
POOL_RUNNING_SPREAD: Final = _named(
    gauge("std_dev_running_requests", ("name",), "Spread of running requests.", "High: affinity is hot."),
)
POOL_READY: Final = _named(
    gauge("ready_endpoints", ("name",), "Endpoints that may be picked.", "Low: read the pod list's reasons."),
    _POOL + "ready_pods",
)
POD_QUEUE: Final = _named(
    gauge(
        "per_endpoint_queue_size",
        ("name", "model_server_endpoint"),
        "Waiting requests of one endpoint.",
        "One far above the rest: it is slow.",
    ),
    _POOL + "per_pod_queue_size",
)

SCHEDULER_ATTEMPTS: Final = _named(
    counter(
        "scheduler_attempts_total",
        ("status", "target_model_name", "endpoint_name", "namespace", "port"),
        "Picks by result and endpoint.",
        "`failure` rising: nobody can serve.",
    ),
    _EXTENSION + "scheduler_attempts_total",
)
PROCESSING_SECONDS: Final = _named(
    histogram(
        "request_processing_duration_seconds", (), "From intake to pick, queueing included.", _SEE, "seconds"
    ),
)
INFO: Final = _named(
    gauge("info", ("commit", "build_ref"), "1, with the build's identity.", "Constant."), _EXTENSION + "info"
)

POLL_ERRORS: Final = _named(
    counter("datalayer_poll_errors_total", ("source_type",), "Scrapes without a page.", "Read the pod list."),
)
EXTRACT_ERRORS: Final = _named(
    counter(
        "datalayer_extract_errors_total",
        ("source_type", "extractor_type"),
        "Pages without a needed metric.",
        "The engine is too old, or is another one than declared.",
    ),
)
PREFIX_INDEX_SIZE: Final = _named(
    gauge("prefix_indexer_size", (), "Blocks in the approximate prefix index.", "Bounded by design."),
    _EXTENSION + "prefix_indexer_size",
)
PREFIX_HIT_RATIO: Final = _named(
    histogram("prefix_indexer_hit_ratio", (), "Matched share of prompts.", "Low: prompts share nothing."),
    _EXTENSION + "prefix_indexer_hit_ratio",
)

QUEUE_SECONDS: Final = _named(
    histogram(
        "flow_control_request_queue_duration_seconds",
        (*_QUEUED, "outcome"),
        "Time in the queue.",
        "Rising: capacity is short for this band.",
        "seconds",
    ),
    _EXTENSION + "flow_control_request_queue_duration_seconds",
)
QUEUE_SIZE: Final = _named(
    gauge("flow_control_queue_size", _QUEUED, "Requests in the queue.", "Rising: capacity is short."),
    _EXTENSION + "flow_control_queue_size",
)
QUEUE_BYTES: Final = _named(
    gauge("flow_control_queue_bytes", _QUEUED, "Bytes in the queue.", "Rising: capacity is short.", "bytes"),
    _EXTENSION + "flow_control_queue_bytes",
)
POOL_SATURATION: Final = _named(
    gauge(
        "flow_control_pool_saturation",
        ("inference_pool", "stage"),
        "Saturation of a pool; not clamped.",
        "1 and above: requests queue.",
    ),
    _EXTENSION + "flow_control_pool_saturation",
)
QUEUE_REQUESTS: Final = _named(
    counter(
        "flow_control_requests_total",
        ("outcome", "priority", "inference_pool"),
        "Requests by what the queue made of them.",
        _SEE,
    ),
)
BAND_USE_REQUESTS: Final = _named(
    gauge(
        "flow_control_capacity_utilization_requests",
        ("priority",),
        "Share of a band's places that wait; 0 without a bound.",
        "Near 1: its requests are about to be refused.",
    ),
)
BAND_USE_BYTES: Final = _named(
    gauge(
        "flow_control_capacity_utilization_bytes",
        ("priority",),
        "Share of a band's bytes that wait; 0 without a bound.",
        "Near 1: its requests are about to be refused.",
    ),
)
REVOCATIONS_ISSUED: Final = _named(
    counter(
        "flow_control_revocations_issued_total",
        ("inference_pool",),
        "Requests told to end for others that matter more.",
        "Rising: capacity is short for what may not be shed.",
    ),
)
REVOCATIONS: Final = _named(
    counter(
        "flow_control_revocations_total",
        ("outcome", "inference_pool"),
        "Revocations by whether the request ended in time.",
        "`timed_out`: clients hold on to requests that were revoked.",
    ),
)
REVOCATION_SECONDS: Final = _named(
    histogram(
        "flow_control_revocation_confirmation_seconds", (), "From a revocation to its end.", _SEE, "seconds"
    ),
)

STREAMS: Final = _named(
    gauge("extproc_streams_inflight", (), "Open ext_proc streams.", "Rising without end: a gateway hangs."),
)
STREAM_SECONDS: Final = _named(
    histogram("extproc_stream_duration_seconds", (), "Life of an ext_proc stream.", _SEE, "seconds"),
)
STREAMS_TOTAL: Final = _named(
    counter(
        "extproc_streams_total",
        ("code",),
        "ext_proc streams that ended, by gRPC status.",
        "`Internal` rising: the log says what failed.",
    ),
)
IN_FLIGHT_REQUESTS: Final = _named(
    gauge("inflight_requests", ("name",), "Requests at pods.", "Rising: capacity is short."),
)
IN_FLIGHT_TOKENS: Final = _named(
    gauge("inflight_tokens", ("name",), "Prompt tokens at pods.", "Rising: capacity is short."),
)

ALL: Final = tuple(value for value in vars().copy().values() if isinstance(value, FieldMetric))
SPECS: Final[tuple[MetricSpec, ...]] = tuple(spec for metric in ALL for spec in metric.specs)
