"""The retry budget of one worker: a bucket that first attempts fill and retries empty.

It bounds amplification: in any window, attempts <= (1 + earned) x requests + bucket
(invariant 8). No clock: what refills it is traffic. Apart from the attempts machine
because all requests of a worker share one bucket.
"""

from services.core.policy import FailoverPolicy

UNIT = 1000
"""The bucket counts thousandths of a retry, so that five first attempts earn exactly one."""


class RetryBudget:
    """A bucket of `retry_bucket` retries, full at the start; `denied` counts refusals."""

    __slots__ = ("_capacity", "_earned", "_level", "denied")

    def __init__(self, policy: FailoverPolicy) -> None:
        self._capacity = round(policy.retry_bucket * UNIT)
        self._earned = round(policy.retry_earned_per_request * UNIT)
        self._level = self._capacity
        self.denied = 0

    @property
    def available(self) -> float:
        """Retries that could be taken now."""
        return self._level / UNIT

    def earn(self) -> None:
        """A first attempt was sent."""
        self._level = min(self._capacity, self._level + self._earned)

    def take(self) -> bool:
        """Take one retry; False when the bucket does not hold a whole one."""
        if self._level < UNIT:
            self.denied += 1
            return False
        self._level -= UNIT
        return True
