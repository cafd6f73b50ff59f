"""The health table: which evidence moves a cluster from which state to which.

Laws:
1. A cluster becomes routable only by a live report, or by a good probe (then as STALE).
2. Silence alone makes STALE, never UNHEALTHY, while another witness answers.
3. UNHEALTHY is left only through PROBATION, and PROBATION is left for HEALTHY only by trials.
4. DRAINING and *ejected* are flags beside the state: they never appear here.
5. A cell that is absent is an illegal move: who sends such evidence has a defect.
Thresholds, clocks and counters live in the other files of this room; this one has none.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType

from services.core.fleet import HealthState

UNKNOWN = HealthState.UNKNOWN
HEALTHY = HealthState.HEALTHY
DEGRADED = HealthState.DEGRADED
STALE = HealthState.STALE
UNHEALTHY = HealthState.UNHEALTHY
PROBATION = HealthState.PROBATION


class Evidence(enum.Enum):
    """What an event or the passing of time has proved about one cluster."""

    REPORT_SOUND = "sound live report"
    REPORT_STRAINED = "strained live report"
    SILENCE = "silence"
    NO_WITNESS = "silence, no witness"
    PROBE_ANSWERED = "good probe"
    PROBES_FAILED = "probes failed"
    CONNECT_FAILED = "connect failed"
    RETURN_EARNED = "return earned"
    TRIALS_PASSED = "trials passed"


TABLE: Mapping[HealthState, Mapping[Evidence, HealthState]] = MappingProxyType(
    {
        UNKNOWN: {
            Evidence.REPORT_SOUND: HEALTHY,
            Evidence.REPORT_STRAINED: DEGRADED,
            Evidence.PROBE_ANSWERED: STALE,
            Evidence.PROBES_FAILED: UNHEALTHY,
        },
        HEALTHY: {
            Evidence.REPORT_SOUND: HEALTHY,
            Evidence.REPORT_STRAINED: DEGRADED,
            Evidence.SILENCE: STALE,
            Evidence.PROBES_FAILED: UNHEALTHY,
        },
        DEGRADED: {
            Evidence.REPORT_SOUND: HEALTHY,
            Evidence.REPORT_STRAINED: DEGRADED,
            Evidence.SILENCE: STALE,
            Evidence.PROBES_FAILED: UNHEALTHY,
        },
        STALE: {
            Evidence.REPORT_SOUND: HEALTHY,
            Evidence.REPORT_STRAINED: DEGRADED,
            Evidence.NO_WITNESS: UNHEALTHY,
            Evidence.PROBES_FAILED: UNHEALTHY,
        },
        UNHEALTHY: {
            Evidence.RETURN_EARNED: PROBATION,
        },
        PROBATION: {
            Evidence.TRIALS_PASSED: HEALTHY,
            Evidence.SILENCE: UNHEALTHY,
            Evidence.NO_WITNESS: UNHEALTHY,
            Evidence.PROBES_FAILED: UNHEALTHY,
            Evidence.CONNECT_FAILED: UNHEALTHY,
        },
    }
)


class IllegalMoveError(Exception):
    """Evidence reached a state in which it has no meaning."""


def next_state(state: HealthState, evidence: Evidence) -> HealthState:
    """Return the state after `evidence`; raise `IllegalMoveError` naming both where the table has no cell."""
    after = TABLE[state].get(evidence)
    if after is None:
        raise IllegalMoveError(f"{state.name} knows no move for {evidence.value!r}")
    return after


def diagram() -> str:
    """Return the table as a Mermaid state diagram, one line per cell; the README shows exactly this text."""
    lines = ["stateDiagram-v2", f"    [*] --> {UNKNOWN.name}"]
    for state, row in TABLE.items():
        lines += [
            f"    {state.name} --> {after.name}: {evidence.value}"
            for evidence, after in row.items()
            if after is not state
        ]
    return "\n".join(lines)
