"""Live pods for tests: quick engines, and a raw client that sees bytes, resets and silence."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson

from services.adapters.system.clock import SystemClock
from services.simulator.assembly import RunningPod, start_pod
from services.simulator.settings import EngineOverrides, PodSettings

MODEL = "llama-3.1-8b"
# A millisecond a step: answers come at once, and no test asserts on how long they took.
QUICK = EngineOverrides(step_base_us=1_000, prefill_token_us=1, decode_sequence_us=10)
# A step takes a minute: what is submitted stays in flight until the test ends it.
STUCK = EngineOverrides(step_base_us=60_000_000)
STREAM_LIMIT = 1024 * 1024


@asynccontextmanager
async def running_pod(
    *, exit_process: Callable[[], None] | None = None, **settings: Any
) -> AsyncIterator[RunningPod]:
    """A pod on a free port, stopped at the end."""
    chosen = PodSettings(**({"port": 0, "engine": QUICK} | settings))
    pod = await start_pod(chosen, SystemClock(), exit_process=exit_process)
    try:
        yield pod
    finally:
        await pod.stop()


def chat(**fields: Any) -> dict[str, Any]:
    """A chat body with a short answer."""
    return {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]} | fields


def raw_request(body: Mapping[str, Any], path: str = "/v1/chat/completions") -> bytes:
    """The bytes of a POST."""
    content = orjson.dumps(body)
    return b"POST %b HTTP/1.1\r\nhost: pod\r\ncontent-length: %d\r\n\r\n%b" % (
        path.encode(),
        len(content),
        content,
    )


@asynccontextmanager
async def connected(pod: RunningPod) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to the pod, closed at the end however the pod ended it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", pod.port, limit=STREAM_LIMIT)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
