"""The second witness: asks a cluster's readiness URL over a connection kept warm.

httpx, because a probe is a control call a few times a second at most. A probe proves that the data
listener answers and that its picker has a ready endpoint; it carries no token and no content.
"""

import asyncio
import ssl

import httpx

from services.adapters.ports import Clock, ProbeResult
from services.core.locality import ClusterId
from services.core.units import NS_PER_S, Duration, Instant

ANSWER_MAX_BYTES = 4096
"""`/readyz` answers a line; more is not a readiness answer, and is not read."""
KEEP_WARM_S = 30.0
"""Longer than the 5 s between probes of a healthy cluster, so that a probe measures one round trip."""


class HttpProber:
    """`Prober` port over HTTP/1.1. One probe per cluster at a time is the caller's promise."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Proxies and .netrc of the environment must not decide what a witness sees.
        limits = httpx.Limits(keepalive_expiry=KEEP_WARM_S)
        # Probe URLs are http:// by policy; reading the CA bundle would hold the event loop for 50 ms.
        no_authorities = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client = httpx.AsyncClient(
            limits=limits, trust_env=False, follow_redirects=False, verify=no_authorities
        )

    async def probe(self, cluster: ClusterId, url: str, timeout: Duration) -> ProbeResult:
        """Return whether `url` answered 200 within `timeout`; never raises for the cluster's sake."""
        started = self._clock.now()
        try:
            # One limit over connect, write and every read: httpx's own are per step and would add up.
            async with (
                asyncio.timeout(timeout / NS_PER_S),
                self._client.stream("GET", url, timeout=None) as answer,
            ):
                size = 0
                async for part in answer.aiter_raw():
                    size += len(part)
                    if size > ANSWER_MAX_BYTES:
                        return self._result(cluster, started, ok=False, detail="answer too large")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            return self._result(cluster, started, ok=False, detail=type(error).__name__)
        status = answer.status_code
        return self._result(cluster, started, ok=status == httpx.codes.OK, detail=f"status {status}")

    async def close(self) -> None:
        """Close the warm connections."""
        await self._client.aclose()

    def _result(self, cluster: ClusterId, started: Instant, *, ok: bool, detail: str) -> ProbeResult:
        finished = self._clock.now()
        return ProbeResult(cluster, ok, finished, Duration(finished - started), detail)
