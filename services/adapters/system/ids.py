"""Identity and randomness from the operating system.

Request ids are UUIDv7 (RFC 9562 section 5.7): 48 bits of Unix milliseconds, then random
bits, so that ids sort by time in logs and stay unguessable.
"""

import os
import time

from services.core.inference import RequestId

_POOL_BYTES = 4096
"""One system call yields randomness for 409 ids; a call per id would cost more than the id."""
_RANDOM_BYTES = 10


class SystemIds:
    """`Ids` port over the kernel's random source."""

    __slots__ = ("_offset", "_pool")

    def __init__(self) -> None:
        self._pool = b""
        self._offset = _POOL_BYTES

    def request_id(self) -> RequestId:
        """Return a new UUIDv7 as 36 characters of text."""
        offset = self._offset
        if offset + _RANDOM_BYTES > len(self._pool):
            self._pool = os.urandom(_POOL_BYTES)
            offset = 0
        self._offset = offset + _RANDOM_BYTES
        tail = self._pool[offset : offset + _RANDOM_BYTES].hex()
        stamp = f"{time.time_ns() // 1_000_000:012x}"
        variant = "89ab"[int(tail[3], 16) & 3]
        return RequestId(f"{stamp[:8]}-{stamp[8:]}-7{tail[:3]}-{variant}{tail[4:7]}-{tail[7:19]}")

    def token(self, size_bytes: int) -> bytes:
        """Return `size_bytes` unpredictable bytes."""
        return os.urandom(size_bytes)
