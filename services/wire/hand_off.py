"""Hand-off tokens: what tier 2 signs so that a cluster gateway serves one request.

`v1.<kid>.<payload>.<mac>`, HMAC-SHA256 over everything before the last dot, carried in
`x-gir-hand-off`, never in `Authorization`: the client's own token stops at tier 2. Keys and
time come in as arguments; files and settings are not read here. A picker holds only the keys
derived for its own cluster, so a stolen key opens one cluster only.
"""

import enum
import hashlib
import hmac
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from services.core.inference import ModelName, RequestId, TenantId
from services.core.locality import ClusterId, Jurisdiction, Region
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.units import WallMs
from services.core.values import value

HEADER = "x-gir-hand-off"
MAX_LIFETIME_MS = 60_000
"""A captured token is worth one minute; longer requests need no longer token, as it is checked once."""
CLOCK_LEEWAY_MS = 5_000
"""Hosts under NTP differ by far less; a larger leeway would only lengthen the life of a stolen token."""
MAX_TOKEN_BYTES = 4096
_VERSION = "v1"
_BLOCK_BYTES: Final = 64
"""SHA-256's block, to which HMAC pads its key (RFC 2104)."""
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")


class HandOffRefusal(enum.Enum):
    """Why a hand-off token is refused (a closed set: it labels a metric)."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    WRONG_AUDIENCE = "wrong_audience"
    EXPIRED = "expired"
    LIFETIME_TOO_LONG = "lifetime_too_long"


class HandOffRefusedError(Exception):
    """The token does not entitle its bearer to be served here; `refusal` says why."""

    def __init__(self, refusal: HandOffRefusal) -> None:
        super().__init__(f"hand-off token refused: {refusal.value}")
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class HandOffKey:
    """A signing or verifying key of one (router region, cluster). `kid` matches [A-Za-z0-9_-]+."""

    kid: str
    secret: bytes


@value
class HandOff:
    """What tier 2 decided about one attempt. `deadline_ms` is the client's, None when it gave none.

    `priority` is within the tenant's ceiling; `session` is the client's word for a conversation, None for none.
    """

    audience: ClusterId
    request_id: RequestId
    tenant: TenantId
    model: ModelName
    allowed: ResidencyRule
    expires_at_ms: WallMs
    deadline_ms: WallMs | None = None
    priority: int = 0
    session: str | None = None


def derive_key(kid: str, region_secret: bytes, cluster: ClusterId) -> HandOffKey:
    """Return the key a router of a region shares with `cluster`: HMAC(region secret, cluster id)."""
    return HandOffKey(kid, hmac.digest(region_secret, cluster.encode(), "sha256"))


class Signer:
    """Signs with one key.

    HMAC's two keyed states (RFC 2104) are made once and copied for each token: 0.9 us instead of the
    2.2 us of `hmac.digest`, which prepares the key anew. The inner one has read the token's prefix too.
    """

    __slots__ = ("_inner", "_outer", "_prefix")

    def __init__(self, key: HandOffKey) -> None:
        padded = key.secret if len(key.secret) <= _BLOCK_BYTES else hashlib.sha256(key.secret).digest()
        padded = padded.ljust(_BLOCK_BYTES, b"\0")
        self._prefix = f"{_VERSION}.{key.kid}.".encode("ascii")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded) + self._prefix)
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def sign(self, hand_off: HandOff) -> bytes:
        """Return the token for `hand_off`, ASCII."""
        allowed = hand_off.allowed
        fields = (
            hand_off.audience,
            hand_off.request_id,
            hand_off.tenant,
            hand_off.model,
            None if allowed is ANYWHERE else _residency_fields(allowed),
            hand_off.deadline_ms,
            hand_off.expires_at_ms,
            hand_off.priority,
            hand_off.session,
        )
        # `base64.urlsafe_b64encode` takes twice as long for the same.
        payload = b2a_base64(orjson.dumps(fields), newline=False).translate(_TO_URL)
        inner = self._inner.copy()
        inner.update(payload)
        outer = self._outer.copy()
        outer.update(inner.digest())
        mac = b2a_base64(outer.digest(), newline=False).translate(_TO_URL)
        return b"%b%b.%b" % (self._prefix, payload, mac)


def sign(hand_off: HandOff, key: HandOffKey) -> str:
    """Return the token text for `hand_off`; who signs often keeps a `Signer`."""
    return Signer(key).sign(hand_off).decode("ascii")


def verify(token: str | None, keys: Mapping[str, bytes], audience: ClusterId, now_ms: WallMs) -> HandOff:
    """Return what the token says, or raise `HandOffRefusedError`.

    `keys` maps kid to secret; two kids overlap while a key rotates. The signature is checked before
    anything inside the payload is believed.
    """
    if not token:
        raise HandOffRefusedError(HandOffRefusal.MISSING)
    signed, _, mac_text = token.rpartition(".")
    parts = signed.split(".")
    if len(token) > MAX_TOKEN_BYTES or len(parts) != 3 or parts[0] != _VERSION:
        raise HandOffRefusedError(HandOffRefusal.MALFORMED)
    secret = keys.get(parts[1])
    if secret is None:
        raise HandOffRefusedError(HandOffRefusal.UNKNOWN_KEY)
    try:
        expected = hmac.digest(secret, signed.encode("ascii"), "sha256")
        if not hmac.compare_digest(_decode_url(mac_text), expected):
            raise HandOffRefusedError(HandOffRefusal.BAD_SIGNATURE)
        hand_off = _decode(_decode_url(parts[2]))
    except ValueError as error:
        raise HandOffRefusedError(HandOffRefusal.MALFORMED) from error
    if hand_off.audience != audience:
        raise HandOffRefusedError(HandOffRefusal.WRONG_AUDIENCE)
    if hand_off.expires_at_ms + CLOCK_LEEWAY_MS < now_ms:
        raise HandOffRefusedError(HandOffRefusal.EXPIRED)
    if hand_off.expires_at_ms > now_ms + MAX_LIFETIME_MS + CLOCK_LEEWAY_MS:
        raise HandOffRefusedError(HandOffRefusal.LIFETIME_TOO_LONG)
    return hand_off


def _decode_url(text: str) -> bytes:
    return a2b_base64(text.encode("ascii").translate(_FROM_URL))


def _residency_fields(rule: ResidencyRule) -> list[list[str] | None] | None:
    if rule.unrestricted:
        return None
    return [
        None if rule.allow_jurisdictions is None else sorted(rule.allow_jurisdictions),
        None if rule.allow_regions is None else sorted(rule.allow_regions),
        sorted(rule.deny_jurisdictions),
        sorted(rule.deny_regions),
    ]


def _residency(fields: Any) -> ResidencyRule:
    allow_jurisdictions, allow_regions, deny_jurisdictions, deny_regions = fields
    return ResidencyRule(
        None if allow_jurisdictions is None else frozenset(map(Jurisdiction, allow_jurisdictions)),
        None if allow_regions is None else frozenset(map(Region, allow_regions)),
        frozenset(map(Jurisdiction, deny_jurisdictions)),
        frozenset(map(Region, deny_regions)),
    )


def _decode(payload: bytes) -> HandOff:
    fields = orjson.loads(payload)
    audience, request_id, tenant, model, residency, deadline_ms, expires_at_ms, priority, session = fields
    # The signature vouches for the names; calls of `ClusterId(…)` and its like would do nothing.
    return HandOff(
        audience,
        request_id,
        tenant,
        model,
        ANYWHERE if residency is None else _residency(residency),
        WallMs(int(expires_at_ms)),
        None if deadline_ms is None else WallMs(int(deadline_ms)),
        int(priority),
        session,
    )
