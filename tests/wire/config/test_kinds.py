import pytest

from services.core.inference import Grants, ModelName, TenantId
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.policy import ClusterSpec, ModelPolicy, TenantPolicy, TokenKey
from services.core.residency import ANYWHERE, ResidencyRule
from services.wire.config.load import load
from tests.wire.config import example


def test_a_fleet_becomes_clusters_and_models() -> None:
    spec = load(example.FLEET).fleets[0].value.spec
    assert [cluster.to_core() for cluster in spec.clusters] == [
        ClusterSpec(
            ClusterId("eu-west-a"),
            Locality(Region("eu-west"), Jurisdiction("eu")),
            "http://127.0.0.1:8001",
            "127.0.0.1:9002",
            "http://127.0.0.1:8001/readyz",
        ),
        ClusterSpec(
            ClusterId("us-east-a"), Locality(Region("us-east"), Jurisdiction("us")), "http://[::1]:8002"
        ),
    ]
    assert [model.to_core() for model in spec.models] == [
        ModelPolicy(ModelName("meta-llama/Llama-3.1-8B"), (ModelName("llama"),)),
        ModelPolicy(ModelName("mistral")),
    ]


def test_a_tenant_becomes_grants_and_an_empty_allow_list_allows_nothing() -> None:
    assert load(example.TENANT).tenants[0].value.to_core() == TenantPolicy(
        TenantId("acme"),
        Grants(
            frozenset([ModelName("meta-llama/Llama-3.1-8B")]),
            ResidencyRule(
                frozenset([Jurisdiction("eu")]),
                frozenset(),
                frozenset([Jurisdiction("us")]),
                frozenset([Region("us-east")]),
            ),
            5,
        ),
    )


def test_what_a_tenant_leaves_out_is_no_model_and_every_place() -> None:
    text = "apiVersion: gir.dev/v1alpha1\nkind: Tenant\nmetadata: {name: t}\nspec: {}\n"
    assert load(text).tenants[0].value.to_core() == TenantPolicy(
        TenantId("t"), Grants(frozenset(), ANYWHERE, 0)
    )


def test_a_star_grants_every_model() -> None:
    text = example.TENANT.replace("[meta-llama/Llama-3.1-8B]", "[x, '*']")
    assert load(text).tenants[0].value.to_core().grants.models is None


def test_token_keys_are_raw_ed25519_keys() -> None:
    (key,) = load(example.TOKEN_KEYS).token_keys[0].value.spec.keys
    assert key.to_core() == TokenKey("gir-1", bytes(range(32)))


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        ("AAEC", "must be an Ed25519 public key of 32 bytes, but has 3"),
        ("not base64!", "must be base64"),
        ("é", "must be base64"),
        ("", "has 0"),
    ],
)
def test_public_keys_are_checked(key: str, rule: str) -> None:
    (problem,) = load(example.TOKEN_KEYS.replace(example.KEY, key)).errors
    assert problem.path == "spec.keys[0].publicKey"
    assert rule in problem.rule
