"""Scheduling profiles: what distinguishes the two tiers of the one scheduler, as data.

A profile names the picker, the filters and scorers with their weights, which candidates may be
revived when nobody is alive, and the words it refuses with. Apart from the decision so that
tiers and strategies never become branches of it.
"""

import enum
from dataclasses import dataclass
from math import isfinite

from services.core.fleet import HealthState
from services.core.scheduling.draws import WORDS
from services.core.scheduling.endpoint_filters import EndpointFilter, PrefixAffinity, SessionPin, SloHeadroom
from services.core.scheduling.refusals import OF_CLUSTERS, OF_ENDPOINTS, Words
from services.core.scheduling.scorers.affinity import ColdSpread, Lora, Prefix, Session
from services.core.scheduling.scorers.fit import Attribute, HeaderLabel
from services.core.scheduling.scorers.latency import Latency
from services.core.scheduling.scorers.load import KvUse, Queue
from services.core.scheduling.scorers.scorer import Scorer


class Picker(enum.Enum):
    """How one of the eligible candidates is chosen. WEIGHTED_DRAW is tier 2's, the others are tier 1's."""

    WEIGHTED_DRAW = "weighted_draw"
    MAX_SCORE = "max_score"
    RANDOM = "random"
    WEIGHTED_RANDOM = "weighted_random"
    ROUND_ROBIN = "round_robin"
    LEAST_OUTSTANDING = "least_outstanding"


FALLBACKS_DEFAULT = 4
"""Tier 1 tries the next endpoint when one cannot be connected to; after five there is no pool to speak of."""
FALLBACKS_MOST = WORDS - 2
"""A random picker needs a point of its own for the target and for each fallback; the first is the draw's."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """A scorer and its weight in the sum."""

    scorer: Scorer
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Refuse weights that would invert the scorer or drown the others."""
        if not isfinite(self.weight) or self.weight < 0:
            raise ValueError(f"weight of scorer {self.name!r}: must be a finite number, not negative")

    @property
    def name(self) -> str:
        """The scorer's name."""
        return self.scorer.name


@dataclass(frozen=True, slots=True)
class SchedulingProfile:
    """One way of choosing.

    `fallbacks` is how many endpoints are named after the target (tier 1). `revived` are the states that
    traffic may fall back to when nobody is alive; UNKNOWN is in no profile, because nothing has ever vouched
    for such a candidate. `panic_needs_dead_fleet`: whether that requires that no candidate at all is alive
    (tier 2: one living cluster proves that this router's eyes are sound), or only none of those eligible
    (tier 1: pods of other models prove nothing). `words` are those it refuses with.
    """

    picker: Picker
    scorers: tuple[Weighted, ...] = ()
    filters: tuple[EndpointFilter, ...] = ()
    fallbacks: int = FALLBACKS_DEFAULT
    revived: frozenset[HealthState] = frozenset()
    panic_needs_dead_fleet: bool = True
    words: Words = OF_CLUSTERS

    def __post_init__(self) -> None:
        """Refuse more fallbacks than a request has points."""
        if not 0 <= self.fallbacks <= FALLBACKS_MOST:
            raise ValueError(f"fallbacks: must lie in 0..{FALLBACKS_MOST}")

    @property
    def headers(self) -> frozenset[str]:
        """Lower-case names of the request headers that its scorers read."""
        return frozenset(w.scorer.header for w in self.scorers if isinstance(w.scorer, HeaderLabel))

    @property
    def reads_prefix(self) -> bool:
        """Whether anything in it goes by what endpoints hold of the prompt, which costs a look-up of its blocks."""
        return any(isinstance(each, PrefixAffinity) for each in self.filters) or any(
            isinstance(w.scorer, Prefix | ColdSpread | Latency) for w in self.scorers
        )

    @property
    def reads_sessions(self) -> bool:
        """Whether anything in it goes by the endpoint that a session is bound to."""
        return any(isinstance(each, SessionPin) for each in self.filters) or any(
            isinstance(w.scorer, Session) for w in self.scorers
        )

    @property
    def reads_ttft(self) -> bool:
        """Whether anything in it goes by measured time to first token, which costs a pass over histograms."""
        return any(isinstance(each, PrefixAffinity | SloHeadroom) for each in self.filters) or any(
            isinstance(w.scorer, Latency)
            or (isinstance(w.scorer, Attribute) and w.scorer.attribute == "ttft_ms")
            for w in self.scorers
        )


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


def endpoint_profile(
    picker: Picker = Picker.MAX_SCORE,
    scorers: tuple[Weighted, ...] = (),
    filters: tuple[EndpointFilter, ...] = (),
    fallbacks: int = FALLBACKS_DEFAULT,
) -> SchedulingProfile:
    """Return a profile of tier 1: an endpoint with old metrics is better than no endpoint."""
    return SchedulingProfile(
        picker,
        scorers,
        filters,
        fallbacks,
        revived=frozenset((HealthState.STALE,)),
        panic_needs_dead_fleet=False,
        words=OF_ENDPOINTS,
    )


ENDPOINTS = endpoint_profile(
    scorers=(
        Weighted(Queue(), 2.0),
        Weighted(KvUse(), 2.0),
        Weighted(Prefix(), 3.0),
        Weighted(Lora(), 2.0),
    )
)
"""Tier 1: the field's default weights. LoRA affinity speaks only for a request that asks for an adapter; loading
one costs about what waiting in the longest queue does, so it weighs as much as the queue."""
