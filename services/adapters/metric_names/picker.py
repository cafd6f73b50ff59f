"""Metrics of an endpoint picker under our own names.

Label values come from closed sets or from configuration, never from requests; the names other pickers of the
field use stand in `field`.
"""

from typing import Final

from services.adapters.metric_names.spec import MetricSpec, counter, gauge

PICKER_SCRAPES: Final = "gir_picker_scrapes_total"
PICKER_PODS: Final = "gir_picker_pods"
PICKER_POD_MOVES: Final = "gir_picker_pod_moves_total"
PICKER_MISSING_METRIC_PODS: Final = "gir_picker_missing_metric_pods"
PICKER_OLD_ENGINE_PODS: Final = "gir_picker_old_engine_pods"
PICKER_SERVING_WITHOUT_METRICS: Final = "gir_picker_serving_without_metrics"
PICKER_READY_ENDPOINTS: Final = "gir_picker_ready_endpoints"
PICKER_SATURATION: Final = "gir_picker_saturation_ratio"
PICKER_IN_FLIGHT: Final = "gir_picker_in_flight_requests"
PICKER_PROMPT_TOKENS: Final = "gir_picker_prompt_tokens_per_second"
PICKER_GENERATION_TOKENS: Final = "gir_picker_generation_tokens_per_second"
PICKER_SERVER_PREFIX_HITS: Final = "gir_picker_server_prefix_hit_ratio"
PICKER_HELD_BODIES: Final = "gir_picker_held_bodies_bytes"
PICKER_PICKS: Final = "gir_picker_picks_total"
PICKER_REJECTIONS: Final = "gir_picker_rejections_total"
PICKER_OUTCOMES: Final = "gir_picker_outcomes_total"
PICKER_HAND_OFF_REFUSALS: Final = "gir_picker_hand_off_refusals_total"
PICKER_EXPIRED_PICKS: Final = "gir_picker_expired_picks_total"
PICKER_REPORTS: Final = "gir_picker_reports_total"
PICKER_REPORTS_LOST: Final = "gir_picker_reports_lost_total"
PICKER_PUBLISHING: Final = "gir_picker_publishing"
PICKER_FENCED: Final = "gir_picker_fenced_total"
PICKER_BUS_CONNECTED: Final = "gir_picker_bus_connected"

SPECS: Final[tuple[MetricSpec, ...]] = (
    counter(
        PICKER_SCRAPES,
        ("result",),
        "Metrics pages asked of model servers, by result.",
        "Any result but `ok` rising: read the pod list's reasons (`gir fleet --pods`).",
    ),
    gauge(
        PICKER_PODS,
        ("pool", "state"),
        "Pods by state.",
        "Pods outside READY: the pod list names each reason.",
    ),
    counter(
        PICKER_POD_MOVES,
        (),
        "State changes of pods.",
        "Flapping: compare scrape results and the servers' load.",
    ),
    gauge(
        PICKER_MISSING_METRIC_PODS,
        ("metric",),
        "Pods whose page lacks a metric that picking needs.",
        "Above 0: the engine is too old, or its metrics are switched off; its load scores as the pool's mean.",
    ),
    gauge(
        PICKER_OLD_ENGINE_PODS,
        ("metric",),
        "Pods whose engine version is below the minimum, by the metric it gets wrong.",
        "Above 0: upgrade the model server.",
    ),
    gauge(
        PICKER_SERVING_WITHOUT_METRICS,
        ("pool",),
        "1 while no pod of the pool has current metrics and traffic goes to the least own in-flight.",
        "1: the metrics path is broken or the servers are overloaded; requests still flow.",
    ),
    gauge(
        PICKER_READY_ENDPOINTS,
        ("pool",),
        "Pods that may be picked.",
        "Low, not high: 0 answers 503 and makes the router send traffic elsewhere.",
    ),
    gauge(
        PICKER_SATURATION,
        ("pool",),
        "Mean over ready pods of max(waiting/5, kv/0.8); absent when unknown.",
        "At 1 and above: add capacity, or let the router shift load.",
        unit="ratio",
    ),
    gauge(
        PICKER_IN_FLIGHT,
        ("pool",),
        "Requests this picker has sent to pods and that have not ended.",
        "Rising without end: callers do not send Complete, or servers hang.",
    ),
    gauge(
        PICKER_PROMPT_TOKENS,
        ("pool",),
        "Prompt tokens per second that ready pods read in the last minute; absent when none tells.",
        "Traffic; nothing to do.",
    ),
    gauge(
        PICKER_GENERATION_TOKENS,
        ("pool",),
        "Tokens per second that ready pods generated in the last minute; absent when none tells.",
        "Traffic; nothing to do.",
    ),
    gauge(
        PICKER_SERVER_PREFIX_HITS,
        ("pool",),
        "Mean over ready pods of the share of the last minute's prompts that their caches held; absent when unknown.",
        "Low, not high: prompts share nothing, or pods forget them too soon.",
        unit="ratio",
    ),
    gauge(
        PICKER_HELD_BODIES,
        (),
        "Request bodies of ext_proc streams that wait for their end or for an endpoint.",
        "Near 512 MiB: new bodies are refused; compare with what flow control queues.",
        unit="bytes",
    ),
    counter(PICKER_PICKS, (), "Requests that were given a pod.", "Traffic; nothing to do."),
    counter(
        PICKER_REJECTIONS,
        ("reason",),
        "Requests refused, by drop reason.",
        "Compare 429 reasons (contended) with 503 reasons (nobody can serve).",
    ),
    counter(
        PICKER_OUTCOMES,
        ("outcome",),
        "How picked requests ended.",
        "connect_failed or gateway_error rising: the pod is dying.",
    ),
    counter(
        PICKER_HAND_OFF_REFUSALS,
        ("refusal",),
        "Requests without a valid hand-off token, by why.",
        "unknown_key: rotate keys in step; others: somebody calls the gateway directly.",
    ),
    counter(
        PICKER_EXPIRED_PICKS,
        (),
        "gRPC picks whose Complete never came.",
        "Above 0: a caller forgets Complete, and own in-flight overstates load meanwhile.",
    ),
    counter(
        PICKER_REPORTS,
        (),
        "Health reports offered to the bus.",
        "Over 10 a second: the load swings by more than 10 % at every scrape.",
    ),
    counter(
        PICKER_REPORTS_LOST,
        ("how",),
        "Records that a newer one replaced, that grew too old, or that the bus refused.",
        "Rising: the bus is slow or away.",
    ),
    gauge(
        PICKER_PUBLISHING,
        (),
        "1 while this process speaks for its cluster.",
        "0 on every picker of a cluster: nobody holds the lease or the bus is away.",
    ),
    counter(
        PICKER_FENCED,
        (),
        "Times a higher epoch of the own cluster silenced this publisher.",
        "More than at a hand-over: two processes believe to be the publisher.",
    ),
    gauge(
        PICKER_BUS_CONNECTED,
        (),
        "1 while the bus is connected.",
        "0: routers see this cluster as silent and rely on probes.",
    ),
)
