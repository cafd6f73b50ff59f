"""Bearer tokens: what is accepted, and each way of being refused."""

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from services.adapters.auth.tokens import (
    AUDIENCE,
    ISSUER,
    LEEWAY_S,
    MAX_LIFETIME_S,
    MAX_TOKEN_BYTES,
    TokenRefusal,
    TokenRefusedError,
    TokenScope,
    mint,
    read,
)
from services.core.inference import ModelName, TenantId
from services.core.locality import Jurisdiction, Region
from services.core.residency import ResidencyRule
from services.core.units import WallMs

KEY = Ed25519PrivateKey.generate()
OTHER = Ed25519PrivateKey.generate()
KEYS = {"eu-1": KEY.public_key()}
NOW = WallMs(1_800_000_000_000)
ACME = TokenScope(TenantId("acme"))


def refusal(token: str, now_ms: int = NOW) -> TokenRefusal:
    with pytest.raises(TokenRefusedError) as caught:
        read(token, KEYS, WallMs(now_ms))
    assert token not in str(caught.value)
    return caught.value.refusal


def forged(claims: dict[str, Any], **headers: Any) -> str:
    base = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "acme",
        "jti": "t",
        "iat": NOW // 1000,
        "exp": NOW // 1000 + 60,
    }
    merged = {name: value for name, value in {**base, **claims}.items() if value is not None}
    return jwt.encode(merged, KEY, algorithm="EdDSA", headers={"kid": "eu-1", **headers})


def test_a_minted_token_says_who_and_how_far() -> None:
    scope = TokenScope(TenantId("acme"), (ModelName("m"),), (Jurisdiction("eu"),), (Region("eu-west"),))
    claims = read(mint(scope, "eu-1", KEY, NOW, 3600, "id-1"), KEYS, NOW)
    assert claims.tenant == "acme"
    assert claims.token_id == "id-1"
    assert claims.models == frozenset({ModelName("m")})
    assert claims.residency == ResidencyRule(frozenset({Jurisdiction("eu")}), frozenset({Region("eu-west")}))
    assert claims.expires_at_ms == NOW + (3600 + LEEWAY_S) * 1000


def test_an_unscoped_token_leaves_the_tenant_record_alone() -> None:
    claims = read(mint(ACME, "eu-1", KEY, NOW, 60, "id"), KEYS, NOW)
    assert claims.models is None
    assert claims.residency.unrestricted


@pytest.mark.parametrize("lifetime_s", [0, -1, MAX_LIFETIME_S + 1])
def test_a_lifetime_outside_the_rule_is_not_minted(lifetime_s: int) -> None:
    with pytest.raises(ValueError, match=f"lifetime {lifetime_s} s"):
        mint(ACME, "eu-1", KEY, NOW, lifetime_s, "id")


def test_a_foreign_key_is_refused() -> None:
    assert refusal(mint(ACME, "eu-1", OTHER, NOW, 60, "id")) is TokenRefusal.BAD_SIGNATURE
    assert refusal(mint(ACME, "us-1", KEY, NOW, 60, "id")) is TokenRefusal.UNKNOWN_KEY


def test_expiry_counts_from_the_callers_clock_with_leeway() -> None:
    token = mint(ACME, "eu-1", KEY, NOW, 60, "id")
    read(token, KEYS, WallMs(NOW + (60 + LEEWAY_S) * 1000 - 1))
    assert refusal(token, NOW + (60 + LEEWAY_S) * 1000) is TokenRefusal.EXPIRED
    assert refusal(token, NOW - (LEEWAY_S + 1) * 1000) is TokenRefusal.NOT_YET_VALID


def test_not_before_is_honoured() -> None:
    assert refusal(forged({"nbf": NOW // 1000 + 3600})) is TokenRefusal.NOT_YET_VALID
    assert refusal(forged({"nbf": "soon"})) is TokenRefusal.MALFORMED


@pytest.mark.parametrize("claim", ["exp", "iat", "jti", "sub"])
def test_a_missing_required_claim_is_refused(claim: str) -> None:
    assert refusal(forged({claim: None})) is TokenRefusal.MALFORMED


@pytest.mark.parametrize("claims", [{"aud": "other"}, {"aud": ["other"]}, {"iss": "gi"}, {"iss": "gir.evil"}])
def test_audience_and_issuer_are_exact(claims: dict[str, Any]) -> None:
    assert refusal(forged(claims)) is TokenRefusal.WRONG_AUDIENCE


@pytest.mark.parametrize("claims", [{"models": "m"}, {"models": [1]}, {"jurisdictions": {}}, {"exp": 2e9}])
def test_a_malformed_claim_never_widens(claims: dict[str, Any]) -> None:
    assert refusal(forged(claims)) in {TokenRefusal.MALFORMED, TokenRefusal.LIFETIME_TOO_LONG}


def test_a_lifetime_beyond_the_limit_is_refused_even_when_signed() -> None:
    assert refusal(forged({"exp": NOW // 1000 + MAX_LIFETIME_S + 1})) is TokenRefusal.LIFETIME_TOO_LONG


def test_the_algorithm_is_pinned() -> None:
    body = base64.urlsafe_b64encode(json.dumps({"sub": "acme"}).encode()).rstrip(b"=").decode()
    header = (
        base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "eu-1"}).encode()).rstrip(b"=").decode()
    )
    assert refusal(f"{header}.{body}.") is TokenRefusal.MALFORMED
    hs256 = jwt.encode({"sub": "acme"}, b"x" * 32, algorithm="HS256", headers={"kid": "eu-1"})
    assert refusal(hs256) is TokenRefusal.MALFORMED


def test_a_critical_header_we_do_not_know_is_refused() -> None:
    assert refusal(forged({}, crit=["b64x"])) is TokenRefusal.MALFORMED


@given(st.text(max_size=200))
def test_garbage_is_refused_never_an_exception(text: str) -> None:
    """Any text is either a valid token or a TokenRefusedError."""
    with pytest.raises(TokenRefusedError):
        read(text, KEYS, NOW)


def test_an_oversized_token_is_refused_unread() -> None:
    assert refusal("a" * (MAX_TOKEN_BYTES + 1)) is TokenRefusal.MALFORMED


def test_kid_is_a_lookup_key_only() -> None:
    for kid in ["../../etc/passwd", "eu-1' OR 1=1", 7, None, ["eu-1"]]:
        header = (
            base64.urlsafe_b64encode(json.dumps({"alg": "EdDSA", "kid": kid}).encode()).rstrip(b"=").decode()
        )
        assert refusal(f"{header}.e30.AA") in {TokenRefusal.UNKNOWN_KEY, TokenRefusal.MALFORMED}
