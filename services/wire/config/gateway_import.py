"""`InferenceGatewayConfig` -> `InferenceGateway`, and back.

What the other system has and this one does not is said as a warning and kept in an annotation, so
that a document rendered back is the one that was imported. What only this one has is refused on
the way back. Guardrails are not applied here: an imported document is validated like any other.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import Field, ValidationError

from services.wire.config.field_types import Kind
from services.wire.config.inference_gateway import (
    BodyRouting,
    GatewayAuth,
    GatewayGuardrail,
    GatewayListener,
    GatewayMetadata,
    GatewayModel,
    GatewayPool,
    InferenceGateway,
    InferenceGatewaySpec,
    Jwt,
    ListenerTls,
    PickerService,
    PoolScheduling,
)
from services.wire.config.inference_gateway_config import (
    API_VERSION,
    KIND,
    BodyBasedRouter,
    InferenceGatewayConfig,
    InferenceGatewayConfigSpec,
    JwtProvider,
    Scheduler,
    duration_ms,
    duration_text,
    read_gateway_config,
)
from services.wire.config.kinds import API_VERSION as OURS
from services.wire.config.problems import value_text
from services.wire.config.rules import Finding, findings
from services.wire.config.yaml_writer import plain_values

KEPT: Final = "gir.dev/inference-gateway-config"
"""The annotation that holds, as JSON, the fields that have no equivalent."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""A copy of the document that kubectl keeps; it would be out of date at once."""
LISTENER: Final = "https"


class _Kept(Kind):
    """What the annotation holds; its fields are checked as the other system's own once they are back in place."""

    bbr: dict[str, Any] = Field(default_factory=dict)
    metrics: bool | None = None
    schedulers: dict[str, dict[str, Any]] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    """The document and what was said about fields without an equivalent, by paths of the original."""

    gateway: InferenceGateway
    warnings: tuple[Finding, ...]


def from_gateway_config(config: InferenceGatewayConfig, waive: Sequence[GatewayGuardrail] = ()) -> Imported:
    """Return our form of a config; `waive` names the guardrails that whoever imports it waives."""
    spec = config.spec
    kept = _kept(spec)
    annotations = {name: text for name, text in config.metadata.annotations.items() if name != LAST_APPLIED}
    if kept:
        annotations[KEPT] = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    provider = None if spec.auth is None else spec.auth.jwt.provider
    gateway = InferenceGateway(
        api_version=OURS,
        kind="InferenceGateway",
        metadata=GatewayMetadata(
            name=config.metadata.name,
            namespace=config.metadata.namespace,
            labels=config.metadata.labels,
            annotations=annotations,
        ),
        spec=InferenceGatewaySpec(
            auth=GatewayAuth(mode="none")
            if provider is None
            else GatewayAuth(mode="jwt", jwt=_jwt(provider)),
            listeners=(GatewayListener(name=LISTENER, tls=ListenerTls(certificate=spec.tls.acm_arn or "")),),
            body_routing=BodyRouting(
                enabled=spec.bbr.enabled,
                max_body_bytes=spec.bbr.max_request_body_bytes,
                **({} if spec.bbr.default_backend is None else {"default_pool": spec.bbr.default_backend}),
            ),
            pools=tuple(_pool(scheduler) for scheduler in spec.schedulers),
            waive=tuple(waive),
        ),
    )
    return Imported(gateway, tuple(_warnings(config)))


def _given(**fields: Any) -> dict[str, Any]:
    """Leave out what is None: an absent field is not one that was given as null."""
    return {name: value for name, value in fields.items() if value is not None}


def _jwt(provider: JwtProvider) -> Jwt:
    return Jwt(
        name=provider.name,
        issuer=provider.issuer,
        jwks_uri=provider.remote_jwks.uri,
        audiences=provider.audiences,
        required_claims=provider.required_claims,
    )


def _pool(scheduler: Scheduler) -> GatewayPool:
    timeout = scheduler.route_timeout
    return GatewayPool(
        name=scheduler.name,
        selector=scheduler.model_selector.match_labels,
        target_ports=(scheduler.target_port,),
        app_protocol=scheduler.app_protocol,
        models=(GatewayModel(name=scheduler.model_name, adapters=scheduler.lora_adapters),),
        scheduling=PoolScheduling(
            **_given(weights=scheduler.weights, config_map_ref=scheduler.config_map_ref)
        ),
        **_given(
            engine=scheduler.engine_type, request_timeout_ms=None if timeout is None else duration_ms(timeout)
        ),
    )


def _kept(spec: InferenceGatewayConfigSpec) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    if spec.bbr.replicas != BodyBasedRouter().replicas:
        kept["bbr"] = {"replicas": spec.bbr.replicas}
    if spec.observability is not None:
        kept["metrics"] = spec.observability.metrics.enabled
    defaults = {"replicas": 2, "scheduler": "llm-d"}
    schedulers = {
        scheduler.name: changed
        for scheduler in spec.schedulers
        if (changed := {n: getattr(scheduler, n) for n, d in defaults.items() if getattr(scheduler, n) != d})
    }
    if schedulers:
        kept["schedulers"] = schedulers
    return kept


def _warnings(config: InferenceGatewayConfig) -> Iterator[Finding]:
    def said(path: str, value: object, meaning: str) -> Finding:
        return Finding(f"spec.{path}", value_text(value), f"has no equivalent: {meaning}")

    spec = config.spec
    if "replicas" in spec.bbr.model_fields_set:
        yield said("bbr.replicas", spec.bbr.replicas, "the endpoint picker itself reads the body's model")
    if spec.tls.acm_arn is None:
        yield said("tls", {}, "no certificate is issued; give the listener one where TLS ends")
    else:
        yield said("tls.acmArn", spec.tls.acm_arn, "a certificate of ACM serves only AWS's load balancer")
    if spec.observability is not None and not spec.observability.metrics.enabled:
        yield said("observability.metrics.enabled", False, "metrics are always served")
    for i, scheduler in enumerate(spec.schedulers):
        path = f"schedulers[{i}]"
        if "scheduler" in scheduler.model_fields_set:
            yield said(f"{path}.scheduler", scheduler.scheduler, "there is one endpoint picker")
        if "replicas" in scheduler.model_fields_set:
            yield said(
                f"{path}.replicas", scheduler.replicas, "one picker serves all pools and is scaled as one"
            )
        if scheduler.config_map_ref is not None:
            name = scheduler.config_map_ref.name
            yield said(f"{path}.configMapRef", name, "the ConfigMap is not read; give its file to the picker")


def to_gateway_config(gateway: InferenceGateway) -> InferenceGatewayConfig | tuple[Finding, ...]:
    """Return the other system's form of a gateway, or what of it has no place there."""
    annotations = dict(gateway.metadata.annotations)
    try:
        kept = _Kept.model_validate_json(annotations.pop(KEPT, "{}"))
    except ValidationError as error:
        return tuple(
            Finding(f"metadata.annotations[{KEPT}]", each.value, each.rule) for each in findings(error)
        )
    refused = tuple(_unrepresentable(gateway))
    if refused:
        return refused
    spec = gateway.spec
    certificate = _certificate(spec.listeners)
    bbr: dict[str, Any] = {
        **kept.bbr,
        "enabled": spec.body_routing.enabled,
        "maxRequestBodyBytes": spec.body_routing.max_body_bytes,
        **_given(defaultBackend=spec.body_routing.default_pool),
    }
    return read_gateway_config(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {**plain_values(gateway.metadata), "annotations": annotations},
            "spec": {
                "bbr": bbr,
                "tls": {"acmArn": certificate} if certificate else {},
                **(
                    {} if spec.auth.jwt is None else {"auth": {"jwt": {"provider": _provider(spec.auth.jwt)}}}
                ),
                **({} if kept.metrics is None else {"observability": {"metrics": {"enabled": kept.metrics}}}),
                "schedulers": [_scheduler(pool, kept.schedulers.get(pool.name, {})) for pool in spec.pools],
            },
        }
    )


def _certificate(listeners: Sequence[GatewayListener]) -> str:
    tls = listeners[0].tls
    return "" if tls is None else tls.certificate


def _provider(jwt: Jwt) -> dict[str, Any]:
    fields = plain_values(jwt)
    uri = fields.pop("jwksUri")
    return {**fields, "remoteJWKS": {"uri": uri}}


def _scheduler(pool: GatewayPool, kept: dict[str, Any]) -> dict[str, Any]:
    scheduling, timeout = pool.scheduling, pool.request_timeout_ms
    return {
        **kept,
        "name": pool.name,
        "modelSelector": {"matchLabels": pool.selector},
        "modelName": pool.models[0].name,
        "targetPort": pool.target_ports[0],
        "appProtocol": pool.app_protocol,
        "loraAdapters": list(pool.models[0].adapters),
        **_given(
            engineType=pool.engine,
            weights=None if scheduling.weights is None else plain_values(scheduling.weights),
            configMapRef=None
            if scheduling.config_map_ref is None
            else plain_values(scheduling.config_map_ref),
            routeTimeout=None if timeout is None else duration_text(timeout),
        ),
    }


def _unrepresentable(gateway: InferenceGateway) -> Iterator[Finding]:
    """Yield what `InferenceGatewayConfig` cannot say, by paths of our document."""
    spec = gateway.spec

    def lost(path: str, value: object, rule: str) -> Finding:
        return Finding(f"spec.{path}", value_text(value), f"{KIND} {rule}")

    listener = GatewayListener(name=LISTENER)
    alike = [each.model_copy(update={"tls": None}) for each in spec.listeners] == [listener]
    if not alike or spec.listeners[0].tls is None:
        yield lost("listeners", spec.listeners, f"has one internal listener {LISTENER} on 443 with TLS")
    for field in ("objectives", "rewrites", "namespace_grants"):
        if getattr(spec, field):
            name = {"namespace_grants": "namespaceGrants"}.get(field, field)
            yield lost(name, getattr(spec, field), "has no such field")
    if spec.picker != PickerService():
        yield lost("picker", spec.picker.name, "names its own picker")
    for i, pool in enumerate(spec.pools):
        path = f"pools[{i}]"
        if pool.namespace not in {None, gateway.metadata.namespace}:
            yield lost(f"{path}.namespace", pool.namespace, "selects pods of its own namespace")
        if len(pool.target_ports) > 1:
            yield lost(f"{path}.targetPorts", pool.target_ports, "takes one port")
        if len(pool.models) > 1 or pool.models[0].aliases:
            yield lost(f"{path}.models", pool.models, "takes one model without aliases")
        if pool.scheduling.strategy != "SCORERS":
            yield lost(f"{path}.scheduling.strategy", pool.scheduling.strategy, "has scorers only")
