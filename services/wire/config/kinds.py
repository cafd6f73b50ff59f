"""The kinds `Fleet`, `Tenant` and `TokenKeys`: what is served where, and who may use it.

Each knows how to become core values; whether documents fit together is `cross_checks`. Timers and
retries are `routing_policy`, processes and ports are `site`.
"""

import base64
import binascii
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from services.core.inference import Grants, ModelName, TenantId
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.policy import ClusterSpec, ModelPolicy, TenantPolicy, TokenKey
from services.core.residency import ResidencyRule
from services.wire.config.field_types import (
    Given,
    HostPort,
    HttpUrl,
    JurisdictionCode,
    KeyId,
    Kind,
    Many,
    Model,
    Name,
    Origin,
)
from services.wire.policy_codec import PUBLIC_KEY_BYTES

API_VERSION: Final = "gir.dev/v1alpha1"
EVERY_MODEL = "*"
"""Grants every model, known and future; a guardrail asks for it to be waived by name."""

Guardrail = Literal["tenant-without-model-grant", "wildcard-grant"]
"""Checks that are on by default and can be waived by name in the document they concern."""


def _public_key(value: str) -> str:
    try:
        raw = base64.b64decode(value.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError("must be base64") from error
    if len(raw) != PUBLIC_KEY_BYTES:
        raise ValueError(f"must be an Ed25519 public key of {PUBLIC_KEY_BYTES} bytes, but has {len(raw)}")
    return value


class Metadata(Kind):
    """What a document is called."""

    name: Name


class Cluster(Kind):
    """A fleet member; see `services.core.policy.ClusterSpec`."""

    id: Name
    region: Name
    jurisdiction: JurisdictionCode
    gateway_url: Origin
    picker_address: HostPort = ""
    probe_url: HttpUrl = ""

    def to_core(self) -> ClusterSpec:
        """Return the core value."""
        place = Locality(Region(self.region), Jurisdiction(self.jurisdiction))
        return ClusterSpec(ClusterId(self.id), place, self.gateway_url, self.picker_address, self.probe_url)


class ServedModel(Kind):
    """A public model name and the aliases that also reach it."""

    name: Model
    aliases: Many[Model] = ()

    def to_core(self) -> ModelPolicy:
        """Return the core value."""
        return ModelPolicy(ModelName(self.name), tuple(map(ModelName, self.aliases)))


class FleetSpec(Kind):
    """Clusters and models."""

    clusters: Annotated[Many[Cluster], Field(max_length=2000)]
    models: Annotated[Many[ServedModel], Field(max_length=10_000)]


class Fleet(Kind):
    """What is served where."""

    api_version: Literal["gir.dev/v1alpha1"]
    kind: Literal["Fleet"]
    metadata: Metadata
    spec: FleetSpec


class Residency(Kind):
    """Where a tenant's content may be. An absent allow list allows all, an empty one nothing; deny wins."""

    allow_jurisdictions: Annotated[Many[JurisdictionCode] | None, Given] = None
    allow_regions: Annotated[Many[Name] | None, Given] = None
    deny_jurisdictions: Many[JurisdictionCode] = ()
    deny_regions: Many[Name] = ()

    def to_core(self) -> ResidencyRule:
        """Return the core value."""
        return ResidencyRule(
            None
            if self.allow_jurisdictions is None
            else frozenset(map(Jurisdiction, self.allow_jurisdictions)),
            None if self.allow_regions is None else frozenset(map(Region, self.allow_regions)),
            frozenset(map(Jurisdiction, self.deny_jurisdictions)),
            frozenset(map(Region, self.deny_regions)),
        )


class TenantSpec(Kind):
    """Grants of one tenant. `models` are names of the Fleet, or `*`; without any, nothing is granted."""

    models: Many[Model] = ()
    residency: Residency = Residency()
    priority_ceiling: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    waive: Many[Guardrail] = ()


class Tenant(Kind):
    """Who may use what. `metadata.name` is the tenant id that tokens carry."""

    api_version: Literal["gir.dev/v1alpha1"]
    kind: Literal["Tenant"]
    metadata: Metadata
    spec: TenantSpec

    def to_core(self) -> TenantPolicy:
        """Return the core value; `*` becomes the grant of every model."""
        models = (
            None if EVERY_MODEL in self.spec.models else frozenset(ModelName(m) for m in self.spec.models)
        )
        grants = Grants(models, self.spec.residency.to_core(), self.spec.priority_ceiling)
        return TenantPolicy(TenantId(self.metadata.name), grants)


class PublicKey(Kind):
    """Public half of a token-signing key, as `gir token keys show` prints it."""

    kid: KeyId
    public_key: Annotated[str, AfterValidator(_public_key)]

    def to_core(self) -> TokenKey:
        """Return the core value."""
        return TokenKey(self.kid, base64.b64decode(self.public_key))


class TokenKeysSpec(Kind):
    """Keys whose tokens are accepted; two overlap while one is rotated."""

    keys: Annotated[Many[PublicKey], Field(max_length=100)]


class TokenKeys(Kind):
    """Public keys of the regions that mint bearer tokens."""

    api_version: Literal["gir.dev/v1alpha1"]
    kind: Literal["TokenKeys"]
    metadata: Metadata
    spec: TokenKeysSpec
