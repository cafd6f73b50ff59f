import contextlib
import dataclasses
import math

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

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
from services.core.residency import ResidencyRule
from services.core.units import WallMs, seconds
from services.wire.errors import OversizeError, UndecodableError
from services.wire.gen.gir.v1 import policy_pb2
from services.wire.policy_codec import (
    MAX_POLICY_BYTES,
    PublishedPolicy,
    decode_policy,
    decode_published,
    encode_policy,
)
from tests.wire import golden_files
from tests.wire.strategies import optional_texts, policy_snapshots

POLICY = PolicySnapshot(
    revision=3,
    published_at_ms=WallMs(1_700),
    clusters=(
        ClusterSpec(
            ClusterId("eu-west-a"),
            Locality(Region("eu-west"), Jurisdiction("eu")),
            "http://127.0.0.1:8000",
            "127.0.0.1:9002",
            "http://127.0.0.1:8000/readyz",
        ),
    ),
    models=(ModelPolicy(ModelName("llama-3.1-8b"), (ModelName("llama"),)),),
    tenants=(
        TenantPolicy(TenantId("all"), Grants(priority_ceiling=2)),
        TenantPolicy(
            TenantId("eu-only"),
            Grants(
                frozenset([ModelName("llama-3.1-8b")]),
                ResidencyRule(
                    frozenset([Jurisdiction("eu")]), frozenset(), frozenset([Jurisdiction("us")]), frozenset()
                ),
                -1,
            ),
        ),
        TenantPolicy(TenantId("nothing"), Grants(frozenset())),
    ),
    token_keys=(TokenKey("eu-west-1", bytes(range(32))),),
    health=HealthPolicy(silence_stale=seconds(2), returns_max=4),
    failover=FailoverPolicy(max_attempts=2),
    routing=RoutingPolicy(fail_when_none_healthy=True),
)


def message() -> policy_pb2.PolicySnapshot:
    return policy_pb2.PolicySnapshot.FromString(encode_policy(POLICY))


@given(policy_snapshots(), optional_texts, optional_texts)
def test_round_trip(policy: PolicySnapshot, author: str, reason: str) -> None:
    """Invariant: a legal policy survives the trip unchanged, with its author and reason."""
    encoded = encode_policy(policy, author, reason)
    assert decode_published(encoded) == PublishedPolicy(policy, author, reason)
    assert decode_policy(encoded) == policy


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    """Invariant: no bytes make the decoder raise anything but UndecodableError."""
    try:
        policy = decode_policy(data)
    except UndecodableError:
        return
    assert decode_policy(encode_policy(policy)) == policy


@given(policy_snapshots(), st.data())
def test_damaged_policies_decode_or_are_refused(policy: PolicySnapshot, data: st.DataObject) -> None:
    """Invariant: a policy with one byte changed decodes or raises UndecodableError."""
    encoded = bytearray(encode_policy(policy))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(UndecodableError):
        assert isinstance(decode_policy(bytes(encoded)), PolicySnapshot)


def test_golden_file_of_version_1() -> None:
    golden_files.check("policy_snapshot_v1.bin", encode_policy(POLICY, "ops", "first"))
    published = decode_published(golden_files.read("policy_snapshot_v1.bin"))
    assert published == PublishedPolicy(POLICY, "ops", "first")


def test_unknown_fields_are_ignored() -> None:
    assert decode_policy(encode_policy(POLICY) + b"\xc2\x3e\x03new") == POLICY


def test_numbers_an_older_writer_did_not_know_take_the_defaults() -> None:
    minimal = policy_pb2.PolicySnapshot(revision=1)
    assert decode_policy(minimal.SerializeToString()) == PolicySnapshot(1, WallMs(0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (HealthPolicy, policy_pb2.HealthPolicy),
        (FailoverPolicy, policy_pb2.FailoverPolicy),
        (RoutingPolicy, policy_pb2.RoutingPolicy),
        (Timeouts, policy_pb2.Timeouts),
    ],
)
def test_settings_and_messages_have_the_same_fields(settings: type, message: type[Message]) -> None:
    """A number the core gains must reach the wire; one it loses must be reserved there."""
    core = {field.name for field in dataclasses.fields(settings)}
    assert core == {field.removesuffix("_ns") for field in message.DESCRIPTOR.fields_by_name}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda m: m.ClearField("revision"), "revision 0"),
        (lambda m: setattr(m, "revision", 1 << 60), "revision 1152921504606846976 exceeds"),
        (lambda m: setattr(m, "published_at_ms", -5), "published_at_ms -5 is negative"),
        (lambda m: setattr(m, "reason", "a\nb"), "reason"),
        (lambda m: setattr(m.clusters[0], "jurisdiction", "EU"), "jurisdiction 'EU'"),
        (lambda m: setattr(m.clusters[0], "gateway_url", "ftp://x"), "http"),
        (lambda m: setattr(m.clusters[0], "gateway_url", ""), "gateway_url is missing"),
        (lambda m: m.clusters.append(m.clusters[0]), "'eu-west-a': declared twice"),
        (lambda m: m.models.append(m.models[0]), "declared twice"),
        (lambda m: setattr(m.models[0], "name", ""), "model name is missing"),
        (lambda m: setattr(m.tenants[0], "id", ""), "tenant id is missing"),
        (lambda m: setattr(m.token_keys[0], "public_key", b"short"), "has 5 bytes"),
        (lambda m: setattr(m.token_keys[0], "kid", ""), "token key id is missing"),
        (lambda m: setattr(m.health, "ramp_floor", math.nan), "ramp_floor nan"),
        (lambda m: setattr(m.health, "load_decay_ns", -1), "load_decay_ns -1"),
        (lambda m: setattr(m.health, "silence_stale_ns", 1 << 60), "silence_unprobed_unhealthy"),
        (lambda m: setattr(m.failover, "max_attempts", 99), "max_attempts 99"),
        (lambda m: setattr(m.failover.timeouts, "total_ns", -1), "total_ns -1"),
        (lambda m: setattr(m.routing, "overprovisioning", math.inf), "overprovisioning inf"),
    ],
)
def test_illegal_policies_are_refused_by_name(change: object, why: str) -> None:
    bad = message()
    assert callable(change)
    change(bad)
    with pytest.raises(UndecodableError, match=why):
        decode_policy(bad.SerializeToString())


def test_a_policy_beyond_the_bound_is_an_error_of_the_writer() -> None:
    models = tuple(ModelPolicy(ModelName(f"model-{number:06d}" + "x" * 200)) for number in range(6000))
    with pytest.raises(OversizeError, match="exceed the bound of 1000000"):
        encode_policy(dataclasses.replace(POLICY, models=models))
    with pytest.raises(UndecodableError, match="exceed the bound"):
        decode_policy(b"\x00" * (MAX_POLICY_BYTES + 1))
