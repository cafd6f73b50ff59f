"""What the shell does for one request: effects as imperative values, performed in order.

Values only. Every request ends with exactly one `Finish`, always last; what it was
charged is settled then. Apart from the machine so that doors and relays can name
effects without knowing its states.
"""

import enum

from services.core.outcomes import DropReason
from services.core.units import Duration
from services.core.values import value


class OutcomeKind(enum.StrEnum):
    """What an attempt showed of its cluster, for passive health and probation trials.

    `ANSWERED` (any answer below 500 but 429) ends runs of failures. `CONNECT_FAILED` and `RESET` (no
    answer at all) are connection failures, `GATEWAY_ERROR` any 5xx, a refused hand-off or an error as
    first event.
    `BACK_PRESSURE` (429), `DRAINED`, `UNABLE` (the cluster is alive and cannot serve this request: not this
    model, not now, not here), `TIMED_OUT` (no first byte in time) and `BROKEN` (after the first
    byte) say nothing that ejects; `ABANDONED` is an attempt that was cancelled without an answer, and
    `NOT_SENT` one that this worker's own limits kept from the cluster.
    A str, because it keys counters on every request and `Enum` hashes in Python (0.3 us, a str 0.03 us).
    """

    ANSWERED = "answered"
    CONNECT_FAILED = "connect_failed"
    RESET = "reset"
    GATEWAY_ERROR = "gateway_error"
    BACK_PRESSURE = "back_pressure"
    DRAINED = "drained"
    UNABLE = "unable"
    TIMED_OUT = "timed_out"
    BROKEN = "broken"
    ABANDONED = "abandoned"
    NOT_SENT = "not_sent"


class Ending(enum.StrEnum):
    """How a request ended, seen from the client."""

    COMPLETED = "completed"
    REJECTED = "rejected"
    FAILED_IN_BAND = "failed_in_band"
    CLIENT_GONE = "client_gone"


@value
class Send:
    """Send the request to `cluster` as attempt number `attempt`."""

    cluster: str
    attempt: int
    redispatch: bool = False


@value
class CancelAttempt:
    """Abort the attempt's upstream exchange; whatever it still brings is dropped."""

    attempt: int


@value
class CommitHead:
    """Pass the attempt's held head on to the client, and from now on its body as it comes.

    After `SendHeartbeats` the client has a head already: then only the body.
    """

    attempt: int


@value
class SendHeartbeats:
    """Answer 200 with SSE comment heartbeats until the first event; the upstream head is dropped."""


@value
class FailInBand:
    """End a started answer with an error event; an answer that is no stream is cut off instead."""

    reason: DropReason


@value
class Reject:
    """Answer with an error of our own; nothing had been sent to the client."""

    reason: DropReason
    retry_after: Duration | None = None


@value
class RecordOutcome:
    """Tell passive health. With `retry_after` the cluster asked to be left alone that long."""

    cluster: str
    attempt: int
    kind: OutcomeKind
    retry_after: Duration | None = None


@value
class Finish:
    """The request is over: settle, record, forget."""

    ending: Ending


AttemptEffect = (
    Send | CancelAttempt | CommitHead | SendHeartbeats | FailInBand | Reject | RecordOutcome | Finish
)
