"""Metrics of a global router and of a projector.

Label values come from closed sets or from configuration, never from requests.
"""

from typing import Final

from services.adapters.metric_names.spec import MetricSpec, counter, gauge

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

SPECS: Final[tuple[MetricSpec, ...]] = (
    counter(ROUTER_REQUESTS, (), "Requests that were decided, over all doors.", "Traffic; nothing to do."),
    gauge(
        ROUTER_LIVE,
        (),
        "HTTP requests in flight in this worker.",
        "Rising without end: upstreams hang; compare gir_cluster_in_flight_requests.",
    ),
    gauge(
        ROUTER_REPLAY_BYTES,
        (),
        "Request bodies held in memory, for replay or because they are large.",
        "Near 256 MiB: new bodies get one attempt only; add workers.",
        unit="bytes",
    ),
    counter(
        ROUTER_ATTEMPTS,
        (),
        "Attempts sent to clusters.",
        "Over 1.2 times the requests: clusters fail; read the outcomes.",
    ),
    counter(
        ROUTER_REDISPATCHES,
        (),
        "Attempts moved away from a lost or drained cluster, outside the retry budget.",
        "Bursts mark a cluster's death.",
    ),
    counter(
        ROUTER_RETRIES_DENIED,
        (),
        "Retries the budget refused or postponed.",
        "Rising: failures outrun the budget; a cluster is dying slowly.",
    ),
    counter(
        ROUTER_RECORDS_DROPPED,
        (),
        "Decision records that could not be written to the file.",
        "Above 0: the disk is full or slow.",
    ),
    counter(
        ROUTER_ENDINGS,
        ("ending",),
        "How HTTP requests ended, seen from the client.",
        "`rejected` or `failed_in_band` rising: clients see errors.",
    ),
    counter(
        ROUTER_REJECTIONS,
        ("reason",),
        "Requests that were decided to go nowhere, by drop reason.",
        "429 reasons: add capacity; 503 reasons: clusters are missing.",
    ),
    counter(
        ROUTER_REFUSALS,
        ("reason",),
        "Requests a door refused before a decision.",
        "`invalid_api_key` rising: somebody tries keys, or keys rotated.",
    ),
    counter(
        ROUTER_OUTCOMES,
        ("outcome",),
        "How attempts were answered by clusters.",
        "`connect_failed` or `gateway_error` rising: read which cluster was ejected.",
    ),
    gauge(ROUTER_READY, (), "1 while this router takes traffic.", "0: it has no policy, or suspects itself."),
    gauge(
        ROUTER_ISOLATED,
        (),
        "1 while every cluster is silent and every probe fails.",
        "1: look at this router's own network first.",
    ),
    gauge(
        FLEET_BUS_OUTAGE,
        (),
        "1 while the bus, not the clusters, is suspected of the silence.",
        "1: Kafka, the projectors or Redis; traffic is not affected.",
    ),
    gauge(
        ROUTER_STORE_CONNECTED,
        (),
        "1 while the regional store answers.",
        "0: the last snapshot and the probes rule; traffic is not affected.",
    ),
    counter(
        ROUTER_LISTINGS,
        (),
        "Whole lists taken from the store.",
        "Rising steadily: the change stream is too short or the store restarts.",
    ),
    counter(
        ROUTER_CHANGES, (), "Changes taken from the store's stream.", "Still: the projectors or the bus."
    ),
    counter(
        ROUTER_CLUSTER_MOVES,
        ("state", "reason"),
        "Moves of clusters into each health state, by reason.",
        "`unhealthy` rising: a cluster flaps; the log names it.",
    ),
    counter(ROUTER_SNAPSHOTS, (), "Snapshots built.", "At most 5 a second by design."),
    counter(
        ROUTER_LATE_TICKS,
        (),
        "Pauses of this process that voided its timers.",
        "Rising: the host is overloaded or the process is stopped at times.",
    ),
    counter(
        ROUTER_UNDECODABLE,
        (),
        "Reports and policies that could not be read.",
        "Above 0: versions are too far apart.",
    ),
    gauge(
        ROUTER_POLICY_REVISION,
        (),
        "Revision of the policy in force.",
        "Routers that differ for long: a projector or store is stuck.",
    ),
    counter(
        ROUTER_PROBES,
        ("result",),
        "Probes of clusters' readiness, by result.",
        "`failed` rising: the clusters named by gir_cluster_state.",
    ),
    gauge(
        CLUSTER_STATE,
        ("cluster", "state"),
        "1 for the state each cluster is in.",
        "Anything but `healthy`: `gir fleet` tells why.",
    ),
    gauge(
        CLUSTER_IN_FLIGHT,
        ("cluster",),
        "This worker's HTTP requests at each cluster.",
        "Uneven shares: compare weights and capacity.",
    ),
    gauge(
        CLUSTER_SILENCE,
        ("cluster",),
        "Time since the last live report of each cluster arrived.",
        "Over 1.25: the cluster is STALE; over 3: it is dead or the bus is.",
        unit="seconds",
    ),
    gauge(
        PROJECTOR_READY,
        (),
        "1 while the whole bus stands in the store.",
        "0: routers keep what they know until it does.",
    ),
    gauge(
        PROJECTOR_BUS_CONNECTED,
        (),
        "1 while the bus answers.",
        "0 on every projector of a region: Kafka is away.",
    ),
    counter(
        PROJECTOR_REPLAYS,
        (),
        "Times the store was found to be another one.",
        "Rising: Redis loses its data or fails over.",
    ),
    counter(
        PROJECTOR_STORE_FAILURES,
        (),
        "Writes the store refused or did not answer.",
        "Rising: Redis is away, full or read-only.",
    ),
    counter(
        PROJECTOR_RECORDS,
        ("result",),
        "Records read, by what became of them.",
        "`undecodable`: read the dead-letter topic.",
    ),
)
