"""From header to tenant: intersection of record and token, caching, policy changes."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from services.adapters.auth import authenticator
from services.adapters.auth.authenticator import Authenticator
from services.adapters.auth.key_files import SigningKey
from services.adapters.auth.tokens import TokenRefusal, TokenRefusedError, TokenScope, mint
from services.core.inference import Grants, ModelName, TenantId
from services.core.locality import Jurisdiction
from services.core.policy import PolicySnapshot, TenantPolicy
from services.core.residency import ResidencyRule
from services.core.units import WallMs

KEY = SigningKey("eu-1", Ed25519PrivateKey.generate())
NOW = WallMs(1_800_000_000_000)
EU = ResidencyRule(allow_jurisdictions=frozenset({Jurisdiction("eu")}))


def policy(grants: Grants, revision: int = 1) -> PolicySnapshot:
    return PolicySnapshot(
        revision, NOW, tenants=(TenantPolicy(TenantId("acme"), grants),), token_keys=(KEY.public(),)
    )


def bearer(scope: TokenScope, lifetime_s: int = 600) -> bytes:
    return b"Bearer " + mint(scope, KEY.kid, KEY.private, NOW, lifetime_s, "id").encode()


def test_grants_are_the_intersection_of_record_and_token() -> None:
    auth = Authenticator(policy(Grants(frozenset({ModelName("a"), ModelName("b")}), EU, 5)))
    scope = TokenScope(TenantId("acme"), (ModelName("b"), ModelName("c")), (Jurisdiction("us"),))
    tenant = auth.authenticate(bearer(scope), NOW)
    assert tenant.grants.models == frozenset({ModelName("b")})
    assert tenant.grants.residency.allow_jurisdictions == frozenset()
    assert tenant.grants.priority_ceiling == 5


def test_a_token_cannot_widen_a_record_without_model_limit() -> None:
    auth = Authenticator(policy(Grants()))
    narrowed = auth.authenticate(bearer(TokenScope(TenantId("acme"), (ModelName("m"),))), NOW)
    assert narrowed.grants.models == frozenset({ModelName("m")})
    assert auth.authenticate(bearer(TokenScope(TenantId("acme"))), NOW).grants.models is None


def test_a_cached_token_still_expires() -> None:
    auth = Authenticator(policy(Grants()))
    header = bearer(TokenScope(TenantId("acme")), 60)
    first = auth.authenticate(header, NOW)
    assert auth.authenticate(header, NOW) is first
    with pytest.raises(TokenRefusedError) as caught:
        auth.authenticate(header, WallMs(NOW + 91_000))
    assert caught.value.refusal is TokenRefusal.EXPIRED


def test_a_policy_change_acts_on_cached_tokens_at_once() -> None:
    auth = Authenticator(policy(Grants()))
    header = bearer(TokenScope(TenantId("acme")))
    assert auth.authenticate(header, NOW).grants.residency.unrestricted
    auth.use(policy(Grants(residency=EU), 2))
    assert auth.authenticate(header, NOW).grants.residency == EU
    auth.use(PolicySnapshot(3, NOW, token_keys=(KEY.public(),)))
    with pytest.raises(TokenRefusedError) as caught:
        auth.authenticate(header, NOW)
    assert caught.value.refusal is TokenRefusal.UNKNOWN_TENANT


@pytest.mark.parametrize("header", [None, b"", b"Basic abc", b"Bearer", b"bearer"])
def test_no_bearer_is_missing(header: bytes | None) -> None:
    with pytest.raises(TokenRefusedError) as caught:
        Authenticator(policy(Grants())).authenticate(header, NOW)
    assert caught.value.refusal is TokenRefusal.MISSING


def test_a_non_ascii_bearer_is_malformed() -> None:
    with pytest.raises(TokenRefusedError) as caught:
        Authenticator(policy(Grants())).authenticate(b"Bearer \xff\xfe", NOW)
    assert caught.value.refusal is TokenRefusal.MALFORMED


def test_without_policy_nobody_is_known() -> None:
    with pytest.raises(TokenRefusedError) as caught:
        Authenticator().authenticate(bearer(TokenScope(TenantId("acme"))), NOW)
    assert caught.value.refusal is TokenRefusal.UNKNOWN_KEY


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "CACHE_MAX_ENTRIES", 2)
    auth = Authenticator(policy(Grants()))
    for lifetime_s in range(60, 65):
        auth.authenticate(bearer(TokenScope(TenantId("acme")), lifetime_s), NOW)
    assert len(auth._cache) == 2
