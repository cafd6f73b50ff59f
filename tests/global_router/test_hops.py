"""Hops come from policy only; each token opens its own cluster."""

import pytest

from services.adapters.http.upstream import Origin
from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.policy import ClusterSpec, PolicySnapshot
from services.core.residency import ResidencyRule
from services.core.units import WallMs
from services.global_router.hops import TOKEN_LIFETIME_MS, Hops, hand_off_for, origin_of
from services.wire.hand_off import CLOCK_LEEWAY_MS, MAX_LIFETIME_MS, derive_key, verify

NOW = WallMs(1_800_000_000_000)
PLACE = Locality(Region("eu-west"), Jurisdiction("eu"))
SPEC = ClusterSpec(ClusterId("eu-a"), PLACE, "http://10.0.0.1:8000", "10.0.0.1:9002")
HOPS = Hops(PolicySnapshot(1, NOW, clusters=(SPEC,)), "eu1", b"s" * 32)


def test_a_hop_knows_where_and_says_so() -> None:
    hop = HOPS.get("eu-a")
    assert hop is not None
    assert hop.origin == Origin("10.0.0.1", 8000)
    assert hop.picker_address == "10.0.0.1:9002"
    assert hop.place_headers == b"x-gir-cluster: eu-a\r\nx-gir-region: eu-west\r\nx-gir-jurisdiction: eu\r\n"
    assert HOPS.get("us-a") is None


def test_the_token_carries_the_request_and_lives_shorter_than_gateways_allow() -> None:
    hop = HOPS.get("eu-a")
    assert hop is not None
    rule = ResidencyRule(frozenset({Jurisdiction("eu")}))
    request = InferenceRequest(
        RequestId("r"), Tenant(TenantId("t"), Grants()), ModelName("m"), rule, priority=-1
    )
    key = derive_key("eu1", b"s" * 32, ClusterId("eu-a"))
    said = verify(hand_off_for(request, hop, NOW), {"eu1": key.secret}, ClusterId("eu-a"), NOW)
    assert (said.request_id, said.tenant, said.model, said.allowed) == ("r", "t", "m", rule)
    assert (said.priority, said.session) == (-1, None)
    assert said.expires_at_ms == NOW + TOKEN_LIFETIME_MS
    assert TOKEN_LIFETIME_MS + CLOCK_LEEWAY_MS <= MAX_LIFETIME_MS


@pytest.mark.parametrize(
    ("url", "origin"),
    [("http://h", Origin("h", 80)), ("http://[fd00::1]:81/", Origin("fd00::1", 81))],
)
def test_origins(url: str, origin: Origin) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize("url", ["https://h", "h:80", "http://", "ftp://h"])
def test_what_is_no_http_origin_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must be an http"):
        origin_of(url)
