"""Waiting in tests: on conditions, with a deadline, never for a fixed time.

For asyncio code under test; whole processes are waited for by `deploy.stack.process`.
"""

import asyncio
import time
from collections.abc import Callable

POLL_INTERVAL_S = 0.01


async def eventually(predicate: Callable[[], object], timeout_s: float = 10.0, what: str = "") -> None:
    """Return once `predicate()` is true; raise `TimeoutError` naming `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what or predicate}")
        await asyncio.sleep(POLL_INTERVAL_S)
