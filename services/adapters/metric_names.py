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


def _counter(name: str, labels: tuple[str, ...], what: str, when_high: str, unit: str = "") -> MetricSpec:
    return MetricSpec(name, Kind.COUNTER, unit, labels, what, when_high)


def _gauge(name: str, labels: tuple[str, ...], what: str, when_high: str, unit: str = "") -> MetricSpec:
    return MetricSpec(name, Kind.GAUGE, unit, labels, what, when_high)


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

ROUTER_REQUESTS: Final = "gir_router_requests_total"
ROUTER_LIVE: Final = "gir_router_live_requests"
ROUTER_REPLAY_BYTES: Final = "gir_router_replay_bytes"
ROUTER_ATTEMPTS: Final = "gir_router_attempts_total"
ROUTER_REDISPATCHES: Final = "gir_router_redispatches_total"
ROUTER_RETRIES_DENIED: Final = "gir_router_retries_denied_total"
ROUTER_RECORDS_DROPPED: Final = "gir_router_records_dropped_total"
ROUTER_ENDINGS: Final = "gir_router_endings_total"
ROUTER_REJECTIONS: Final = "gir_router_rejections_total"
ROUTER_REFUSALS: Final = "gir_router_refusals_total"
ROUTER_OUTCOMES: Final = "gir_router_attempt_outcomes_total"
ROUTER_READY: Final = "gir_router_ready"
ROUTER_ISOLATED: Final = "gir_router_isolated"
FLEET_BUS_OUTAGE: Final = "gir_fleet_bus_outage"
ROUTER_STORE_CONNECTED: Final = "gir_router_store_connected"
ROUTER_LISTINGS: Final = "gir_router_listings_total"
ROUTER_CHANGES: Final = "gir_router_store_changes_total"
ROUTER_CLUSTER_MOVES: Final = "gir_router_cluster_moves_total"
ROUTER_SNAPSHOTS: Final = "gir_router_snapshots_total"
ROUTER_LATE_TICKS: Final = "gir_router_late_ticks_total"
ROUTER_UNDECODABLE: Final = "gir_router_undecodable_total"
ROUTER_POLICY_REVISION: Final = "gir_router_policy_revision"
ROUTER_PROBES: Final = "gir_router_probes_total"
PROJECTOR_READY: Final = "gir_projector_ready"
PROJECTOR_BUS_CONNECTED: Final = "gir_projector_bus_connected"
PROJECTOR_REPLAYS: Final = "gir_projector_replays_total"
PROJECTOR_STORE_FAILURES: Final = "gir_projector_store_failures_total"
PROJECTOR_RECORDS: Final = "gir_projector_records_total"
CLUSTER_STATE: Final = "gir_cluster_state"
CLUSTER_IN_FLIGHT: Final = "gir_cluster_in_flight_requests"
CLUSTER_SILENCE: Final = "gir_cluster_silence_seconds"

METRICS: Final = _by_name(
    _counter(
        PICKER_SCRAPES,
        ("result",),
        "Metrics pages asked of model servers, by result.",
        "Any result but `ok` rising: read the pod list's reasons (`gir fleet --pods`).",
    ),
    _gauge(
        PICKER_PODS,
        ("pool", "state"),
        "Pods by state.",
        "Pods outside READY: the pod list names each reason.",
    ),
    _counter(
        PICKER_POD_MOVES,
        (),
        "State changes of pods.",
        "Flapping: compare scrape results and the servers' load.",
    ),
    _gauge(
        PICKER_MISSING_METRIC_PODS,
        ("metric",),
        "Pods whose page lacks a metric that picking needs.",
        "Above 0: the engine is too old, or its metrics are switched off; its load scores as the pool's mean.",
    ),
    _gauge(
        PICKER_OLD_ENGINE_PODS,
        ("metric",),
        "Pods whose engine version is below the minimum, by the metric it gets wrong.",
        "Above 0: upgrade the model server.",
    ),
    _gauge(
        PICKER_SERVING_WITHOUT_METRICS,
        ("pool",),
        "1 while no pod of the pool has current metrics and traffic goes to the least own in-flight.",
        "1: the metrics path is broken or the servers are overloaded; requests still flow.",
    ),
    _gauge(
        PICKER_READY_ENDPOINTS,
        ("pool",),
        "Pods that may be picked.",
        "Low, not high: 0 answers 503 and makes the router send traffic elsewhere.",
    ),
    _gauge(
        PICKER_SATURATION,
        ("pool",),
        "Mean over ready pods of max(waiting/5, kv/0.8); absent when unknown.",
        "At 1 and above: add capacity, or let the router shift load.",
        unit="ratio",
    ),
    _gauge(
        PICKER_IN_FLIGHT,
        ("pool",),
        "Requests this picker has sent to pods and that have not ended.",
        "Rising without end: callers do not send Complete, or servers hang.",
    ),
    _counter(PICKER_PICKS, (), "Requests that were given a pod.", "Traffic; nothing to do."),
    _counter(
        PICKER_REJECTIONS,
        ("reason",),
        "Requests refused, by drop reason.",
        "Compare 429 reasons (contended) with 503 reasons (nobody can serve).",
    ),
    _counter(
        PICKER_OUTCOMES,
        ("outcome",),
        "How picked requests ended.",
        "connect_failed or gateway_error rising: the pod is dying.",
    ),
    _counter(
        PICKER_HAND_OFF_REFUSALS,
        ("refusal",),
        "Requests without a valid hand-off token, by why.",
        "unknown_key: rotate keys in step; others: somebody calls the gateway directly.",
    ),
    _counter(
        PICKER_EXPIRED_PICKS,
        (),
        "gRPC picks whose Complete never came.",
        "Above 0: a caller forgets Complete, and own in-flight overstates load meanwhile.",
    ),
    _counter(
        PICKER_REPORTS,
        (),
        "Health reports offered to the bus.",
        "Over 10 a second: the load swings by more than 10 % at every scrape.",
    ),
    _counter(
        PICKER_REPORTS_LOST,
        ("how",),
        "Records that a newer one replaced, that grew too old, or that the bus refused.",
        "Rising: the bus is slow or away.",
    ),
    _gauge(
        PICKER_PUBLISHING,
        (),
        "1 while this process speaks for its cluster.",
        "0 on every picker of a cluster: nobody holds the lease or the bus is away.",
    ),
    _counter(
        PICKER_FENCED,
        (),
        "Times a higher epoch of the own cluster silenced this publisher.",
        "More than at a hand-over: two processes believe to be the publisher.",
    ),
    _gauge(
        PICKER_BUS_CONNECTED,
        (),
        "1 while the bus is connected.",
        "0: routers see this cluster as silent and rely on probes.",
    ),
    _counter(ROUTER_REQUESTS, (), "Requests that were decided, over all doors.", "Traffic; nothing to do."),
    _gauge(
        ROUTER_LIVE,
        (),
        "HTTP requests in flight in this worker.",
        "Rising without end: upstreams hang; compare gir_cluster_in_flight_requests.",
    ),
    _gauge(
        ROUTER_REPLAY_BYTES,
        (),
        "Request bodies held in memory, for replay or because they are large.",
        "Near 256 MiB: new bodies get one attempt only; add workers.",
        unit="bytes",
    ),
    _counter(
        ROUTER_ATTEMPTS,
        (),
        "Attempts sent to clusters.",
        "Over 1.2 times the requests: clusters fail; read the outcomes.",
    ),
    _counter(
        ROUTER_REDISPATCHES,
        (),
        "Attempts moved away from a lost or drained cluster, outside the retry budget.",
        "Bursts mark a cluster's death.",
    ),
    _counter(
        ROUTER_RETRIES_DENIED,
        (),
        "Retries the budget refused or postponed.",
        "Rising: failures outrun the budget; a cluster is dying slowly.",
    ),
    _counter(
        ROUTER_RECORDS_DROPPED,
        (),
        "Decision records that could not be written to the file.",
        "Above 0: the disk is full or slow.",
    ),
    _counter(
        ROUTER_ENDINGS,
        ("ending",),
        "How HTTP requests ended, seen from the client.",
        "`rejected` or `failed_in_band` rising: clients see errors.",
    ),
    _counter(
        ROUTER_REJECTIONS,
        ("reason",),
        "Requests that were decided to go nowhere, by drop reason.",
        "429 reasons: add capacity; 503 reasons: clusters are missing.",
    ),
    _counter(
        ROUTER_REFUSALS,
        ("reason",),
        "Requests a door refused before a decision.",
        "`invalid_api_key` rising: somebody tries keys, or keys rotated.",
    ),
    _counter(
        ROUTER_OUTCOMES,
        ("outcome",),
        "How attempts were answered by clusters.",
        "`connect_failed` or `gateway_error` rising: read which cluster was ejected.",
    ),
    _gauge(
        ROUTER_READY, (), "1 while this router takes traffic.", "0: it has no policy, or suspects itself."
    ),
    _gauge(
        ROUTER_ISOLATED,
        (),
        "1 while every cluster is silent and every probe fails.",
        "1: look at this router's own network first.",
    ),
    _gauge(
        FLEET_BUS_OUTAGE,
        (),
        "1 while the bus, not the clusters, is suspected of the silence.",
        "1: Kafka, the projectors or Redis; traffic is not affected.",
    ),
    _gauge(
        ROUTER_STORE_CONNECTED,
        (),
        "1 while the regional store answers.",
        "0: the last snapshot and the probes rule; traffic is not affected.",
    ),
    _counter(
        ROUTER_LISTINGS,
        (),
        "Whole lists taken from the store.",
        "Rising steadily: the change stream is too short or the store restarts.",
    ),
    _counter(
        ROUTER_CHANGES, (), "Changes taken from the store's stream.", "Still: the projectors or the bus."
    ),
    _counter(
        ROUTER_CLUSTER_MOVES,
        ("state", "reason"),
        "Moves of clusters into each health state, by reason.",
        "`unhealthy` rising: a cluster flaps; the log names it.",
    ),
    _counter(ROUTER_SNAPSHOTS, (), "Snapshots built.", "At most 5 a second by design."),
    _counter(
        ROUTER_LATE_TICKS,
        (),
        "Pauses of this process that voided its timers.",
        "Rising: the host is overloaded or the process is stopped at times.",
    ),
    _counter(
        ROUTER_UNDECODABLE,
        (),
        "Reports and policies that could not be read.",
        "Above 0: versions are too far apart.",
    ),
    _gauge(
        ROUTER_POLICY_REVISION,
        (),
        "Revision of the policy in force.",
        "Routers that differ for long: a projector or store is stuck.",
    ),
    _counter(
        ROUTER_PROBES,
        ("result",),
        "Probes of clusters' readiness, by result.",
        "`failed` rising: the clusters named by gir_cluster_state.",
    ),
    _gauge(
        CLUSTER_STATE,
        ("cluster", "state"),
        "1 for the state each cluster is in.",
        "Anything but `healthy`: `gir fleet` tells why.",
    ),
    _gauge(
        CLUSTER_IN_FLIGHT,
        ("cluster",),
        "This worker's HTTP requests at each cluster.",
        "Uneven shares: compare weights and capacity.",
    ),
    _gauge(
        CLUSTER_SILENCE,
        ("cluster",),
        "Time since the last live report of each cluster arrived.",
        "Over 1.25: the cluster is STALE; over 3: it is dead or the bus is.",
        unit="seconds",
    ),
    _gauge(
        PROJECTOR_READY,
        (),
        "1 while the whole bus stands in the store.",
        "0: routers keep what they know until it does.",
    ),
    _gauge(
        PROJECTOR_BUS_CONNECTED,
        (),
        "1 while the bus answers.",
        "0 on every projector of a region: Kafka is away.",
    ),
    _counter(
        PROJECTOR_REPLAYS,
        (),
        "Times the store was found to be another one.",
        "Rising: Redis loses its data or fails over.",
    ),
    _counter(
        PROJECTOR_STORE_FAILURES,
        (),
        "Writes the store refused or did not answer.",
        "Rising: Redis is away, full or read-only.",
    ),
    _counter(
        PROJECTOR_RECORDS,
        ("result",),
        "Records read, by what became of them.",
        "`undecodable`: read the dead-letter topic.",
    ),
)
"""Every metric by name."""
