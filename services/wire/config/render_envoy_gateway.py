"""`InferenceGateway` -> the objects by which Envoy Gateway asks our picker and reaches its pools.

One `InferencePool` and its `HTTPRoute`s per pool, one `EnvoyExtensionPolicy` (ext_proc, v1alpha1) on the
Gateway, and a `SecurityPolicy` where callers are authenticated. The Gateway object and the picker's
Service exist already and are only referred to. Pure: values in, plain values out, the same for the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.wire.config.inference_api import MAX_OBJECT_NAME, POOL_API_VERSION
from services.wire.config.inference_gateway import GatewayPool, InferenceGateway, Jwt
from services.wire.config.inference_gateway_config import duration_text
from services.wire.config.problems import value_text
from services.wire.config.rules import Finding

GATEWAY_GROUP: Final = "gateway.networking.k8s.io"
ENVOY_GATEWAY: Final = "gateway.envoyproxy.io/v1alpha1"
BASE_MODEL_HEADER: Final = "X-Gateway-Base-Model-Name"
MATCHES_PER_RULE: Final = 64
"""The limit of an HTTPRoute rule; a pool of more models gets several routes."""
MESSAGE_TIMEOUT: Final = "600s"
"""A request may wait in the picker's queue; Envoy's own default of 200 ms would end it."""
BODY_MODE: Final = "FullDuplexStreamed"
"""The endpoint-picker protocol's mode (proposal 004); it sends trailers too and cannot fail open."""
SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
DECISION_NAMESPACE: Final = "envoy.lb"
LABELS: Final = {"app.kubernetes.io/managed-by": "gir"}


@dataclass(frozen=True, slots=True)
class Rendered:
    """Documents in the order in which they are applied, and what of the gateway they do not carry."""

    documents: tuple[dict[str, Any], ...]
    warnings: tuple[Finding, ...]


def render_envoy_gateway(gateway: InferenceGateway) -> Rendered | tuple[Finding, ...]:
    """Return the objects of a sound gateway, or what cannot be rendered at all."""
    refused = tuple(_too_long(gateway))
    if refused:
        return refused
    documents: list[dict[str, Any]] = []
    for pool in gateway.spec.pools:
        documents.append(_pool(gateway, pool))
        documents += _routes(gateway, pool)
    documents.append(_extension_policy(gateway))
    if gateway.spec.auth.jwt is not None:
        documents.append(_security_policy(gateway, gateway.spec.auth.jwt))
    return Rendered(tuple(documents), tuple(_warnings(gateway)))


def _object(api_version: str, kind: str, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": dict(LABELS)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _namespace(gateway: InferenceGateway, pool: GatewayPool) -> str:
    return pool.namespace or gateway.metadata.namespace


def _pool(gateway: InferenceGateway, pool: GatewayPool) -> dict[str, Any]:
    picker = gateway.spec.picker
    spec: dict[str, Any] = {
        "selector": {"matchLabels": dict(sorted(pool.selector.items()))},
        "targetPorts": [{"number": port} for port in pool.target_ports],
    }
    if pool.app_protocol != "http":
        spec["appProtocol"] = pool.app_protocol
    spec["endpointPickerRef"] = {
        "group": "",
        "kind": "Service",
        "name": picker.name,
        "port": {"number": picker.port},
        "failureMode": picker.failure_mode,
    }
    return _object(POOL_API_VERSION, "InferencePool", pool.name, _namespace(gateway, pool), spec)


def _routes(gateway: InferenceGateway, pool: GatewayPool) -> Iterator[dict[str, Any]]:
    parent = {
        "group": GATEWAY_GROUP,
        "kind": "Gateway",
        "name": gateway.metadata.name,
        "namespace": gateway.metadata.namespace,
    }
    for place, matches in enumerate(_matches(gateway, pool)):
        rule: dict[str, Any] = {"matches": matches} if matches else {}
        backend = {"group": POOL_API_VERSION.partition("/")[0], "kind": "InferencePool", "name": pool.name}
        rule["backendRefs"] = [backend]
        if pool.request_timeout_ms is not None:
            rule["timeouts"] = {"request": duration_text(pool.request_timeout_ms)}
        yield _object(
            f"{GATEWAY_GROUP}/v1",
            "HTTPRoute",
            _route_name(gateway, pool, place),
            _namespace(gateway, pool),
            {"parentRefs": [dict(parent)], "rules": [rule]},
        )


def _route_name(gateway: InferenceGateway, pool: GatewayPool, place: int) -> str:
    name = f"{gateway.metadata.name}-{pool.name}"
    return name if place == 0 else f"{name}-{place + 1}"


def _matches(gateway: InferenceGateway, pool: GatewayPool) -> list[list[dict[str, Any]]]:
    """Return the matches of each route; an empty list matches every request.

    The picker names the base model of every request it routes, adapters and aliases included, so a pool needs
    one match for each base. The default pool takes the rest: a match of a header goes before none.
    """
    routing = gateway.spec.body_routing
    if not routing.enabled:
        return [[]]
    names = _bases(gateway, pool)
    header = [{"headers": [{"type": "Exact", "name": BASE_MODEL_HEADER, "value": name}]} for name in names]
    routes = [header[at : at + MATCHES_PER_RULE] for at in range(0, len(header), MATCHES_PER_RULE)]
    return [*routes, []] if routing.default_pool == pool.name else routes


def _bases(gateway: InferenceGateway, pool: GatewayPool) -> Sequence[str]:
    """Return the names that the picker can give as the base: of a rewrite's target nobody declared, its own."""
    bases = {model.name: None for model in pool.models}
    if len(bases) > 1:
        known = {name for model in pool.models for name in (model.name, *model.aliases, *model.adapters)}
        targets = [
            target.model
            for rewrite in gateway.spec.rewrites
            if rewrite.pool == pool.name
            for rule in rewrite.rules
            for target in rule.targets
        ]
        bases |= {name: None for name in targets if name not in known}
    return tuple(bases)


def _target(gateway: InferenceGateway) -> list[dict[str, Any]]:
    return [{"group": GATEWAY_GROUP, "kind": "Gateway", "name": gateway.metadata.name}]


def _extension_policy(gateway: InferenceGateway) -> dict[str, Any]:
    picker = gateway.spec.picker
    ext_proc = {
        "backendRefs": [{"group": "", "kind": "Service", "name": picker.name, "port": picker.port}],
        "messageTimeout": MESSAGE_TIMEOUT,
        "failOpen": False,
        "processingMode": {"request": {"body": BODY_MODE}, "response": {"body": BODY_MODE}},
        "metadata": {
            "accessibleNamespaces": [SUBSET_NAMESPACE, DECISION_NAMESPACE],
            "writableNamespaces": [DECISION_NAMESPACE],
        },
    }
    return _object(
        ENVOY_GATEWAY,
        "EnvoyExtensionPolicy",
        f"{gateway.metadata.name}-picker",
        gateway.metadata.namespace,
        {"targetRefs": _target(gateway), "extProc": [ext_proc]},
    )


def _security_policy(gateway: InferenceGateway, jwt: Jwt) -> dict[str, Any]:
    provider: dict[str, Any] = {"name": jwt.name, "issuer": jwt.issuer, "remoteJWKS": {"uri": jwt.jwks_uri}}
    if jwt.audiences:
        provider["audiences"] = list(jwt.audiences)
    spec: dict[str, Any] = {"targetRefs": _target(gateway), "jwt": {"providers": [provider]}}
    if jwt.required_claims:
        claims = [
            {"name": claim.name, "valueType": claim.value_type, "values": list(claim.values)}
            for claim in jwt.required_claims
        ]
        allow = {"action": "Allow", "principal": {"jwt": {"provider": jwt.name, "claims": claims}}}
        spec["authorization"] = {"defaultAction": "Deny", "rules": [allow]}
    return _object(
        ENVOY_GATEWAY, "SecurityPolicy", f"{gateway.metadata.name}-jwt", gateway.metadata.namespace, spec
    )


def _too_long(gateway: InferenceGateway) -> Iterator[Finding]:
    for i, pool in enumerate(gateway.spec.pools):
        name = _route_name(gateway, pool, len(_matches(gateway, pool)) - 1)
        if len(name) > MAX_OBJECT_NAME:
            rule = f"makes an HTTPRoute name of more than {MAX_OBJECT_NAME} characters"
            yield Finding(f"spec.pools[{i}].name", value_text(pool.name), rule)
    if len(gateway.metadata.name) + len("-picker") > MAX_OBJECT_NAME:
        rule = f"makes a policy name of more than {MAX_OBJECT_NAME} characters"
        yield Finding("metadata.name", value_text(gateway.metadata.name), rule)


def _warnings(gateway: InferenceGateway) -> Iterator[Finding]:
    spec, own = gateway.spec, gateway.metadata.namespace
    if spec.picker.failure_mode == "FailOpen":
        yield Finding(
            "spec.picker.failureMode",
            "'FailOpen'",
            f"is rendered for the pools only: ext_proc in mode {BODY_MODE} fails closed",
        )
    for i, pool in enumerate(spec.pools):
        namespace = _namespace(gateway, pool)
        if namespace != own:
            yield Finding(
                f"spec.pools[{i}].namespace",
                value_text(namespace),
                f"needs a Service {spec.picker.name} in {namespace}, and a Gateway that allows routes from there",
            )
