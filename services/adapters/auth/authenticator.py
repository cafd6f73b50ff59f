"""From an Authorization header to a `Tenant`, cached so that a repeat costs a dictionary lookup.

Grants are the intersection of the tenant record and the token. The cache is keyed by a digest
(no token is kept), bounded, and dropped whole when the policy changes, so that a changed tenant
record acts at once.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from services.adapters.auth.tokens import TokenClaims, TokenRefusal, TokenRefusedError, read
from services.core.inference import Grants, Tenant
from services.core.policy import PolicySnapshot, TenantPolicy
from services.core.residency import ANYWHERE, narrow
from services.core.units import WallMs

CACHE_MAX_ENTRIES = 10_000
"""About 3 MB of verified tokens; past it the oldest is forgotten and costs one verification again."""
_SCHEME = b"bearer "


@dataclass(frozen=True, slots=True)
class _Verified:
    tenant: Tenant
    expires_at_ms: WallMs


class Authenticator:
    """Verifies bearer tokens against the keys and tenants of the current policy."""

    def __init__(self, policy: PolicySnapshot | None = None) -> None:
        self._keys: Mapping[str, Ed25519PublicKey] = {}
        self._tenants: Mapping[str, TenantPolicy] = {}
        self._cache: dict[bytes, _Verified] = {}
        if policy is not None:
            self.use(policy)

    def use(self, policy: PolicySnapshot) -> None:
        """Judge by `policy` from now on; every cached verdict is forgotten."""
        self._keys = {
            key.kid: Ed25519PublicKey.from_public_bytes(key.public_key) for key in policy.token_keys
        }
        self._tenants = {tenant.id: tenant for tenant in policy.tenants}
        self._cache = {}

    def authenticate(self, authorization: bytes | None, now_ms: WallMs) -> Tenant:
        """Return the caller behind an `Authorization` header value, or raise `TokenRefusedError`."""
        if authorization is None:
            raise TokenRefusedError(TokenRefusal.MISSING)
        digest = hashlib.blake2b(authorization, digest_size=16).digest()
        known = self._cache.get(digest)
        if known is not None and known.expires_at_ms > now_ms:
            return known.tenant
        return self._verify(authorization, digest, now_ms)

    def _verify(self, authorization: bytes, digest: bytes, now_ms: WallMs) -> Tenant:
        if authorization[:7].lower() != _SCHEME:
            raise TokenRefusedError(TokenRefusal.MISSING)
        try:
            text = authorization[7:].strip().decode("ascii")
        except UnicodeDecodeError:
            raise TokenRefusedError(TokenRefusal.MALFORMED) from None
        claims = read(text, self._keys, now_ms)
        record = self._tenants.get(claims.tenant)
        if record is None:
            raise TokenRefusedError(TokenRefusal.UNKNOWN_TENANT)
        tenant = Tenant(record.id, grants_of(record, claims), claims.token_id)
        if len(self._cache) >= CACHE_MAX_ENTRIES:
            del self._cache[next(iter(self._cache))]
        self._cache[digest] = _Verified(tenant, claims.expires_at_ms)
        return tenant


def grants_of(record: TenantPolicy, claims: TokenClaims) -> Grants:
    """Return what both the tenant record and the token allow."""
    models = record.grants.models
    if claims.models is not None:
        models = claims.models if models is None else models & claims.models
    rule = narrow(record.grants.residency, claims.residency)
    # Whoever judges a request asks first whether its rule is this very one, which costs nothing.
    rule = ANYWHERE if rule.unrestricted else rule
    return Grants(models, rule, record.grants.priority_ceiling)
