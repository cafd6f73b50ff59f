"""Policy: `PolicySnapshot` values <-> bytes of topic `gir.policy`, Redis and the router's disk.

The numbers of a policy are written out in full; one that an older writer did not know is absent
and takes the reader's default. The values check themselves at birth, and their complaint becomes
an `UndecodableError`. Files that people write are read in `config`, not here.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message

from services.core.inference import Grants, ModelName, TenantId
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.policy import (
    ClusterSpec,
    FailoverPolicy,
    HealthPolicy,
    ModelPolicy,
    PolicySnapshot,
    RoutingPolicy,
    TenantPolicy,
    Timeouts,
    TokenKey,
)
from services.core.units import WallMs
from services.wire.errors import OversizeError, UndecodableError
from services.wire.gen.gir.v1 import policy_pb2
from services.wire.messages import MAX_TEXT_CHARS, optional_text, ordinal, parse, text, wall_ms
from services.wire.residency_codec import decode_residency, encode_residency, name_set

SNAPSHOT_KEY = "snapshot"
"""Key of the whole policy in topic `gir.policy`."""

MAX_POLICY_BYTES = 1_000_000
"""Fits Kafka's default record bound (1 MiB) with its headers; about 10,000 tenants."""

MAX_REASON_CHARS = 1024
PUBLIC_KEY_BYTES = 32
"""Size of an Ed25519 public key (RFC 8032, section 5.1.5)."""

_WHAT = "policy"
SettingsT = TypeVar("SettingsT", HealthPolicy, FailoverPolicy, RoutingPolicy, Timeouts)


@dataclass(frozen=True, slots=True)
class PublishedPolicy:
    """A policy with who published it and why."""

    policy: PolicySnapshot
    author: str = ""
    reason: str = ""


def _pair(settings: type, message: type[Message]) -> dict[str, str]:
    """Map each plain field of `settings` to its message field: the same name, durations with `_ns`."""
    known = message.DESCRIPTOR.fields_by_name
    names = [f.name for f in dataclasses.fields(settings) if f.name != "timeouts"]
    return {field: field if field in known else f"{field}_ns" for field in names}


_FIELDS: Mapping[type, Mapping[str, str]] = {
    HealthPolicy: _pair(HealthPolicy, policy_pb2.HealthPolicy),
    FailoverPolicy: _pair(FailoverPolicy, policy_pb2.FailoverPolicy),
    RoutingPolicy: _pair(RoutingPolicy, policy_pb2.RoutingPolicy),
    Timeouts: _pair(Timeouts, policy_pb2.Timeouts),
}


def encode_policy(policy: PolicySnapshot, author: str = "", reason: str = "") -> bytes:
    """Return the message bytes; raise `OversizeError` above `MAX_POLICY_BYTES`."""
    message = policy_pb2.PolicySnapshot(
        revision=policy.revision,
        published_at_ms=policy.published_at_ms,
        author=author,
        reason=reason,
        clusters=[_cluster_message(cluster) for cluster in policy.clusters],
        models=[policy_pb2.ModelPolicy(name=m.name, aliases=m.aliases) for m in policy.models],
        tenants=[_tenant_message(tenant) for tenant in policy.tenants],
        token_keys=[policy_pb2.TokenKey(kid=k.kid, public_key=k.public_key) for k in policy.token_keys],
    )
    _write(policy.health, message.health)
    _write(policy.failover, message.failover)
    _write(policy.failover.timeouts, message.failover.timeouts)
    _write(policy.routing, message.routing)
    data = message.SerializeToString()
    if len(data) > MAX_POLICY_BYTES:
        raise OversizeError(f"{_WHAT}: {len(data)} bytes exceed the bound of {MAX_POLICY_BYTES}")
    return data


def decode_policy(data: bytes) -> PolicySnapshot:
    """Return the policy in `data`; raise `UndecodableError` when there is none or it contradicts itself."""
    return decode_published(data).policy


def decode_published(data: bytes) -> PublishedPolicy:
    """Return the policy in `data` with its author and reason; raise `UndecodableError` as `decode_policy` does."""
    message = parse(policy_pb2.PolicySnapshot, data, _WHAT, MAX_POLICY_BYTES)
    try:
        policy = PolicySnapshot(
            revision=ordinal(message.revision, _WHAT, "revision"),
            published_at_ms=WallMs(wall_ms(message.published_at_ms, _WHAT, "published_at_ms")),
            clusters=tuple(_cluster_of(cluster) for cluster in message.clusters),
            models=tuple(_model_of(model) for model in message.models),
            tenants=tuple(_tenant_of(tenant) for tenant in message.tenants),
            token_keys=tuple(_key_of(key) for key in message.token_keys),
            health=_read(HealthPolicy, message.health),
            failover=_read(
                FailoverPolicy, message.failover, timeouts=_read(Timeouts, message.failover.timeouts)
            ),
            routing=_read(RoutingPolicy, message.routing),
        )
    except UndecodableError:
        raise
    except ValueError as error:
        raise UndecodableError(_WHAT, str(error)) from error
    return PublishedPolicy(
        policy,
        optional_text(message.author, _WHAT, "author"),
        optional_text(message.reason, _WHAT, "reason", MAX_REASON_CHARS),
    )


def _write(settings: HealthPolicy | FailoverPolicy | RoutingPolicy | Timeouts, message: Message) -> None:
    for field, wire_field in _FIELDS[type(settings)].items():
        setattr(message, wire_field, getattr(settings, field))


def _read(kind: type[SettingsT], message: Message, **more: Any) -> SettingsT:
    values: dict[str, Any] = {}
    for field, wire_field in _FIELDS[kind].items():
        if message.HasField(wire_field):
            value = getattr(message, wire_field)
            if not math.isfinite(value) or value < 0:
                raise UndecodableError(_WHAT, f"{wire_field} {value} is not a non-negative number")
            values[field] = value
    return kind(**values, **more)


def _cluster_message(cluster: ClusterSpec) -> policy_pb2.ClusterSpec:
    return policy_pb2.ClusterSpec(
        id=cluster.id,
        region=cluster.locality.region,
        jurisdiction=cluster.locality.jurisdiction,
        gateway_url=cluster.gateway_url,
        picker_address=cluster.picker_address,
        probe_url=cluster.probe_url,
    )


def _cluster_of(message: policy_pb2.ClusterSpec) -> ClusterSpec:
    return ClusterSpec(
        id=ClusterId(message.id),
        locality=Locality(Region(message.region), Jurisdiction(message.jurisdiction)),
        gateway_url=text(message.gateway_url, _WHAT, "gateway_url", 2 * MAX_TEXT_CHARS),
        picker_address=optional_text(message.picker_address, _WHAT, "picker_address"),
        probe_url=optional_text(message.probe_url, _WHAT, "probe_url", 2 * MAX_TEXT_CHARS),
    )


def _model_of(message: policy_pb2.ModelPolicy) -> ModelPolicy:
    return ModelPolicy(
        ModelName(text(message.name, _WHAT, "model name")),
        tuple(ModelName(text(alias, _WHAT, "alias")) for alias in message.aliases),
    )


def _tenant_message(tenant: TenantPolicy) -> policy_pb2.TenantPolicy:
    return policy_pb2.TenantPolicy(
        id=tenant.id,
        models=name_set(tenant.grants.models),
        residency=encode_residency(tenant.grants.residency),
        priority_ceiling=tenant.grants.priority_ceiling,
    )


def _tenant_of(message: policy_pb2.TenantPolicy) -> TenantPolicy:
    models: frozenset[ModelName] | None = None
    if message.HasField("models"):
        models = frozenset(ModelName(text(value, _WHAT, "granted model")) for value in message.models.names)
    grants = Grants(models, decode_residency(message.residency, _WHAT), message.priority_ceiling)
    return TenantPolicy(TenantId(text(message.id, _WHAT, "tenant id")), grants)


def _key_of(message: policy_pb2.TokenKey) -> TokenKey:
    if len(message.public_key) != PUBLIC_KEY_BYTES:
        raise UndecodableError(
            _WHAT,
            f"token key {message.kid!r} has {len(message.public_key)} bytes, Ed25519 keys have {PUBLIC_KEY_BYTES}",
        )
    return TokenKey(text(message.kid, _WHAT, "token key id"), message.public_key)
