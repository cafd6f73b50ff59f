"""Checks of `InferenceGateway` documents: contradictions, and the guardrails against what is dangerous.

A contradiction refuses the document. A guardrail refuses it too unless the document waives it by
name, which is then said. Which pods exist is known only where somebody lists them, so the checks
that need them are made by `selectors_match`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from services.wire.config.documents import Documents, Located
from services.wire.config.inference_gateway import GatewayGuardrail, GatewayPool, InferenceGateway
from services.wire.config.problems import Problem, Severity

Gateway = Located[InferenceGateway]


@dataclass(frozen=True, slots=True)
class PodLabels:
    """A pod as selectors see it."""

    namespace: str
    name: str
    labels: Mapping[str, str]


def _guarded(gateway: Gateway, guardrail: GatewayGuardrail, path: str, value: object, rule: str) -> Problem:
    if guardrail in gateway.value.spec.waive:
        return gateway.problem(path, value, f"{rule} ({guardrail} is waived)", Severity.WARNING)
    return gateway.problem(path, value, f"{rule}; if that is meant, add `waive: [{guardrail}]`")


def _namespace(gateway: Gateway, pool: GatewayPool) -> str:
    return pool.namespace or gateway.value.metadata.namespace


def _twice(gateway: Gateway, what: str, names: Iterable[tuple[str, object]]) -> Iterator[Problem]:
    first: dict[object, str] = {}
    for path, name in names:
        where = first.setdefault(name, path)
        if where != path:
            yield gateway.problem(path, name, f"{what} is declared twice; first in {where}")


def unique_gateway_names(documents: Documents) -> Iterator[Problem]:
    """One name in one namespace is one gateway."""
    first: dict[tuple[str, str], Gateway] = {}
    for gateway in documents.inference_gateways:
        meta = gateway.value.metadata
        known = first.setdefault((meta.namespace, meta.name), gateway)
        if known is not gateway:
            yield gateway.problem("metadata.name", meta.name, f"gateway is declared twice; first in {known}")


def unique_names_within(documents: Documents) -> Iterator[Problem]:
    """Within a gateway a name is one pool, objective, rewrite or listener, and a port one listener."""
    for gateway in documents.inference_gateways:
        spec = gateway.value.spec
        for what, field, names in (
            ("pool", "pools", [pool.name for pool in spec.pools]),
            ("objective", "objectives", [objective.name for objective in spec.objectives]),
            ("rewrite", "rewrites", [rewrite.name for rewrite in spec.rewrites]),
            ("listener", "listeners", [listener.name for listener in spec.listeners]),
        ):
            yield from _twice(
                gateway, what, [(f"spec.{field}[{i}].name", name) for i, name in enumerate(names)]
            )
        yield from _twice(
            gateway,
            "port",
            [(f"spec.listeners[{i}].port", each.port) for i, each in enumerate(spec.listeners)],
        )
        for i, pool in enumerate(spec.pools):
            ports = [(f"spec.pools[{i}].targetPorts[{j}]", port) for j, port in enumerate(pool.target_ports)]
            yield from _twice(gateway, "port", ports)


def gateway_references(documents: Documents) -> Iterator[Problem]:
    """What names a pool names one of the gateway's."""
    for gateway in documents.inference_gateways:
        spec = gateway.value.spec
        pools = {pool.name for pool in spec.pools}
        default = spec.body_routing.default_pool
        if default is not None and default not in pools:
            yield gateway.problem("spec.bodyRouting.defaultPool", default, "is no pool of this gateway")
        for i, rewrite in enumerate(spec.rewrites):
            if rewrite.pool not in pools:
                yield gateway.problem(f"spec.rewrites[{i}].pool", rewrite.pool, "is no pool of this gateway")


def gateway_contradictions(documents: Documents) -> Iterator[Problem]:
    """Fields that cannot be meant together."""
    for gateway in documents.inference_gateways:
        spec = gateway.value.spec
        if (spec.auth.mode == "jwt") != (spec.auth.jwt is not None):
            yield gateway.problem(
                "spec.auth.mode", spec.auth.mode, "`jwt` is given exactly when the mode is jwt"
            )
        if len(spec.pools) > 1 and not spec.body_routing.enabled:
            yield gateway.problem("spec.bodyRouting.enabled", False, "several pools need body routing")
        for i, pool in enumerate(spec.pools):
            scheduling = pool.scheduling
            path = f"spec.pools[{i}].scheduling"
            if scheduling.weights is not None and scheduling.config_map_ref is not None:
                yield gateway.problem(
                    f"{path}.configMapRef", scheduling.config_map_ref.name, "excludes weights"
                )
            if scheduling.weights is not None and scheduling.strategy != "SCORERS":
                yield gateway.problem(f"{path}.strategy", scheduling.strategy, "takes no weights")


def gateway_guardrails(documents: Documents) -> Iterator[Problem]:
    """A gateway knows its callers, is reached over TLS from its own network, and each pod and model has one pool."""
    for gateway in documents.inference_gateways:
        yield from _access(gateway)
        yield from _placement(gateway)
        yield from _overlaps(gateway)


def _access(gateway: Gateway) -> Iterator[Problem]:
    spec = gateway.value.spec
    if spec.auth.mode == "none":
        yield _guarded(gateway, "auth-none", "spec.auth.mode", "none", "serves whoever reaches it")
    jwt = spec.auth.jwt
    if jwt is not None and not jwt.audiences and not jwt.required_claims:
        yield _guarded(
            gateway,
            "jwt-without-audience",
            "spec.auth.jwt.audiences",
            jwt.audiences,
            "accepts every token of the issuer, whomever it was made for",
        )
    for i, listener in enumerate(spec.listeners):
        path = f"spec.listeners[{i}]"
        if listener.load_balancer == "external":
            yield _guarded(
                gateway,
                "external-load-balancer",
                f"{path}.loadBalancer",
                listener.load_balancer,
                "is reached from outside the network",
            )
        if listener.tls is None:
            yield _guarded(
                gateway, "listener-without-tls", f"{path}.tls", None, "sends tokens and prompts in plain text"
            )


def _placement(gateway: Gateway) -> Iterator[Problem]:
    spec = gateway.value.spec
    own = gateway.value.metadata.namespace
    for i, pool in enumerate(spec.pools):
        namespace = _namespace(gateway, pool)
        if namespace != own and namespace not in spec.namespace_grants:
            yield _guarded(
                gateway,
                "cross-namespace-selector",
                f"spec.pools[{i}].namespace",
                namespace,
                f"selects pods outside {own}, and namespaceGrants does not name it",
            )


def _overlaps(gateway: Gateway) -> Iterator[Problem]:
    pools = gateway.value.spec.pools
    for j, pool in enumerate(pools):
        for other in pools[:j]:
            narrow, wide = pool.selector.items(), other.selector.items()
            if _namespace(gateway, pool) == _namespace(gateway, other) and (narrow <= wide or wide <= narrow):
                yield _guarded(
                    gateway,
                    "selector-overlap",
                    f"spec.pools[{j}].selector",
                    pool.selector,
                    f"selects the same pods as pool {other.name}",
                )
    first: dict[str, str] = {}
    for i, pool in enumerate(pools):
        for path, name in _model_names(f"spec.pools[{i}]", pool):
            home = first.setdefault(name, pool.name)
            if home != pool.name:
                yield _guarded(
                    gateway, "model-on-two-pools", path, name, f"is served by pool {home} too, which is asked"
                )


def _model_names(path: str, pool: GatewayPool) -> Iterator[tuple[str, str]]:
    for i, model in enumerate(pool.models):
        yield f"{path}.models[{i}].name", model.name
        yield from ((f"{path}.models[{i}].aliases[{j}]", name) for j, name in enumerate(model.aliases))
        yield from ((f"{path}.models[{i}].adapters[{j}]", name) for j, name in enumerate(model.adapters))


def model_names_once(documents: Documents) -> Iterator[Problem]:
    """Within a pool a name means one thing: a model, an alias or an adapter."""
    for gateway in documents.inference_gateways:
        for i, pool in enumerate(gateway.value.spec.pools):
            yield from _twice(gateway, "model, alias or adapter", _model_names(f"spec.pools[{i}]", pool))


def selectors_match(pods: Sequence[PodLabels]) -> Callable[[Documents], Iterable[Problem]]:
    """Return a check of selectors against the pods that exist: each matches some, and no pod is matched twice."""

    def check(documents: Documents) -> Iterator[Problem]:
        for gateway in documents.inference_gateways:
            homes: dict[tuple[str, str], str] = {}
            for i, pool in enumerate(gateway.value.spec.pools):
                path, namespace = f"spec.pools[{i}].selector", _namespace(gateway, pool)
                wanted = pool.selector.items()
                matched = [pod for pod in pods if pod.namespace == namespace and wanted <= pod.labels.items()]
                if not matched:
                    yield _guarded(
                        gateway,
                        "selector-matches-nothing",
                        path,
                        pool.selector,
                        f"matches no pod of namespace {namespace}",
                    )
                for pod in matched:
                    home = homes.setdefault((pod.namespace, pod.name), pool.name)
                    if home != pool.name:
                        rule = f"matches pod {pod.name}, which pool {home} matches too"
                        yield _guarded(gateway, "selector-overlap", path, pool.selector, rule)
                        break

    return check


GATEWAY_CHECKS: tuple[Callable[[Documents], Iterable[Problem]], ...] = (
    unique_gateway_names,
    unique_names_within,
    gateway_references,
    gateway_contradictions,
    model_names_once,
    gateway_guardrails,
)
