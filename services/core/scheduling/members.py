"""Members: the candidates that serve one model, with level, capacity and weight.

weight = capacity x ready share x ramp. An unknown capacity is never 0: it is estimated per
endpoint from those that say theirs, and counts as endpoints when nobody does. Apart from
the filters because a level's health is measured over candidates that filters remove.
"""

from collections.abc import Sequence

from services.core.fleet import Candidate, FleetSnapshot, HealthState, LoadReport
from services.core.inference import ModelName
from services.core.locality import distance
from services.core.scheduling.filters import Member, serves


def members_of(snapshot: FleetSnapshot, model: ModelName) -> tuple[Member, ...]:
    """Return the candidates that serve `model`; where nobody is known to, those that never told."""
    serving = [candidate for candidate in snapshot.candidates if serves(candidate, model)]
    if not serving:
        serving = [candidate for candidate in snapshot.candidates if candidate.models is None]
    loads = [candidate.load_for(model) for candidate in serving]
    per_endpoint = _capacity_per_endpoint(loads)
    members = []
    for candidate, load in zip(serving, loads, strict=True):
        ready, total = _endpoints(candidate, load)
        capacity = load.capacity_requests
        if capacity is None:
            capacity = total * per_endpoint
        weight = capacity * (ready / total) * candidate.ramp if total else 0.0
        level = distance(snapshot.here, candidate.locality)
        members.append(Member(candidate, load, level, capacity, weight))
    return tuple(members)


def _capacity_per_endpoint(loads: Sequence[LoadReport]) -> float:
    """Return the mean capacity of one endpoint over those that say theirs; 1 when nobody does."""
    known = [(load.capacity_requests, load.total) for load in loads if load.capacity_requests is not None]
    endpoints = sum(total for _, total in known)
    capacity = sum(requests for requests, _ in known)
    return capacity / endpoints if endpoints and capacity else 1.0


def _endpoints(candidate: Candidate, load: LoadReport) -> tuple[int, int]:
    """Return (ready, total) endpoints with ready <= total.

    A STALE candidate whose probes answer has at least one endpoint ready, whatever its last report
    said; so it is for one that has never reported.
    """
    total = max(load.total, load.ready)
    if candidate.state is HealthState.STALE and candidate.probing_ok:
        return max(load.ready, 1), max(total, 1)
    return load.ready, total
