"""A model server's own tokenizer over HTTP: the only one that knows its chat template.

One question at a time per call, bounded in time and bytes; every failure is None, because the caller has an
answer without it. What is asked and answered is `wire/openai/tokenize`.
"""

import asyncio

import httpx

from services.core.units import NS_PER_S, Duration
from services.wire.openai.tokenize import TokenizeError, read_tokens

MAX_CONNECTIONS = 64
LONGEST_S = 5.0
"""Beyond every budget; it ends connections to servers that take a question and stay silent."""
MAX_ANSWER_BYTES = 8 << 20
"""A million ids in decimal."""


class HttpTokenizer:
    """`Tokenizer` port: `POST /tokenize` as vLLM has it."""

    def __init__(self) -> None:
        # trust_env: a proxy of the environment has no business between a picker and its pods.
        self._client = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS), timeout=LONGEST_S, trust_env=False
        )

    async def tokenize(self, address: str, body: bytes, timeout: Duration) -> bytes | None:
        """Return the ids, None when there is no good answer in time."""
        try:
            async with asyncio.timeout(timeout / NS_PER_S):
                return await self._ask(f"http://{address}/tokenize", body)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, TokenizeError):
            return None

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def _ask(self, url: str, body: bytes) -> bytes | None:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        async with self._client.stream("POST", url, content=body, headers=headers) as answer:
            if answer.status_code != httpx.codes.OK:
                return None
            read = bytearray()
            async for part in answer.aiter_raw():
                read += part
                if len(read) > MAX_ANSWER_BYTES:
                    return None
        return read_tokens(bytes(read))
