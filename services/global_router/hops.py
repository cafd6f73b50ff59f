"""The hop to each cluster's gateway: origin, signing key and the headers that name the place.

Rebuilt when the policy changes, so that an attempt costs lookups and one signature. Addresses come
from policy only. Apart from the life cycle because the gRPC door hands out the same tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from services.adapters.http.upstream import Origin
from services.core.inference import InferenceRequest
from services.core.locality import ClusterId, Locality
from services.core.policy import ClusterSpec, PolicySnapshot
from services.core.units import WallMs
from services.wire.hand_off import HandOff, Signer, derive_key

TOKEN_LIFETIME_MS: Final = 30_000
"""Half the most a gateway accepts: it covers queueing at the gateway and clocks that differ."""
_HTTP_PORT: Final = 80


@dataclass(frozen=True, slots=True)
class Hop:
    """What an attempt at one cluster needs. `place_headers` is a rendered block for the client's answer."""

    cluster: ClusterId
    locality: Locality
    gateway_url: str
    picker_address: str
    origin: Origin
    signer: Signer
    place_headers: bytes


class Hops:
    """The hops of one policy. `secret` is the region's newest (kid, secret) pair."""

    def __init__(self, policy: PolicySnapshot, kid: str, secret: bytes) -> None:
        self._hops: Mapping[str, Hop] = {spec.id: _hop(spec, kid, secret) for spec in policy.clusters}

    def get(self, cluster: str) -> Hop | None:
        """Return the hop to `cluster`; None when the policy no longer names it."""
        return self._hops.get(cluster)


def hand_off_for(
    request: InferenceRequest, hop: Hop, now_ms: WallMs, deadline_ms: WallMs | None = None
) -> str:
    """Return the token with which `hop`'s gateway serves `request`, and only that gateway."""
    return signed_for(request, hop, now_ms, deadline_ms).decode("ascii")


def signed_for(
    request: InferenceRequest, hop: Hop, now_ms: WallMs, deadline_ms: WallMs | None = None
) -> bytes:
    """Return the same token as the bytes that a header carries."""
    return hop.signer.sign(
        HandOff(
            hop.cluster,
            request.request_id,
            request.tenant.id,
            request.model,
            request.residency,
            now_ms + TOKEN_LIFETIME_MS,  # type: ignore[arg-type]  # `WallMs(…)` would be a call that does nothing
            deadline_ms,
            request.priority,
            request.session,
        )
    )


def origin_of(url: str) -> Origin:
    """Return host and port of an http origin; raises `ValueError` naming the rule."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"gateway url {url!r}: must be an http:// origin with a host")
    return Origin(parts.hostname, parts.port or _HTTP_PORT)


def _hop(spec: ClusterSpec, kid: str, secret: bytes) -> Hop:
    place = f"x-gir-cluster: {spec.id}\r\nx-gir-region: {spec.locality.region}\r\n"
    place += f"x-gir-jurisdiction: {spec.locality.jurisdiction}\r\n"
    return Hop(
        cluster=spec.id,
        locality=spec.locality,
        gateway_url=spec.gateway_url,
        picker_address=spec.picker_address,
        origin=origin_of(spec.gateway_url),
        signer=Signer(derive_key(kid, secret, spec.id)),
        place_headers=place.encode("ascii"),
    )
