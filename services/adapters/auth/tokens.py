"""Bearer tokens of people and programs: minted per region with Ed25519, verified anywhere.

JWT (RFC 7519) with the pitfalls of RFC 8725 closed: the algorithm is pinned (EdDSA, RFC 8037), `kid`
is a lookup key only, issuer and audience are exact, `exp`, `iat`, `jti` and `sub` are required, size is
bounded. Only public keys travel, inside the policy snapshot. PyJWT does the cryptography.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from services.core.inference import ModelName, TenantId
from services.core.locality import Jurisdiction, Region, check_jurisdiction
from services.core.residency import ResidencyRule
from services.core.units import WallMs

AUDIENCE = "gir"
ISSUER = "gir"
ALGORITHM = "EdDSA"
MAX_TOKEN_BYTES = 8192
MAX_LIFETIME_S = 12 * 3600
"""A token cannot outlive a working day; revocation only has to cover that long."""
LEEWAY_S = 30


class TokenRefusal(enum.Enum):
    """Why a bearer token is refused (closed: it labels a metric)."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    WRONG_AUDIENCE = "wrong_audience"
    LIFETIME_TOO_LONG = "lifetime_too_long"
    UNKNOWN_TENANT = "unknown_tenant"


class TokenRefusedError(Exception):
    """The token identifies nobody here; `refusal` says why and never carries the token."""

    def __init__(self, refusal: TokenRefusal) -> None:
        super().__init__(f"token refused: {refusal.value}")
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """What a token says. `models` None: every model the tenant may use; `residency` may only narrow."""

    tenant: TenantId
    token_id: str
    expires_at_ms: WallMs
    models: frozenset[ModelName] | None
    residency: ResidencyRule


@dataclass(frozen=True, slots=True)
class TokenScope:
    """What a minted token is limited to."""

    tenant: TenantId
    models: tuple[ModelName, ...] | None = None
    jurisdictions: tuple[Jurisdiction, ...] | None = None
    regions: tuple[Region, ...] | None = None


def mint(
    scope: TokenScope, kid: str, key: Ed25519PrivateKey, now_ms: WallMs, lifetime_s: int, token_id: str
) -> str:
    """Return a signed token for `scope`; raises `ValueError` for a lifetime outside 1 s..12 h."""
    if not 1 <= lifetime_s <= MAX_LIFETIME_S:
        raise ValueError(f"lifetime {lifetime_s} s: must lie in 1..{MAX_LIFETIME_S} seconds (12 hours)")
    issued = now_ms // 1000
    claims: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": scope.tenant,
        "jti": token_id,
        "iat": issued,
        "exp": issued + lifetime_s,
    }
    if scope.models is not None:
        claims["models"] = list(scope.models)
    if scope.jurisdictions is not None:
        claims["jurisdictions"] = [check_jurisdiction(code) for code in scope.jurisdictions]
    if scope.regions is not None:
        claims["regions"] = list(scope.regions)
    return jwt.encode(claims, key, algorithm=ALGORITHM, headers={"kid": kid})


def read(token: str, keys: Mapping[str, Ed25519PublicKey], now_ms: WallMs) -> TokenClaims:
    """Return the claims of a valid token, or raise `TokenRefusedError`.

    Times are judged against `now_ms`, so that the caller's clock is the only one consulted.
    """
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenRefusedError(TokenRefusal.MALFORMED)
    try:
        kid = jwt.get_unverified_header(token).get("kid")
        key = keys.get(kid) if isinstance(kid, str) else None
        if key is None:
            raise TokenRefusedError(TokenRefusal.UNKNOWN_KEY)
        claims = jwt.decode(
            token,
            key,
            algorithms=[ALGORITHM],
            audience=AUDIENCE,
            issuer=ISSUER,
            options={
                "require": ["exp", "iat", "jti", "sub", "aud", "iss"],
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
            },
        )
    except (jwt.InvalidAudienceError, jwt.InvalidIssuerError):
        raise TokenRefusedError(TokenRefusal.WRONG_AUDIENCE) from None
    except jwt.InvalidSignatureError:
        raise TokenRefusedError(TokenRefusal.BAD_SIGNATURE) from None
    except (jwt.InvalidTokenError, UnsupportedAlgorithm, ValueError):
        raise TokenRefusedError(TokenRefusal.MALFORMED) from None
    return _check_times(claims, now_ms)


def _check_times(claims: Mapping[str, Any], now_ms: WallMs) -> TokenClaims:
    issued, expires = claims["iat"], claims["exp"]
    if type(issued) is not int or type(expires) is not int:
        raise TokenRefusedError(TokenRefusal.MALFORMED)
    now_s = now_ms // 1000
    if expires + LEEWAY_S <= now_s:
        raise TokenRefusedError(TokenRefusal.EXPIRED)
    not_before = claims.get("nbf", issued)
    if type(not_before) is not int:
        raise TokenRefusedError(TokenRefusal.MALFORMED)
    if max(issued, not_before) - LEEWAY_S > now_s:
        raise TokenRefusedError(TokenRefusal.NOT_YET_VALID)
    if expires - issued > MAX_LIFETIME_S:
        raise TokenRefusedError(TokenRefusal.LIFETIME_TOO_LONG)
    models = _names(claims, "models")
    jurisdictions, regions = _names(claims, "jurisdictions"), _names(claims, "regions")
    return TokenClaims(
        tenant=TenantId(claims["sub"]),
        token_id=claims["jti"],
        expires_at_ms=WallMs((expires + LEEWAY_S) * 1000),
        models=None if models is None else frozenset(map(ModelName, models)),
        residency=ResidencyRule(
            None if jurisdictions is None else frozenset(map(Jurisdiction, jurisdictions)),
            None if regions is None else frozenset(map(Region, regions)),
        ),
    )


def _names(claims: Mapping[str, Any], claim: str) -> list[str] | None:
    """Return a list-of-strings claim; absent is None (no limit), a malformed one refuses the token."""
    if claim not in claims:
        return None
    value = claims[claim]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TokenRefusedError(TokenRefusal.MALFORMED)
    return value
