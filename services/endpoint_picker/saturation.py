"""Gauges: the saturation of each pool, measured from the pod table when something may have changed.

Measuring looks at every pod; admitting must not. So between measurements a gauge answers with an upper bound: what
was measured, and the most that the requests admitted since can have added. Apart from flow control, which asks and
does not know how it is measured.
"""

from dataclasses import dataclass

from services.core.admission.detectors import PodLoad, SaturationDetector, known_shares, pool_saturation
from services.core.fleet import PodState
from services.core.pods.table import Pod, PodTable
from services.core.units import Instant, ms

REMEASURE_AFTER = ms(20)
"""New readings alone are measured at most fifty times a second, as the scheduler lays them out."""

_NEVER = Instant(-(1 << 62))
_FRESH = frozenset({PodState.READY, PodState.DEGRADED})


@dataclass(slots=True)
class PoolGauge:
    """The saturation of one pool; None while no pod of it may be picked."""

    table: PodTable
    pool: str
    detector: SaturationDetector
    stale_endpoints: int = 0
    _measured: float | None = None
    _upper: float | None = None
    _per_request: float = 0.0
    _per_token: float = 0.0
    _version: int = -1
    _readings: int = -1
    _at: Instant = _NEVER
    _touched: bool = True

    def bound(self, now: Instant) -> float | None:
        """Return a number that the saturation does not exceed, but for readings of the last 20 ms."""
        if self._version != self.table.version or (
            self._readings != self.table.readings and now - self._at >= REMEASURE_AFTER
        ):
            self._measure(now)
        return self._upper

    def exact(self, now: Instant) -> float | None:
        """Return the saturation as of now."""
        if self._touched or self._version != self.table.version or self._readings != self.table.readings:
            self._measure(now)
        return self._measured

    def admitted(self, tokens: int) -> None:
        """A request was sent to a pod of this pool."""
        self._touched = True
        if self._upper is not None:
            self._upper += max(self._per_request, tokens * self._per_token)

    def ended(self) -> None:
        """A request of this pool has ended."""
        self._touched = True

    def _measure(self, now: Instant) -> None:
        table = self.table
        loads = [load_of(pod) for pod in table.serving(self.pool)[1]]
        shares = known_shares(self.detector, loads)
        self._measured = self._upper = pool_saturation(shares) if loads else None
        self.stale_endpoints = sum(not load.fresh for load in loads)
        # A request goes to one pod, and the pool is the mean of those of which something is known.
        per_request, per_token = self.detector.steps(loads)
        count = max(1, len(shares))
        self._per_request, self._per_token = per_request / count, per_token / count
        self._version, self._readings, self._at, self._touched = table.version, table.readings, now, False


def load_of(pod: Pod) -> PodLoad:
    """Return a pod's row as a detector sees it."""
    reading = pod.reading
    if reading is None:
        return PodLoad(
            pod.id,
            fresh=False,
            in_flight=pod.in_flight,
            in_flight_tokens=pod.in_flight_tokens,
            sent_since=pod.since_reading,
            declared_requests=pod.declared_requests,
        )
    # By position: every measurement makes one of these per pod, and names cost half as much again.
    return PodLoad(
        pod.id,
        pod.state in _FRESH,
        reading.waiting,
        reading.running,
        reading.kv_use,
        pod.in_flight,
        pod.in_flight_tokens,
        pod.since_reading,
        pod.declared_requests,
    )
