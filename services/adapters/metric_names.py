"""The closed list of metrics: every name this product exports, its kind, unit, labels and what to do about it.

A metric that is not here cannot be exported; with `ports` this is the lobby that every room may enter.
Values live as plain integers where things happen and are read when a page is asked for. Label values come
from closed sets or from configuration, never from requests.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


class Kind(enum.Enum):
    """Prometheus metric types in use."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric. `unit` is empty for counts. `when_high` tells an operator what a bad value asks for."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    what: str
    when_high: str


def _by_name(*specs: MetricSpec) -> Mapping[str, MetricSpec]:
    return MappingProxyType({spec.name: spec for spec in specs})


PICKER_SCRAPES: Final = "gir_picker_scrapes_total"
PICKER_PODS: Final = "gir_picker_pods"
PICKER_POD_MOVES: Final = "gir_picker_pod_moves_total"
PICKER_MISSING_METRIC_PODS: Final = "gir_picker_missing_metric_pods"
PICKER_OLD_ENGINE_PODS: Final = "gir_picker_old_engine_pods"
PICKER_SERVING_WITHOUT_METRICS: Final = "gir_picker_serving_without_metrics"
PICKER_READY_ENDPOINTS: Final = "gir_picker_ready_endpoints"
PICKER_SATURATION: Final = "gir_picker_saturation_ratio"
PICKER_IN_FLIGHT: Final = "gir_picker_in_flight_requests"
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

METRICS: Final = _by_name(
    MetricSpec(
        PICKER_SCRAPES,
        Kind.COUNTER,
        "",
        ("result",),
        "Metrics pages asked of model servers, by result.",
        "Any result but `ok` rising: read the pod list's reasons (`gir fleet --pods`).",
    ),
    MetricSpec(
        PICKER_PODS,
        Kind.GAUGE,
        "",
        ("pool", "state"),
        "Pods by state.",
        "Pods outside READY: the pod list names each reason.",
    ),
    MetricSpec(
        PICKER_POD_MOVES,
        Kind.COUNTER,
        "",
        (),
        "State changes of pods.",
        "Flapping: compare scrape results and the servers' load.",
    ),
    MetricSpec(
        PICKER_MISSING_METRIC_PODS,
        Kind.GAUGE,
        "",
        ("metric",),
        "Pods whose page lacks a metric that picking needs.",
        "Above 0: the engine is too old, or its metrics are switched off; its load scores as the pool's mean.",
    ),
    MetricSpec(
        PICKER_OLD_ENGINE_PODS,
        Kind.GAUGE,
        "",
        ("metric",),
        "Pods whose engine version is below the minimum, by the metric it gets wrong.",
        "Above 0: upgrade the model server.",
    ),
    MetricSpec(
        PICKER_SERVING_WITHOUT_METRICS,
        Kind.GAUGE,
        "",
        ("pool",),
        "1 while no pod of the pool has current metrics and traffic goes to the least own in-flight.",
        "1: the metrics path is broken or the servers are overloaded; requests still flow.",
    ),
    MetricSpec(
        PICKER_READY_ENDPOINTS,
        Kind.GAUGE,
        "",
        ("pool",),
        "Pods that may be picked.",
        "Low, not high: 0 answers 503 and makes the router send traffic elsewhere.",
    ),
    MetricSpec(
        PICKER_SATURATION,
        Kind.GAUGE,
        "ratio",
        ("pool",),
        "Mean over ready pods of max(waiting/5, kv/0.8); absent when unknown.",
        "At 1 and above: add capacity, or let the router shift load.",
    ),
    MetricSpec(
        PICKER_IN_FLIGHT,
        Kind.GAUGE,
        "",
        ("pool",),
        "Requests this picker has sent to pods and that have not ended.",
        "Rising without end: callers do not send Complete, or servers hang.",
    ),
    MetricSpec(
        PICKER_PICKS,
        Kind.COUNTER,
        "",
        (),
        "Requests that were given a pod.",
        "Traffic; nothing to do.",
    ),
    MetricSpec(
        PICKER_REJECTIONS,
        Kind.COUNTER,
        "",
        ("reason",),
        "Requests refused, by drop reason.",
        "Compare 429 reasons (contended) with 503 reasons (nobody can serve).",
    ),
    MetricSpec(
        PICKER_OUTCOMES,
        Kind.COUNTER,
        "",
        ("outcome",),
        "How picked requests ended.",
        "connect_failed or gateway_error rising: the pod is dying.",
    ),
    MetricSpec(
        PICKER_HAND_OFF_REFUSALS,
        Kind.COUNTER,
        "",
        ("refusal",),
        "Requests without a valid hand-off token, by why.",
        "unknown_key: rotate keys in step; others: somebody calls the gateway directly.",
    ),
    MetricSpec(
        PICKER_EXPIRED_PICKS,
        Kind.COUNTER,
        "",
        (),
        "gRPC picks whose Complete never came.",
        "Above 0: a caller forgets Complete, and own in-flight overstates load meanwhile.",
    ),
    MetricSpec(
        PICKER_REPORTS,
        Kind.COUNTER,
        "",
        (),
        "Health reports offered to the bus.",
        "Over 10 a second: the load swings by more than 10 % at every scrape.",
    ),
    MetricSpec(
        PICKER_REPORTS_LOST,
        Kind.COUNTER,
        "",
        ("how",),
        "Records that a newer one replaced, that grew too old, or that the bus refused.",
        "Rising: the bus is slow or away.",
    ),
    MetricSpec(
        PICKER_PUBLISHING,
        Kind.GAUGE,
        "",
        (),
        "1 while this process speaks for its cluster.",
        "0 on every picker of a cluster: nobody holds the lease or the bus is away.",
    ),
    MetricSpec(
        PICKER_FENCED,
        Kind.COUNTER,
        "",
        (),
        "Times a higher epoch of the own cluster silenced this publisher.",
        "More than at a hand-over: two processes believe to be the publisher.",
    ),
    MetricSpec(
        PICKER_BUS_CONNECTED,
        Kind.GAUGE,
        "",
        (),
        "1 while the bus is connected.",
        "0: routers see this cluster as silent and rely on probes.",
    ),
)
"""Every metric by name."""
