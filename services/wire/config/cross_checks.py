"""Checks across documents: what no document can know alone, and the guardrails.

Each check is a function from documents to problems and is named in `CHECKS`. An error means that
the documents contradict each other; a guardrail means that they say something dangerous, which
its document can waive by name.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from services.wire.config.documents import Documents, Located
from services.wire.config.gateway_checks import GATEWAY_CHECKS
from services.wire.config.kinds import EVERY_MODEL, Fleet, Guardrail, Tenant
from services.wire.config.problems import Problem, Severity

Check = Callable[[Documents], Iterable[Problem]]


def _fleet_refused(documents: Documents) -> bool:
    """Whether the Fleet is missing because it is not sound: what refers to it cannot be judged."""
    return not documents.fleets and Fleet.__name__ in documents.refused


class _Names:
    """Names seen so far and where; a second use is a problem that says where the first is."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._first: dict[str, str] = {}

    def add(self, located: Located[Any], path: str, name: str) -> Iterator[Problem]:
        first = self._first.get(name)
        if first is not None:
            yield located.problem(path, name, f"{self._what} is declared twice; first in {first}")
        else:
            self._first[name] = f"{located}: {path}"


def one_of_each(documents: Documents) -> Iterator[Problem]:
    """A fleet, a routing policy and a site are each declared once; a second would hide the first."""
    for several in (documents.fleets, documents.routing_policies, documents.sites):
        for located in several[1:]:
            kind = located.value.kind
            yield located.problem("kind", kind, f"a second {kind}; the first is in {several[0]}")


def unique_names(documents: Documents) -> Iterator[Problem]:
    """One id names one cluster, one name or alias one model, one key id one key, one name one tenant."""
    clusters, models = _Names("cluster"), _Names("model or alias")
    for fleet in documents.fleets:
        for i, cluster in enumerate(fleet.value.spec.clusters):
            yield from clusters.add(fleet, f"spec.clusters[{i}].id", cluster.id)
        for i, model in enumerate(fleet.value.spec.models):
            yield from models.add(fleet, f"spec.models[{i}].name", model.name)
            for j, alias in enumerate(model.aliases):
                yield from models.add(fleet, f"spec.models[{i}].aliases[{j}]", alias)
    tenants, keys = _Names("tenant"), _Names("token key")
    for tenant in documents.tenants:
        yield from tenants.add(tenant, "metadata.name", tenant.value.metadata.name)
    for document in documents.token_keys:
        for i, key in enumerate(document.value.spec.keys):
            yield from keys.add(document, f"spec.keys[{i}].kid", key.kid)


def one_jurisdiction_per_region(documents: Documents) -> Iterator[Problem]:
    """A region lies in one jurisdiction; two answers would make residency depend on who is asked."""
    first: dict[str, tuple[str, str]] = {}
    places = [
        (fleet, f"spec.clusters[{i}].jurisdiction", cluster.region, cluster.jurisdiction)
        for fleet in documents.fleets
        for i, cluster in enumerate(fleet.value.spec.clusters)
    ] + [
        (site, f"spec.regions[{i}].jurisdiction", region.region, region.jurisdiction)
        for site in documents.sites
        for i, region in enumerate(site.value.spec.regions)
    ]
    for located, path, region, jurisdiction in places:
        known, where = first.setdefault(region, (jurisdiction, f"{located}: {path}"))
        if known != jurisdiction:
            yield located.problem(path, jurisdiction, f"region {region} lies in {known} in {where}")


def grants_name_models(documents: Documents) -> Iterator[Problem]:
    """A grant names a model of the fleet by its own name, not by an alias."""
    if not documents.fleets:
        if documents.tenants and not _fleet_refused(documents):
            yield documents.tenants[0].problem(
                "spec.models", "(fleet)", "no Fleet was given, so grants are not checked", Severity.WARNING
            )
        return
    declared = [model for fleet in documents.fleets for model in fleet.value.spec.models]
    names = {model.name for model in declared}
    aliases = {alias: model.name for model in declared for alias in model.aliases}
    for tenant in documents.tenants:
        for i, name in enumerate(tenant.value.spec.models):
            if name in names or name == EVERY_MODEL:
                continue
            rule = f"is an alias; grant {aliases[name]!r}" if name in aliases else "is no model of the Fleet"
            yield tenant.problem(f"spec.models[{i}]", name, rule)


def residency_names_places(documents: Documents) -> Iterator[Problem]:
    """A place that no cluster is in is probably misspelt; a misspelt deny entry denies nothing."""
    clusters = [cluster for fleet in documents.fleets for cluster in fleet.value.spec.clusters]
    if not clusters:
        return
    jurisdictions = {cluster.jurisdiction for cluster in clusters}
    regions = {cluster.region for cluster in clusters}
    for tenant in documents.tenants:
        rule = tenant.value.spec.residency
        for field, values, known in (
            ("allowJurisdictions", rule.allow_jurisdictions or (), jurisdictions),
            ("allowRegions", rule.allow_regions or (), regions),
            ("denyJurisdictions", rule.deny_jurisdictions, jurisdictions),
            ("denyRegions", rule.deny_regions, regions),
        ):
            for i, value in enumerate(values):
                if value not in known:
                    yield tenant.problem(
                        f"spec.residency.{field}[{i}]", value, "no cluster is there", Severity.WARNING
                    )


def guardrails(documents: Documents) -> Iterator[Problem]:
    """A tenant is granted models, and by name."""
    for tenant in documents.tenants:
        models = tenant.value.spec.models
        if not models:
            yield _guarded(tenant, "tenant-without-model-grant", "spec.models", models, "grants no model")
        if EVERY_MODEL in models:
            yield _guarded(
                tenant, "wildcard-grant", "spec.models", EVERY_MODEL, "grants every model, future ones too"
            )


def _guarded(tenant: Located[Tenant], guardrail: Guardrail, path: str, value: object, rule: str) -> Problem:
    if guardrail in tenant.value.spec.waive:
        return tenant.problem(path, value, f"{rule} ({guardrail} is waived)", Severity.WARNING)
    return tenant.problem(path, value, f"{rule}; if that is meant, add `waive: [{guardrail}]`")


def site_fits(documents: Documents) -> Iterator[Problem]:
    """A site starts each region and cluster once, on ports of their own, and only clusters of the fleet."""
    clusters = {cluster.id for fleet in documents.fleets for cluster in fleet.value.spec.clusters}
    for site in documents.sites:
        spec = site.value.spec
        regions, pickers, ports = _Names("region"), _Names("picker"), _Names("port")
        listeners: list[tuple[str, str, int]] = [("spec.metricsPort", "127.0.0.1", spec.metrics_port)]
        for i, region in enumerate(spec.regions):
            yield from regions.add(site, f"spec.regions[{i}].region", region.region)
            listeners += [
                (f"spec.regions[{i}].httpPort", region.host, region.http_port),
                (f"spec.regions[{i}].grpcPort", region.host, region.grpc_port),
            ]
        for i, picker in enumerate(spec.pickers):
            path = f"spec.pickers[{i}]"
            yield from pickers.add(site, f"{path}.cluster", picker.cluster)
            if picker.cluster not in clusters and not _fleet_refused(documents):
                yield site.problem(f"{path}.cluster", picker.cluster, "is no cluster of the Fleet")
            listeners += [
                (f"{path}.httpPort", picker.host, picker.http_port),
                (f"{path}.grpcPort", picker.host, picker.grpc_port),
            ]
            pods = _Names("pod")
            for j, pool in enumerate(picker.pools):
                if not pool.pods and not pool.simulated_pods:
                    yield site.problem(f"{path}.pools[{j}].pods", pool.pods, "the pool has no pod at all")
                for k, pod in enumerate(pool.pods):
                    yield from pods.add(site, f"{path}.pools[{j}].pods[{k}].id", pod.id)
        for path, host, port in listeners:
            if port:
                yield from ports.add(site, path, f"{host}:{port}")


def models_are_served(documents: Documents) -> Iterator[Problem]:
    """A model that nobody serves is legal and almost always a mistake."""
    served = {pool.model for site in documents.sites for p in site.value.spec.pickers for pool in p.pools}
    for fleet in documents.fleets:
        spec = fleet.value.spec
        started_here = {picker.cluster for site in documents.sites for picker in site.value.spec.pickers}
        if any(cluster.id not in started_here for cluster in spec.clusters):
            continue  # Clusters started elsewhere may serve what this site does not.
        for i, model in enumerate(spec.models):
            if model.name not in served:
                yield fleet.problem(
                    f"spec.models[{i}].name", model.name, "is served by no cluster", Severity.WARNING
                )


def served_models_are_declared(documents: Documents) -> Iterator[Problem]:
    """A pool of an undeclared model would be reported and never routed to."""
    if _fleet_refused(documents):
        return
    declared = {m.name for fleet in documents.fleets for m in fleet.value.spec.models}
    for site in documents.sites:
        for i, picker in enumerate(site.value.spec.pickers):
            for j, pool in enumerate(picker.pools):
                if pool.model not in declared:
                    yield site.problem(
                        f"spec.pickers[{i}].pools[{j}].model", pool.model, "is no model of the Fleet"
                    )


CHECKS: tuple[Check, ...] = (
    one_of_each,
    unique_names,
    one_jurisdiction_per_region,
    grants_name_models,
    residency_names_places,
    guardrails,
    site_fits,
    models_are_served,
    served_models_are_declared,
    *GATEWAY_CHECKS,
)
