"""The claim of the return: a region that was dead passes probation and grows on the ramp.

Judged from one router's dispatches and beliefs, against the bound that policy and capacities set. Pure,
and apart from the other claims because shares need a little statistics.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from services.core.fleet import HealthState
from services.core.policy import HealthPolicy
from services.core.units import Instant, in_ms, seconds
from services.worlds.claims import Claim, Dispatch, Figure, Sighting, verdict

SHARE_BIN: Final = seconds(4)
SIGMAS: Final = 4.0
"""Draws are independent, so a share strays from its expectation; beyond four deviations (3 in 100,000) it
was not chance."""
_PROVEN: Final = frozenset({HealthState.HEALTHY, HealthState.DEGRADED, HealthState.STALE})


@dataclass(frozen=True, slots=True)
class Return:
    """A region's return as one router sees it: who came back when, and what each place can carry.

    `capacities` covers every cluster that serves `model`, in the units routers weigh with.
    """

    clusters: frozenset[str]
    router: str
    model: str
    capacities: Mapping[str, float]
    returned_at: Instant
    until: Instant
    policy: HealthPolicy


def ramped_return(dispatches: Sequence[Dispatch], sightings: Sequence[Sighting], back: Return) -> Claim:
    """Claim: a returned region passes probation, its share never exceeds the ramp, and in the end it serves."""
    problems: list[tuple[bool, str]] = []
    healthy_from: dict[str, Instant] = {}
    probation_from: dict[str, Instant] = {}
    for cluster in sorted(back.clusters):
        moves = _moves(sightings, back, cluster)
        tried = [at for at, state in moves if state is HealthState.PROBATION]
        proven = [at for at, state in moves if state in _PROVEN]
        if not tried or not proven:
            problems.append((False, f"{cluster} did not return: it went {_path(moves)}"))
            continue
        problems.append((tried[0] < proven[0], f"{cluster} was trusted before its probation: {_path(moves)}"))
        probation_from[cluster], healthy_from[cluster] = tried[0], proven[0]
    sent = [
        d
        for d in dispatches
        if d.router == back.router and d.model == back.model and back.returned_at <= d.sent_at < back.until
    ]
    trials = max((_concurrent(sent, c, probation_from[c], healthy_from[c]) for c in healthy_from), default=0)
    allowed = back.policy.probation_concurrent
    bins = _bins(sent, back, healthy_from) if len(healthy_from) == len(back.clusters) else []
    problems += [
        (trials <= allowed, f"{trials} trials ran at once at a cluster on probation, {allowed} may"),
        (bool(bins), "no share was measured"),
        *(
            (b.taken <= b.most, f"{b.taken} of {b.sent} requests, at most {b.most:.1f} fit the ramp")
            for b in bins
        ),
        (not bins or bins[-1].taken > 0, "in the end the returned region was sent nothing"),
    ]
    proven_at = max(healthy_from.values(), default=back.until)
    figures: dict[str, Figure] = {
        "requests": len(sent),
        "probation_after_ms": _span_ms(back.returned_at, probation_from.values()),
        "healthy_after_ms": _span_ms(back.returned_at, healthy_from.values()),
        "ramp_window_ms": in_ms(back.policy.ramp_window),
        "ramp_observed_ms": round(in_ms(back.until - proven_at), 1),
        "trials_at_once_max": trials,
        "share_percent": [round(100 * b.taken / b.sent, 1) for b in bins],
        "ramp_bound_percent": [round(100 * b.expected / b.sent, 1) for b in bins],
    }
    full = (back.until - proven_at >= back.policy.ramp_window, "the ramp was not watched to its end")
    return verdict("ramped_return", figures, *problems, full)


@dataclass(frozen=True, slots=True)
class _Bin:
    """Requests of one stretch of time: how many, how many to the returned region, how many may be."""

    sent: int
    taken: int
    expected: float
    most: float


def _bins(sent: Sequence[Dispatch], back: Return, healthy_from: Mapping[str, Instant]) -> list[_Bin]:
    """Compare first attempts with the ramp, in stretches from the first recovery on; thin ones join the next."""
    first = [d for d in sorted(sent, key=lambda d: d.sent_at) if d.number == 1]
    start = min(healthy_from.values())
    bins: list[_Bin] = []
    stretch: list[Dispatch] = []
    edge = start + SHARE_BIN
    for dispatch in (d for d in first if d.sent_at >= start):
        if dispatch.sent_at >= edge and stretch:
            bins.append(_bin(stretch, back, healthy_from))
            stretch = []
            edge = max(edge + SHARE_BIN, dispatch.sent_at)
        stretch.append(dispatch)
    return [*bins, _bin(stretch, back, healthy_from)] if stretch else bins


def _bin(stretch: Sequence[Dispatch], back: Return, healthy_from: Mapping[str, Instant]) -> _Bin:
    chances = [_share_bound(d.sent_at, back, healthy_from) for d in stretch]
    expected = sum(chances)
    deviation = math.sqrt(sum(chance * (1 - chance) for chance in chances))
    taken = sum(d.cluster in back.clusters for d in stretch)
    return _Bin(len(stretch), taken, expected, expected + SIGMAS * deviation + 1)


def _share_bound(at: Instant, back: Return, healthy_from: Mapping[str, Instant]) -> float:
    """Return the largest share of the model's traffic that the ramp leaves the returned clusters at `at`."""
    weights = {
        cluster: capacity
        * (_ramp(at, healthy_from[cluster], back.policy) if cluster in back.clusters else 1.0)
        for cluster, capacity in back.capacities.items()
    }
    return sum(weights[cluster] for cluster in back.clusters if cluster in weights) / sum(weights.values())


def _ramp(at: Instant, healthy_at: Instant, policy: HealthPolicy) -> float:
    return min(1.0, max(policy.ramp_floor, (at - healthy_at) / policy.ramp_window))


def _concurrent(sent: Sequence[Dispatch], cluster: str, start: Instant, end: Instant) -> int:
    """Return how many of the attempts sent to `cluster` between `start` and `end` ran at once, at most."""
    edges = []
    for dispatch in sent:
        if dispatch.cluster == cluster and start <= dispatch.sent_at < end:
            edges += [(dispatch.sent_at, 1), (dispatch.ended_at or end, -1)]
    running = most = 0
    for _, step in sorted(edges):
        running += step
        most = max(most, running)
    return most


def _moves(sightings: Sequence[Sighting], back: Return, cluster: str) -> list[tuple[Instant, HealthState]]:
    moves: list[tuple[Instant, HealthState]] = []
    for seen in sorted(sightings, key=lambda sighting: sighting.at):
        here = seen.router == back.router and seen.cluster == cluster
        if not here or not back.returned_at <= seen.at < back.until:
            continue
        if not moves or moves[-1][1] is not seen.state:
            moves.append((seen.at, seen.state))
    return moves


def _path(moves: Sequence[tuple[Instant, HealthState]]) -> str:
    return " -> ".join(state.value for _, state in moves) or "nowhere"


def _span_ms(start: Instant, instants: Collection[Instant]) -> float:
    return round(in_ms(max(instants) - start), 1) if instants else -1.0
