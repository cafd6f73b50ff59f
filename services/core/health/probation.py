"""The way back: how often a cluster may return, what it must show, and how traffic grows again.

UNHEALTHY -> PROBATION is bounded per window, PROBATION admits few trials, and after it a
ramp limits the weight. Nothing here counts failures. Apart from the table because these
are quantities, not moves.
"""

from dataclasses import replace

from services.core.fleet import HealthState
from services.core.health.probes import GOOD_TO_RETURN
from services.core.health.record import ClusterRecord, Trials
from services.core.policy import HealthPolicy
from services.core.units import Instant


def return_earned(record: ClusterRecord, policy: HealthPolicy, now: Instant) -> bool:
    """Return whether an UNHEALTHY cluster may be tried: heard, good probes, and returns left in the window.

    Without a probe URL, as many live reports stand in for the probes.
    """
    if record.state is not HealthState.UNHEALTHY or record.silent or not record.reports_here:
        return False
    shown = record.probes.good_here if record.spec.probe_url else record.reports_here
    return shown >= GOOD_TO_RETURN and len(recent_returns(record, policy, now)) < policy.returns_max


def recent_returns(record: ClusterRecord, policy: HealthPolicy, now: Instant) -> tuple[Instant, ...]:
    """Return the instants of the returns that still count against the bound."""
    return tuple(at for at in record.returns if now - at < policy.returns_window)


def trial_allowed(trials: Trials, requests: int, policy: HealthPolicy) -> bool:
    """Return whether one more trial fits the larger of the share of traffic and the concurrency.

    `requests` counts all requests that were dispatched since probation began.
    """
    return (
        trials.in_flight < policy.probation_concurrent or trials.admitted < policy.probation_share * requests
    )


def trial_started(trials: Trials, now: Instant) -> Trials:
    """Return `trials` after one more was admitted."""
    return replace(trials, in_flight=trials.in_flight + 1, admitted=trials.admitted + 1, last_at=now)


def trial_finished(trials: Trials, now: Instant) -> Trials:
    """Return `trials` after one ended."""
    return replace(trials, in_flight=max(0, trials.in_flight - 1), last_at=now)


def probe_credited(trials: Trials, policy: HealthPolicy, now: Instant) -> bool:
    """Return whether a good probe counts as a success: no trial has run for a while."""
    return not trials.in_flight and now - trials.last_at >= policy.probation_probe_credit_after


def ramp(record: ClusterRecord, policy: HealthPolicy, now: Instant) -> float:
    """Return the factor on the cluster's weight: the floor on probation, then elapsed/window up to 1."""
    if record.state is HealthState.PROBATION:
        return policy.ramp_floor
    if record.ramp_from is None:
        return 1.0
    return min(1.0, max(policy.ramp_floor, (now - record.ramp_from) / policy.ramp_window))
