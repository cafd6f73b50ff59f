"""How saturated a pool is, from its pods' readings and this picker's own requests.

Missing metrics never saturate. The field counts a pod without current metrics as 1.0; then one server that
answers every request but takes 3 s over /metrics makes its pool "saturated" and turns all its traffic into 429
(field case F016). Here such a pod counts by what this picker has in flight on it against its declared capacity,
or, undeclared, not at all; a pool of which nothing is known is open. Values in, a number out; who is admitted at
which number is not decided here.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.core.pods.reading import KV_FULL, QUEUE_FULL
from services.core.values import value

FIRST_BATCH = 16
"""Requests that an idle engine of unknown size takes into its batch at once without a queue."""


@value
class PodLoad:
    """One pod as a detector sees it; `None` is unknown. `fresh`: the reading is current.

    `in_flight` and `in_flight_tokens` are this picker's own, `sent_since` its own requests sent less those ended
    since the reading.
    """

    id: str
    fresh: bool
    waiting: int | None = None
    running: int | None = None
    kv_use: float | None = None
    in_flight: int = 0
    in_flight_tokens: int = 0
    sent_since: int = 0
    declared_requests: int | None = None


@dataclass(frozen=True, slots=True)
class UtilizationDetector:
    """Per pod max(waiting / queue_depth, kv / kv_use), mean over the pool (the field's utilization-detector).

    Requests sent since a reading wait in no reading yet. They count as waiting as far as they exceed the room in
    the batch: what is declared beyond `running`; undeclared, as many again as run now; none once somebody waits.
    Without this, one low reading would let a whole queue through before the next.
    """

    queue_depth: float = QUEUE_FULL
    kv_use: float = KV_FULL

    def __post_init__(self) -> None:
        """Refuse thresholds that say saturated of an idle pod."""
        if self.queue_depth <= 0 or not 0 < self.kv_use <= 1:
            raise ValueError(
                "utilization-detector: needs queueDepthThreshold > 0, 0 < kvCacheUtilThreshold <= 1"
            )

    def of_pod(self, pod: PodLoad) -> float | None:
        """Return one pod's saturation, not clamped; None when nothing says anything."""
        if not pod.fresh or (pod.waiting is None and pod.kv_use is None):
            return None if pod.declared_requests is None else pod.in_flight / pod.declared_requests
        by_kv = 0.0 if pod.kv_use is None else pod.kv_use / self.kv_use
        if pod.waiting is None:
            return by_kv
        waiting = pod.waiting + max(0, pod.sent_since - _room(pod))
        return max(waiting / self.queue_depth, by_kv)

    def steps(self, pods: Iterable[PodLoad]) -> tuple[float, float]:
        """Return the most that one more request, and each token of it, can add to one pod."""
        by_capacity = (1 / pod.declared_requests for pod in pods if pod.declared_requests is not None)
        return max(1 / self.queue_depth, max(by_capacity, default=0.0)), 0.0


def _room(pod: PodLoad) -> int:
    if pod.waiting or pod.running is None:
        return 0
    if pod.declared_requests is not None:
        return max(0, pod.declared_requests - pod.running)
    return max(FIRST_BATCH, pod.running)


class ConcurrencyMode(enum.Enum):
    """What a concurrency detector counts; HYBRID takes the larger of the two per pod."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class ConcurrencyDetector:
    """Per pod own in-flight against a maximum, mean over the pool; needs no metrics at all."""

    mode: ConcurrencyMode = ConcurrencyMode.REQUESTS
    max_concurrency: int = 100
    max_token_concurrency: int = 1_000_000

    def __post_init__(self) -> None:
        """Refuse maxima that say saturated of an idle pod."""
        if self.max_concurrency < 1 or self.max_token_concurrency < 1:
            raise ValueError(
                "concurrency-detector: maxConcurrency and maxTokenConcurrency must be at least 1"
            )

    def of_pod(self, pod: PodLoad) -> float | None:
        """Return one pod's saturation, not clamped."""
        return self._share(pod.in_flight, pod.in_flight_tokens)

    def steps(self, _pods: Iterable[PodLoad]) -> tuple[float, float]:
        """Return the most that one more request, and each token of it, can add to one pod."""
        return self._share(1, 0), self._share(0, 1)

    def _share(self, requests: int, tokens: int) -> float:
        by_requests, by_tokens = requests / self.max_concurrency, tokens / self.max_token_concurrency
        if self.mode is ConcurrencyMode.REQUESTS:
            return by_requests
        return by_tokens if self.mode is ConcurrencyMode.TOKENS else max(by_requests, by_tokens)


SaturationDetector = UtilizationDetector | ConcurrencyDetector


def known_shares(detector: SaturationDetector, pods: Iterable[PodLoad]) -> list[float]:
    """Return the saturation of each pod of which something is known."""
    return [share for pod in pods if (share := detector.of_pod(pod)) is not None]


def pool_saturation(shares: Sequence[float]) -> float:
    """Return the mean of what is known of a pool's pods; 0 when that is nothing.

    The caller tells an empty pool apart: it is not saturated, it has nobody to serve.
    """
    return sum(shares) / len(shares) if shares else 0.0
