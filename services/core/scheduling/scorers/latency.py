"""Predicted time to first token, and the scorer that goes by it.

The prediction starts from what the endpoint measured over the last minute: it grows with the requests that have
come since, and shrinks by the prefill that cached blocks save. Nothing is learnt here and nothing is kept. Time
per output token is not predicted: engines publish no per-request figure that a pick could change.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add, mul
from typing import cast

from services.core.scheduling.endpoints import Arrival, Endpoints
from services.core.scheduling.scorers.affinity import Prefix
from services.core.scheduling.scorers.load import KvUse, Queue
from services.core.scheduling.scorers.scorer import (
    Column,
    Live,
    Scores,
    dense,
    fewest,
    fewest_known,
    scores_or_mean,
)

PEAK_PREFILL_TOKENS_PER_S = 15_928.0
"""The field's default (llm-d router, prefix-cache-affinity-filter): one H100 on a model of 8 billion weights."""
MS_PER_S = 1000.0
LEAST_POSITIVE = 0.01
"""An endpoint that meets the target is never scored like one that misses it."""

Prediction = Callable[[Arrival], list[float | None]]


class Headroom(enum.Enum):
    """Which of the endpoints that meet the target is best: LEAST packs them, MOST spares them."""

    LEAST = "least"
    MOST = "most"


def predict_ttft_ms(endpoints: Endpoints, peak_tokens_per_s: float = PEAK_PREFILL_TOKENS_PER_S) -> Prediction:
    """Return a function from an arrival to the predicted milliseconds per endpoint; None where none was measured.

    It may fall below 0, for what saves more than was ever waited: such endpoints still compare.
    """
    measured = [load.ttft_ms for load in endpoints.loads]
    rises = [
        0.0 if ttft is None else ttft / (count + 1.0)
        for ttft, count in zip(measured, endpoints.outstanding, strict=True)
    ]
    known = [ttft for ttft in measured if ttft is not None]
    index = endpoints.index.get

    def predict(arrival: Arrival) -> list[float | None]:
        times: list[float | None]
        if len(known) == len(measured):
            times = list(map(add, known, map(mul, rises, arrival.own)))
        else:
            times = [
                None if ttft is None else ttft + own * rise
                for ttft, own, rise in zip(measured, arrival.own, rises, strict=True)
            ]
        per_block = arrival.signals.block_tokens * MS_PER_S / peak_tokens_per_s
        for name, blocks in arrival.signals.matched.items():
            place = index(name)
            time = None if place is None else times[place]
            if place is not None and time is not None:
                times[place] = time - blocks * per_block
        return times

    return predict


@dataclass(frozen=True, slots=True)
class Latency:
    """The predicted time to first token: least best, or by headroom when the request says what it wants.

    With a target, endpoints that miss it score 0. Where no endpoint has been measured, the mean of KV use,
    queue and prefix stands in.
    """

    headroom: Headroom = Headroom.LEAST
    peak_tokens_per_s: float = PEAK_PREFILL_TOKENS_PER_S
    name: str = "latency"

    def __post_init__(self) -> None:
        if self.peak_tokens_per_s <= 0:
            raise ValueError("peak_tokens_per_s: must be above 0")

    def over(self, endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        if all(load.ttft_ms is None for load in endpoints.loads):
            return _composite(endpoints)
        predict = predict_ttft_ms(endpoints, self.peak_tokens_per_s)
        most = self.headroom is Headroom.MOST

        complete = all(load.ttft_ms is not None for load in endpoints.loads)

        def live(arrival: Arrival) -> Scores:
            times = predict(arrival)
            target = arrival.signals.ttft_slo_ms
            if target is not None:
                return by_headroom(times, target, most=most)
            return fewest_known(cast("list[float]", times)) if complete else fewest(times)

        return live


def by_headroom(times: Sequence[float | None], target: float, *, most: bool) -> list[float]:
    """Return the scores of predicted times against a target; when all miss it, the least miss is best."""
    spare = [None if time is None else target - time for time in times]
    met = [room for room in spare if room is not None and room >= 0]
    if not met:
        return fewest(times)
    low, high = min(met), max(met)
    span = high - low
    best, slope = (low, 1.0) if most else (high, -1.0)

    def score(room: float | None) -> float | None:
        if room is None:
            return None
        if room < 0:
            return 0.0
        share = slope * (room - best) / span if span else 1.0
        return LEAST_POSITIVE + (1.0 - LEAST_POSITIVE) * share

    return scores_or_mean([score(room) for room in spare])


def _composite(endpoints: Endpoints) -> Live:
    free = KvUse().over(endpoints)
    queue = Queue().over(endpoints)
    prefix = Prefix().over(endpoints)
    size = len(endpoints)

    def live(arrival: Arrival) -> Column:
        queued, warm = (dense(live(arrival) or {}, size) for live in (queue, prefix))
        return [(kv + few + hit) / 3.0 for kv, few, hit in zip(free, queued, warm, strict=True)]

    return live
