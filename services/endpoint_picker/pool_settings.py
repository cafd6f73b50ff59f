"""Settings of one pool: its models, its engine, and where its endpoints come from.

Part of `settings`, which says what a picker as a whole needs; apart because pools are what grows.
"""

from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from services.adapters.model_server.engines import AUTO
from services.core.locality import check_name
from services.core.models.names import is_model_name
from services.endpoint_picker.addresses import join, split
from services.endpoint_picker.discovery_settings import Discovery, StaticDiscovery
from services.wire.config.settings_source import Settings

Name = Annotated[str, AfterValidator(lambda value: check_name(value, "name"))]
PodId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,128}$")]


def _model_name(text: str) -> str:
    if not is_model_name(text):
        raise ValueError("must be 1 to 256 printable characters without spaces")
    return text


ModelText = Annotated[str, AfterValidator(_model_name)]


class EndpointSettings(Settings):
    """One pod: `address` is `host:port`, or a host with `port` beside it; an IPv6 host may come without brackets.

    `capacity_requests`, `capacity_tokens_per_s`: what the pod can carry; engines do not publish it, and a pool
    with an undeclared pod reports its capacity as unknown.
    """

    id: PodId
    address: str
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    draining: bool = False
    capacity_requests: Annotated[int, Field(ge=1)] | None = None
    capacity_tokens_per_s: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _normalise(self) -> Self:
        address = split_or_join(self.address, self.port)
        object.__setattr__(self, "address", address)
        return self


def split_or_join(address: str, port: int | None) -> str:
    """Return the one spelling of an address."""
    if port is not None:
        return join(address, port)
    split(address)
    return address


class ModelSettings(Settings):
    """A base model, other names that mean it, and the LoRA adapters that are asked for by name.

    Adapters that pods report are served too; those declared here are known before any pod reports them.
    """

    name: ModelText
    aliases: tuple[ModelText, ...] = ()
    adapters: tuple[ModelText, ...] = ()


def _named(model: object) -> object:
    """A bare string is a model without other names."""
    return {"name": model} if isinstance(model, str) else model


class PoolSettings(Settings):
    """Pods that serve the same models."""

    name: Name
    models: tuple[Annotated[ModelSettings, BeforeValidator(_named)], ...] = ()
    """At least one, unless the picker's `gateway` says what is served."""
    tier: Annotated[str, Field(max_length=64)] = ""
    engine: str = AUTO
    """What its pods run; `auto` tells it by their metrics, and a pod's own label goes before either."""
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Where its pods have their metrics, if not where their engine does (Triton: 8002, others: their address)."""
    discovery: Discovery = StaticDiscovery()
    endpoints: tuple[EndpointSettings, ...] = ()
    """The pods of a static pool; other sources bring their own."""
    start_takes_ms: Annotated[int, Field(ge=1, le=86_400_000)] | None = None
    """How long a pod takes from its appearance until it serves; used until starts have been measured."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.endpoints and self.discovery.kind != "static":
            raise ValueError(f"endpoints: only with discovery of kind static, not {self.discovery.kind}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Every name declared for this pool."""
        return tuple(name for model in self.models for name in (model.name, *model.aliases, *model.adapters))
