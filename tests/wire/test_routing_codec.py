import dataclasses

import pytest

from services.core.fleet import Candidate, HealthState, LoadReport, PoolReport
from services.core.inference import (
    Grants,
    InferenceRequest,
    ModelName,
    RequestId,
    Tenant,
    TenantId,
    TrafficClass,
)
from services.core.locality import Jurisdiction, Locality, Region
from services.core.outcomes import DropReason, Explanation, Rejected, Verdict
from services.core.residency import ResidencyRule
from services.core.units import Duration, Tokens, ms
from services.wire.errors import UndecodableError
from services.wire.gen.gir.v1 import picker_pb2, residency_pb2, routing_pb2
from services.wire.routing_codec import (
    decode_pick,
    decode_route,
    encode_cluster_status,
    encode_explanation,
    encode_rejection,
    whole_ms,
)

ID = RequestId("0190d5a0-0000-7000-8000-000000000000")
EU = frozenset([Jurisdiction("eu")])
TENANT = Tenant(TenantId("acme"), Grants(residency=ResidencyRule(allow_jurisdictions=EU), priority_ceiling=1))
EXPLANATION = Explanation(
    ID,
    snapshot_version=9,
    policy_revision=4,
    verdicts=(
        Verdict("eu-west-a", None, 0.75, 1, (("queue", 0.5),), "kept"),
        Verdict("us-east-a", DropReason.JURISDICTION_DENIED),
    ),
    draw=0.0,
    panic=True,
    note="all clusters stale",
    excluded=("ap-south-a",),
    trial=True,
)


def test_a_minimal_request_takes_the_defaults_of_the_core() -> None:
    message = routing_pb2.RouteRequest(model="llama")
    request = decode_route(message, ID, TENANT)
    assert request == InferenceRequest(ID, TENANT, ModelName("llama"), TENANT.grants.residency)


def test_a_full_request_keeps_every_value() -> None:
    message = routing_pb2.RouteRequest(
        model="llama",
        client_request_id="job-17",
        traffic_class=routing_pb2.TRAFFIC_CLASS_BATCH,
        priority=-5,
        session="s-1",
        prompt_tokens=0,
        max_output_tokens=512,
        stream=True,
    )
    assert decode_route(message, ID, TENANT) == InferenceRequest(
        ID,
        TENANT,
        ModelName("llama"),
        TENANT.grants.residency,
        TrafficClass.BATCH,
        priority=-5,
        prompt_tokens=Tokens(0),
        max_output_tokens=Tokens(512),
        stream=True,
        session="s-1",
    )


def test_priority_is_capped_by_the_tenant() -> None:
    assert decode_route(routing_pb2.RouteRequest(model="m", priority=100), ID, TENANT).priority == 1


def test_residency_of_a_request_only_narrows() -> None:
    wider = residency_pb2.ResidencyRule(allow_jurisdictions=residency_pb2.NameSet(names=["eu", "us"]))
    assert (
        decode_route(
            routing_pb2.RouteRequest(model="m", residency=wider), ID, TENANT
        ).residency.allow_jurisdictions
        == EU
    )
    other = residency_pb2.ResidencyRule(allow_jurisdictions=residency_pb2.NameSet(names=["us"]))
    narrowed = decode_route(routing_pb2.RouteRequest(model="m", residency=other), ID, TENANT).residency
    assert not narrowed.allows(Locality(Region("eu-west"), Jurisdiction("eu")))
    assert not narrowed.allows(Locality(Region("us-east"), Jurisdiction("us")))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (routing_pb2.RouteRequest(), "model is missing"),
        (routing_pb2.RouteRequest(model="m" * 300), "model has 300 characters"),
        (routing_pb2.RouteRequest(model="m\x00"), "do not print"),
        (routing_pb2.RouteRequest(model="m", client_request_id="é"), "client_request_id"),
        (routing_pb2.RouteRequest(model="m", client_request_id="a b"), "client_request_id"),
        (routing_pb2.RouteRequest(model="m", client_request_id="x" * 129), "client_request_id"),
        (routing_pb2.RouteRequest(model="m", session="x" * 300), "session has 300"),
        (routing_pb2.RouteRequest.FromString(b"\x0a\x01m\x18\x09"), "traffic_class 9 is not known"),
        (
            routing_pb2.RouteRequest(
                model="m", residency=residency_pb2.ResidencyRule(deny_jurisdictions=["EU"])
            ),
            "jurisdiction 'EU'",
        ),
    ],
)
def test_illegal_requests_are_refused_by_name(message: routing_pb2.RouteRequest, why: str) -> None:
    with pytest.raises(UndecodableError, match=why):
        decode_route(message, ID, TENANT)


def test_no_request_message_names_a_tenant() -> None:
    for kind in (routing_pb2.RouteRequest, routing_pb2.RouteStreamRequest, picker_pb2.PickRequest):
        assert not [name for name in kind.DESCRIPTOR.fields_by_name if "tenant" in name or "subject" in name]


def test_a_pick_takes_its_allowed_set_from_the_hand_off() -> None:
    allowed = ResidencyRule(allow_regions=frozenset([Region("eu-west")]))
    request = decode_pick(picker_pb2.PickRequest(model="m", prompt_tokens=7), ID, TENANT, allowed)
    assert request.residency is allowed
    assert request.prompt_tokens == 7
    with pytest.raises(UndecodableError, match="pick request: model is missing"):
        decode_pick(picker_pb2.PickRequest(), ID, TENANT, allowed)


def test_an_explanation_travels_whole() -> None:
    message = encode_explanation(EXPLANATION)
    assert (message.request_id, message.snapshot_version, message.policy_revision) == (ID, 9, 4)
    assert message.HasField("draw")
    assert (message.draw, message.panic, message.note) == (0.0, True, "all clusters stale")
    assert (list(message.excluded), message.trial) == (["ap-south-a"], True)
    kept, dropped = message.verdicts
    assert (kept.candidate, kept.reason, kept.weight, kept.level, kept.note) == (
        "eu-west-a",
        "",
        0.75,
        1,
        "kept",
    )
    assert [(score.scorer, score.value) for score in kept.scores] == [("queue", 0.5)]
    assert (dropped.candidate, dropped.reason) == ("us-east-a", "jurisdiction_denied")
    assert not encode_explanation(dataclasses.replace(EXPLANATION, draw=None)).HasField("draw")


def test_a_rejection_carries_the_code_of_the_status_table() -> None:
    rejected = Rejected(DropReason.SATURATED, "all full", EXPLANATION, retry_after=Duration(1_000_001))
    message = encode_rejection(rejected, explain=True)
    assert (message.code, message.drop_reason, message.message) == (8, "saturated", "all full")
    assert (message.retry_after_ms, message.request_id) == (2, ID)
    assert message.explanation == encode_explanation(EXPLANATION)
    bare = encode_rejection(dataclasses.replace(rejected, retry_after=None), explain=False)
    assert not bare.HasField("retry_after_ms")
    assert not bare.HasField("explanation")


@pytest.mark.parametrize(("span", "expected"), [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2), (-5, 0)])
def test_waits_round_up(span: int, expected: int) -> None:
    assert whole_ms(Duration(span)) == expected


@pytest.mark.parametrize("state", HealthState)
def test_a_cluster_status_says_what_the_router_thinks(state: HealthState) -> None:
    candidate = Candidate(
        "eu-west-a",
        Locality(Region("eu-west"), Jurisdiction("eu")),
        frozenset([ModelName("m")]),
        LoadReport(),
        state=state,
        ejected=True,
        probing_ok=False,
        ramp=0.25,
    )
    pool = PoolReport("p", ModelName("m"), 1, 2)
    message = encode_cluster_status(candidate, [pool], ms(1500))
    assert routing_pb2.HealthState.Name(message.state) == f"HEALTH_STATE_{state.name}"
    assert (message.cluster, message.region, message.jurisdiction) == ("eu-west-a", "eu-west", "eu")
    assert (message.ejected, message.probing_ok, message.ramp) == (True, False, 0.25)
    assert message.silence_ms == 1500
    assert [p.model for p in message.pools] == ["m"]
    assert not encode_cluster_status(candidate, [], None).HasField("silence_ms")
