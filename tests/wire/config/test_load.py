import pytest

from services.core.inference import ModelName
from services.core.locality import ClusterId
from services.core.policy import FailoverPolicy, HealthPolicy, PolicySnapshot, RoutingPolicy
from services.core.units import WallMs, seconds
from services.wire.config.documents import Source
from services.wire.config.load import InvalidDocumentsError, load, to_policy
from services.wire.policy_codec import decode_policy, encode_policy
from tests.wire.config import example


def test_the_example_becomes_a_policy_that_travels() -> None:
    policy = to_policy(load(example.EVERYTHING), 7, WallMs(1_700))
    assert (policy.revision, policy.published_at_ms) == (7, 1_700)
    assert [cluster.id for cluster in policy.clusters] == ["eu-west-a", "us-east-a"]
    assert [model.name for model in policy.models] == ["meta-llama/Llama-3.1-8B", "mistral"]
    assert [tenant.id for tenant in policy.tenants] == ["acme"]
    assert [key.kid for key in policy.token_keys] == ["gir-1"]
    assert policy.health.silence_stale == seconds(2)
    assert policy.failover.max_attempts == 2
    assert policy.routing.fail_when_none_healthy
    assert decode_policy(encode_policy(policy)) == policy


def test_without_a_routing_policy_the_defaults_hold() -> None:
    policy = to_policy(load(example.FLEET), 1, WallMs(0))
    assert isinstance(policy, PolicySnapshot)
    assert (policy.health, policy.failover, policy.routing) == (
        HealthPolicy(),
        FailoverPolicy(),
        RoutingPolicy(),
    )
    assert (policy.clusters[0].id, policy.models[0].name) == (
        ClusterId("eu-west-a"),
        ModelName("meta-llama/Llama-3.1-8B"),
    )


def test_a_fleet_may_be_spread_over_files() -> None:
    texts = (example.FLEET, example.ROUTING_POLICY, example.TENANT, example.TOKEN_KEYS)
    spread = load([Source(f"{i}.yaml", text.encode()) for i, text in enumerate(texts)])
    assert to_policy(spread, 1, WallMs(0)) == to_policy(load("---\n".join(texts)), 1, WallMs(0))


def test_errors_refuse_the_whole() -> None:
    documents = load(example.EVERYTHING.replace("[meta-llama/Llama-3.1-8B]", "[gpt]"))
    with pytest.raises(InvalidDocumentsError, match="'gpt': is no model of the Fleet") as refused:
        to_policy(documents, 1, WallMs(0))
    assert refused.value.problems == documents.errors


def test_a_policy_without_a_fleet_is_refused_because_it_would_end_every_model() -> None:
    with pytest.raises(InvalidDocumentsError, match="a policy needs a Fleet"):
        to_policy(load(example.TENANT), 1, WallMs(0))


def test_text_that_no_encoding_can_hold_is_a_problem_too() -> None:
    (problem,) = load("a: \ud800").errors
    assert problem.rule == "not UTF-8"
