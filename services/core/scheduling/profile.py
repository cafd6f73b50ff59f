"""Scheduling profiles: what distinguishes the two tiers of the one scheduler, as data.

A profile names the picker, the scorers with their weights, and which candidates may be
revived when nobody is alive. Apart from the decision so that tiers never become branches
of it.
"""

import enum
from dataclasses import dataclass

from services.core.fleet import HealthState
from services.core.scheduling.refusals import OF_CLUSTERS, OF_ENDPOINTS, Words
from services.core.scheduling.scorers import SCORERS


class Picker(enum.Enum):
    """How one of the eligible candidates is chosen."""

    WEIGHTED_DRAW = "weighted_draw"
    MAX_SCORE = "max_score"


@dataclass(frozen=True, slots=True)
class SchedulingProfile:
    """One tier's way of choosing.

    `revived` are the states that traffic may fall back to when nobody is alive; UNKNOWN is in no
    profile, because nothing has ever vouched for such a candidate. `panic_needs_dead_fleet`: whether
    that requires that no candidate at all is alive (tier 2: one living cluster proves that this
    router's eyes are sound), or only none of those eligible (tier 1: pods of other models prove
    nothing). `words` are those it refuses with.
    """

    picker: Picker
    scorers: tuple[tuple[str, float], ...] = ()
    revived: frozenset[HealthState] = frozenset()
    panic_needs_dead_fleet: bool = True
    words: Words = OF_CLUSTERS

    def __post_init__(self) -> None:
        """Refuse scorers that do not exist and weights that would invert them."""
        for name, weight in self.scorers:
            if name not in SCORERS:
                raise ValueError(f"scorer {name!r}: must be one of {', '.join(sorted(SCORERS))}")
            if weight < 0:
                raise ValueError(f"weight of scorer {name!r}: must not be negative")


CLUSTERS = SchedulingProfile(
    Picker.WEIGHTED_DRAW,
    revived=frozenset(
        (
            HealthState.HEALTHY,
            HealthState.DEGRADED,
            HealthState.STALE,
            HealthState.UNHEALTHY,
            HealthState.PROBATION,
        )
    ),
)
"""Tier 2. Any state but UNKNOWN may be revived: HEALTHY and its like are here when passively ejected."""

ENDPOINTS = SchedulingProfile(
    Picker.MAX_SCORE,
    scorers=(("queue", 2.0), ("kv_use", 2.0)),
    revived=frozenset((HealthState.STALE,)),
    panic_needs_dead_fleet=False,
    words=OF_ENDPOINTS,
)
"""Tier 1: weights are the field's defaults; an endpoint with old metrics is better than no endpoint."""
