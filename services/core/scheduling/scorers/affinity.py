"""Scorers of affinity: what an endpoint already holds for this request.

Formulas of the llm-d router (prefix-cache-scorer, lora-affinity-scorer, session-affinity-scorer,
no-hit-lru-scorer). An endpoint above the bound on affinity (`endpoints.AFFINITY_BOUND`) gets no credit for what
it holds. A request that brings no such signal is told nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from services.core.fleet import LoadReport
from services.core.scheduling.endpoints import Arrival, Endpoints
from services.core.scheduling.scorers.scorer import Column, Live, Sparse

NEUTRAL = 0.5


@dataclass(frozen=True, slots=True)
class Prefix:
    """w min(1, matched tokens / scale)^2 + (1 - w) matched blocks / all blocks.

    `length_weight` w: how much the absolute length counts beside the share; `scale_tokens`: the length that
    counts in full.
    """

    length_weight: float = 0.0
    scale_tokens: int = 8192
    name: str = "prefix"

    def __post_init__(self) -> None:
        if not 0 <= self.length_weight <= 1 or self.scale_tokens < 1:
            raise ValueError("length_weight: must lie in 0..1; scale_tokens: must be at least 1")

    def over(self, _endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        weight, scale = self.length_weight, self.scale_tokens

        def live(arrival: Arrival) -> Sparse | None:
            signals = arrival.signals
            total = signals.total_blocks
            warm = arrival.warm() if total else ()
            if not weight:
                return {place: blocks / total if blocks < total else 1.0 for place, blocks in warm} or None
            scores = {}
            for place, blocks in warm:
                length = min(1.0, blocks * signals.block_tokens / scale)
                scores[place] = weight * length * length + (1.0 - weight) * min(1.0, blocks / total)
            return scores or None

        return live


@dataclass(frozen=True, slots=True)
class Lora:
    """1 where the adapter is active, 0.8 where a slot is free, 0.6 where it waits to be loaded, else 0."""

    name: str = "lora"

    def over(self, endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        loads = endpoints.loads
        columns: dict[str, list[float]] = {}

        def live(arrival: Arrival) -> Column | None:
            adapter = arrival.signals.adapter
            if adapter is None:
                return None
            column = columns.get(adapter)
            if column is None:
                if len(columns) >= ADAPTERS_KEPT:
                    columns.clear()
                column = columns[adapter] = [lora_score(load, adapter) for load in loads]
            most = arrival.bound - 1
            return [
                score if count <= most else 0.0
                for score, count in zip(column, arrival.outstanding, strict=True)
            ]

        return live


ADAPTERS_KEPT = 256
"""Columns kept per layout; clients choose adapter names, and a layout lives for 20 ms."""


def lora_score(load: LoadReport, adapter: str) -> float:
    """Return the field's score of one endpoint; one that does not tell its slots has none free."""
    if adapter in load.active_adapters:
        return 1.0
    slots = load.max_adapters or 0
    if len(load.active_adapters) + len(load.waiting_adapters) < slots:
        return 0.8
    return 0.6 if adapter in load.waiting_adapters else 0.0


@dataclass(frozen=True, slots=True)
class Session:
    """1 for the endpoint that the session is bound to, 0 for the others."""

    name: str = "session"

    def over(self, endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        index = endpoints.index

        def live(arrival: Arrival) -> Sparse | None:
            session = arrival.signals.session
            place = None if session is None else index.get(session)
            if place is None or arrival.outstanding[place] > arrival.bound - 1:
                return None
            return {place: 1.0}

        return live


@dataclass(frozen=True, slots=True)
class ColdSpread:
    """For a request that no cache knows, the longer an endpoint has had no such request the better.

    Endpoints that never had one score 1, the one that had the latest 0; a warm request scores all 0.5.
    """

    name: str = "cold_spread"

    def over(self, endpoints: Endpoints) -> Live:
        """Return the scores per arrival."""
        neutral = [NEUTRAL] * len(endpoints)

        def live(arrival: Arrival) -> Column:
            matched = arrival.signals.matched
            return neutral if matched and any(matched.values()) else by_age(endpoints, arrival.cold)

        return live


def by_age(endpoints: Endpoints, cold: Mapping[str, int]) -> list[float]:
    """Return 1 - rank / (n - 1) by the last cold request, oldest first; those without one share rank 0."""
    column = [1.0] * len(endpoints)
    used = sorted((cold[name], place) for place, name in enumerate(endpoints.ids) if name in cold)
    last = len(endpoints) - 1
    if last:
        first = len(endpoints) - len(used)
        for rank, (_, place) in enumerate(used, first):
            column[place] = 1.0 - rank / last
    return column
