"""Endpoints for the tests of tier 1's scheduling: pods with a load, before which a request arrives."""

from collections.abc import Mapping

from services.core.fleet import Candidate, HealthState, LoadReport
from services.core.locality import Distance
from services.core.scheduling.endpoints import Arrival, Endpoints
from services.core.scheduling.filters import Member
from services.core.scheduling.signals import NO_SIGNALS, Signals
from tests.core.scheduling.fleets import EU_WEST, MODEL

UNKNOWN = LoadReport()


def pod(
    name: str,
    load: LoadReport = UNKNOWN,
    labels: Mapping[str, str] | None = None,
    state: HealthState = HealthState.HEALTHY,
) -> Candidate:
    return Candidate(name, EU_WEST, frozenset({MODEL}), load, state, probing_ok=False, labels=labels or {})


def members(*pods: Candidate) -> list[Member]:
    return [Member(each, each.load, Distance.SAME_REGION, 1.0, 1.0) for each in pods]


def endpoints(*pods: Candidate) -> Endpoints:
    return Endpoints(members(*pods))


def loaded(*loads: LoadReport) -> Endpoints:
    """Pods `p0`, `p1` ... with these loads."""
    return endpoints(*(pod(f"p{number}", load) for number, load in enumerate(loads)))


def labelled(*labels: Mapping[str, str]) -> Endpoints:
    """Pods `p0`, `p1` ... with these labels."""
    return endpoints(*(pod(f"p{number}", labels=each) for number, each in enumerate(labels)))


def arrive(
    before: Endpoints,
    signals: Signals = NO_SIGNALS,
    *,
    own: Mapping[str, int] | None = None,
    tokens: Mapping[str, int] | None = None,
    cold: Mapping[str, int] | None = None,
    point: float = 0.5,
) -> Arrival:
    return Arrival(before, signals, own or {}, tokens or {}, cold or {}, point)
