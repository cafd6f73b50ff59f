"""Envoy's bootstrap in front of an endpoint picker, rendered as plain data: the shape for production and its variants.

`Follow.METADATA` is the one to run: a cluster that lists its hosts and takes the picker's choice from metadata
alone, round-robin when there is none. `Follow.HEADER` is how Gateway API implementations do it (ORIGINAL_DST);
there the destination header decides, so it is stripped before any filter sees it, in both. Apart from the server
because a deployment renders the same.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DESTINATION = "x-gateway-destination-endpoint"
SUBSET_HEADER = "x-test-subset"
BUFFER_BYTES = 32 << 20
"""Above the largest body that is let in (16 MiB); Envoy's default of 1 MiB would refuse with 413."""
STREAMS_MAX = 100_000
"""Circuit breakers: the picker bounds its own streams, and Envoy's default of 1024 would be met first."""
CONNECT_RETRIES = 2
_TYPES = "type.googleapis.com/envoy"

Document = dict[str, Any]


class Follow(enum.Enum):
    """How the picker's choice reaches the load balancer."""

    METADATA = "metadata"
    HEADER = "header"


class Body(enum.Enum):
    """How request bodies are sent to the picker."""

    DUPLEX = "FULL_DUPLEX_STREAMED"
    BUFFERED = "BUFFERED"


@dataclass(frozen=True, slots=True)
class Gateway:
    """One listener. `picker` and `endpoints` are `host:port`.

    fail_open: pass requests on when the picker cannot be asked; Envoy knows that for BUFFERED bodies only.
    responses: send the response phase to the picker. message_timeout_s: how long a BUFFERED decision may take.
    subset_header: take the subset hint from a request header, as a gateway's own filters would set it.
    picker None: no picker at all, the bare proxy that measurements compare with.
    """

    name: str
    port: int
    picker: str | None
    endpoints: tuple[str, ...]
    follow: Follow = Follow.METADATA
    body: Body = Body.DUPLEX
    fail_open: bool = False
    responses: bool = False
    message_timeout_s: float = 60.0
    subset_header: bool = False


def bootstrap(gateways: Sequence[Gateway], admin_port: int) -> Document:
    """Return the bootstrap; it is valid JSON once dumped."""
    clusters = [cluster for gateway in gateways for cluster in _clusters(gateway)]
    return {
        "admin": {"address": _address("127.0.0.1", admin_port)},
        "static_resources": {"listeners": [_listener(gateway) for gateway in gateways], "clusters": clusters},
    }


def _listener(gateway: Gateway) -> Document:
    strip = _typed(
        "envoy.http.early_header_mutation.header_mutation",
        "extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
        mutations=[{"remove": DESTINATION}],
    )
    connections = _typed(
        "envoy.filters.network.http_connection_manager",
        "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=gateway.name,
        # Whatever a client says of destinations is gone before the first filter runs.
        early_header_mutation_extensions=[strip],
        stream_idle_timeout="0s",
        route_config=_routes(gateway),
        http_filters=[*_filters(gateway), _router()],
    )
    return {
        "name": gateway.name,
        "address": _address("127.0.0.1", gateway.port),
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "filter_chains": [{"filters": [connections]}],
    }


def _routes(gateway: Gateway) -> Document:
    # A request that never reached a pod may go to the next of the picker's list; nothing else is repeated here.
    retry = {"retry_on": "connect-failure", "num_retries": CONNECT_RETRIES}
    route = {"cluster": _pods(gateway), "timeout": "0s", "retry_policy": retry}
    host = {
        "name": "pods",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": route}],
    }
    return {"name": gateway.name, "virtual_hosts": [host]}


def _filters(gateway: Gateway) -> list[Document]:
    filters = []
    if gateway.subset_header:
        rule = {
            "header": SUBSET_HEADER,
            "on_header_present": {
                "metadata_namespace": "envoy.lb.subset_hint",
                "key": f"{DESTINATION}-subset",
            },
            "remove": True,
        }
        filters.append(
            _typed(
                "envoy.filters.http.header_to_metadata",
                "extensions.filters.http.header_to_metadata.v3.Config",
                request_rules=[rule],
            )
        )
    if gateway.picker is not None:
        filters.append(_ext_proc(gateway))
    return filters


def _ext_proc(gateway: Gateway) -> Document:
    sent = "SEND" if gateway.responses else "SKIP"
    return _typed(
        "envoy.filters.http.ext_proc",
        "extensions.filters.http.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": _picker(gateway)}},
        failure_mode_allow=gateway.fail_open,
        message_timeout=f"{gateway.message_timeout_s:g}s",
        # Streamed bodies would otherwise reach pods in chunks. Not with responses: Envoy 1.40 then never ends the
        # answer to a request without body.
        allow_content_length_header=not gateway.responses,
        processing_mode={
            "request_header_mode": "SEND",
            "request_body_mode": gateway.body.value,
            "request_trailer_mode": "SEND" if gateway.body is Body.DUPLEX else "SKIP",
            "response_header_mode": sent,
            "response_body_mode": "FULL_DUPLEX_STREAMED" if gateway.responses else "NONE",
            "response_trailer_mode": sent,
        },
        metadata_options={
            "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
            "receiving_namespaces": {"untyped": ["envoy.lb"]},
        },
    )


def _clusters(gateway: Gateway) -> list[Document]:
    clusters = [_pods_by_header(gateway) if gateway.follow is Follow.HEADER else _pods_by_metadata(gateway)]
    if gateway.picker is not None:
        clusters.append(
            _cluster(
                _picker(gateway),
                type="STATIC",
                load_assignment=_hosts(_picker(gateway), (gateway.picker,)),
                typed_extension_protocol_options=_http(explicit_http_config={"http2_protocol_options": {}}),
            )
        )
    return clusters


def _pods_by_metadata(gateway: Gateway) -> Document:
    round_robin = _typed(
        "envoy.load_balancing_policies.round_robin",
        "extensions.load_balancing_policies.round_robin.v3.RoundRobin",
    )
    override = _typed(
        "envoy.load_balancing_policies.override_host",
        "extensions.load_balancing_policies.override_host.v3.OverrideHost",
        override_host_sources=[{"metadata": {"key": "envoy.lb", "path": [{"key": DESTINATION}]}}],
        fallback_policy={"policies": [{"typed_extension_config": round_robin}]},
    )
    return _cluster(
        _pods(gateway),
        type="STATIC",
        load_assignment=_hosts(_pods(gateway), gateway.endpoints),
        load_balancing_policy={"policies": [{"typed_extension_config": override}]},
    )


def _pods_by_header(gateway: Gateway) -> Document:
    return _cluster(
        _pods(gateway),
        type="ORIGINAL_DST",
        lb_policy="CLUSTER_PROVIDED",
        original_dst_lb_config={"use_http_header": True, "http_header_name": DESTINATION},
    )


def _cluster(name: str, **more: Any) -> Document:
    limits = dict.fromkeys(
        ("max_connections", "max_pending_requests", "max_requests", "max_retries"), STREAMS_MAX
    )
    return {
        "name": name,
        "connect_timeout": "1s",
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "circuit_breakers": {"thresholds": [limits]},
        **more,
    }


def _hosts(cluster: str, addresses: Sequence[str]) -> Document:
    hosts = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        hosts.append({"endpoint": {"address": _address(host.strip("[]"), int(port))}})
    return {"cluster_name": cluster, "endpoints": [{"lb_endpoints": hosts}]}


def _http(**options: Any) -> Document:
    # The key of a protocol option is its type's full name.
    kind = "extensions.upstreams.http.v3.HttpProtocolOptions"
    return {f"envoy.{kind}": {"@type": f"{_TYPES}.{kind}", **options}}


def _router() -> Document:
    return _typed("envoy.filters.http.router", "extensions.filters.http.router.v3.Router")


def _typed(name: str, kind: str, **fields: Any) -> Document:
    return {"name": name, "typed_config": {"@type": f"{_TYPES}.{kind}", **fields}}


def _address(host: str, port: int) -> Mapping[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def _pods(gateway: Gateway) -> str:
    return f"{gateway.name}-pods"


def _picker(gateway: Gateway) -> str:
    return f"{gateway.name}-picker"
