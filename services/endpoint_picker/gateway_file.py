"""A picker run by an `InferenceGateway` document: what it says of the settings' pools, put in its place.

The document says what is served and how pods are picked, the settings where pods and doors are; together they are
the settings that `assembly` builds from. Reading and checking documents is `wire/config`. Who may ask, listeners and
selectors are for the gateway in front and for discovery; nothing of them is read here.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from services.core.models.rewrites import Rewrite
from services.core.scheduling.baselines import strategy
from services.core.scheduling.profile import SchedulingProfile, Weighted, endpoint_profile
from services.endpoint_picker.pool_settings import ModelSettings, PoolSettings
from services.endpoint_picker.settings import PickerSettings
from services.wire.config.documents import Located, Source
from services.wire.config.inference_gateway import (
    GatewayPool,
    InferenceGateway,
    InferenceGatewaySpec,
    PoolScheduling,
)
from services.wire.config.load import load
from services.wire.config.problems import Problem
from services.wire.config.rules import findings
from services.wire.config.scheduling_plugins import PLUGINS
from services.wire.config.settings_source import SettingsError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """Settings in which every pool has its models, and what of a document settings have no words for.

    `profiles` and `total_ms` (the longest exchange with a pod, in ms) are by pool, for the pools that have their own.
    """

    settings: PickerSettings
    rewrites: tuple[Rewrite, ...] = ()
    profiles: Mapping[str, SchedulingProfile] = field(default_factory=dict)
    total_ms: Mapping[str, int] = field(default_factory=dict)


def served_by(settings: PickerSettings) -> Served:
    """Return what `settings` and the document they name say together; settings that name none say it alone.

    Raises `SettingsError` with file, path, value and rule for a file that cannot be read, a document that is refused
    and one that contradicts the settings. What a document waives is logged.
    """
    if settings.gateway is None:
        return Served(settings)
    gateway = _read(settings.gateway)
    problems = tuple(_contradictions(gateway, settings))
    if problems:
        raise SettingsError(tuple(str(problem) for problem in problems))
    spec = gateway.value.spec
    return Served(
        _together(gateway, settings),
        tuple(rewrite.to_core(place) for place, rewrite in enumerate(spec.rewrites)),
        {pool.name: profile for pool in spec.pools if (profile := _profile(pool.scheduling)) is not None},
        {pool.name: pool.request_timeout_ms for pool in spec.pools if pool.request_timeout_ms is not None},
    )


def _read(file: Path) -> Located[InferenceGateway]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise SettingsError((f"gateway: {file}: {error.strerror}",)) from None
    documents = load([Source(str(file), data)])
    if documents.errors:
        raise SettingsError(tuple(str(problem) for problem in documents.errors))
    found = documents.inference_gateways
    if len(found) != 1:
        raise SettingsError((f"{file}: kind: {len(found)} InferenceGateway: must hold exactly one",))
    for warning in documents.warnings:
        _LOG.warning("%s", warning)
    return found[0]


def _contradictions(gateway: Located[InferenceGateway], settings: PickerSettings) -> Iterator[Problem]:
    """Yield what cannot hold beside the settings, and what a picker cannot do."""
    declared = {pool.name: pool for pool in settings.pools}
    pools = gateway.value.spec.pools
    for name in sorted(declared.keys() - {pool.name for pool in pools}):
        yield gateway.problem("spec.pools", name, "is a pool of the settings and must be one of the document")
    for place, pool in enumerate(pools):
        path = f"spec.pools[{place}]"
        if pool.scheduling.config_map_ref is not None:
            yield gateway.problem(
                f"{path}.scheduling.configMapRef",
                pool.scheduling.config_map_ref.name,
                "a picker reads no ConfigMap; give the file it holds as `scheduling.config` of the settings",
            )
        found = declared.get(pool.name)
        if found is None:
            yield gateway.problem(
                f"{path}.name", pool.name, "is no pool of the settings, which say where its endpoints are"
            )
        elif pool.engine is not None and _says_engine(found) and found.engine != pool.engine:
            yield gateway.problem(
                f"{path}.engine", pool.engine, f"contradicts the settings, which say {found.engine}"
            )


def _says_engine(pool: PoolSettings) -> bool:
    return "engine" in pool.model_fields_set


def _together(gateway: Located[InferenceGateway], settings: PickerSettings) -> PickerSettings:
    """Return the settings with what the document says in its place, checked as if they had said it themselves."""
    spec = gateway.value.spec
    most = spec.body_routing.max_body_bytes
    said = {pool.name: pool for pool in spec.pools}
    try:
        changes: dict[str, Any] = {
            "gateway": None,
            "pools": tuple(_pool(pool, said[pool.name]) for pool in settings.pools),
            "default_pool": _default_pool(spec),
            "objectives": {objective.name: objective.priority for objective in spec.objectives},
            "http": settings.http.model_copy(
                update={"body_max_bytes": min(most, settings.http.body_max_bytes)}
            ),
            "ext_proc": settings.ext_proc.model_copy(
                update={"body_max_bytes": min(most, settings.ext_proc.body_max_bytes)}
            ),
        }
        return PickerSettings.model_validate(dict(settings) | changes)
    except ValidationError as error:
        raise SettingsError(
            tuple(str(gateway.problem("spec.pools", spec.pools, found.rule)) for found in findings(error))
        ) from None


def _pool(pool: PoolSettings, said: GatewayPool) -> PoolSettings:
    models = tuple(
        ModelSettings(name=model.name, aliases=model.aliases, adapters=model.adapters)
        for model in said.models
    )
    engine = pool.engine if said.engine is None else said.engine
    return pool.model_copy(update={"models": models, "engine": engine})


def _default_pool(spec: InferenceGatewaySpec) -> str | None:
    """Return who takes a model that nobody serves: without body routing every request is the first pool's."""
    return spec.body_routing.default_pool if spec.body_routing.enabled else spec.pools[0].name


def _profile(wanted: PoolScheduling) -> SchedulingProfile | None:
    """Return a pool's own profile, None where it leaves that to the settings."""
    if wanted.strategy != "SCORERS":
        return strategy(wanted.strategy)
    if wanted.weights is None:
        return None
    return endpoint_profile(
        scorers=tuple(
            Weighted(_scorer(name), float(weight)) for name, weight in wanted.weights.by_scorer().items()
        )
    )


def _scorer(name: str) -> Any:
    """Return the scorer of a type, with the parameters that the type has by default."""
    return PLUGINS[name].parameters().build()
