"""Identity and randomness from the operating system.

Request ids are UUIDv7 (RFC 9562 section 5.7): 48 bits of Unix milliseconds, then random
bits, so that ids sort by time in logs and stay unguessable.
"""

import os
import time

from services.core.inference import RequestId

_POOL_BYTES = 4096
"""One system call yields randomness for 409 ids; a call per id would cost more than the id."""
_RANDOM_DIGITS = 20
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The first digit of the clock_seq_hi octet: its two upper bits are fixed, the lower two are random."""


class SystemIds:
    """`Ids` port over the kernel's random source."""

    __slots__ = ("_digits", "_offset", "_stamp", "_stamped_ms")

    def __init__(self) -> None:
        self._digits = ""
        self._offset = 0
        self._stamp = ""
        self._stamped_ms = -1

    def request_id(self) -> RequestId:
        """Return a new UUIDv7 as 36 characters of text."""
        start = self._offset
        end = start + _RANDOM_DIGITS
        digits = self._digits
        if end > len(digits):
            digits = self._digits = os.urandom(_POOL_BYTES).hex()
            start, end = 0, _RANDOM_DIGITS
        self._offset = end
        now_ms = time.time_ns() // 1_000_000
        if now_ms != self._stamped_ms:
            stamp = f"{now_ms:012x}"
            self._stamp = f"{stamp[:8]}-{stamp[8:]}-7"
            self._stamped_ms = now_ms
        tail = digits[start:end]
        # `RequestId(…)` would be a call that does nothing.
        return f"{self._stamp}{tail[:3]}-{_VARIANTS[tail[3]]}{tail[4:7]}-{tail[7:19]}"  # type: ignore[return-value]

    def token(self, size_bytes: int) -> bytes:
        """Return `size_bytes` unpredictable bytes."""
        return os.urandom(size_bytes)
