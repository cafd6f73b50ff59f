"""What happens to one request on its way: events in past tense, told to `Attempts.apply`.

Values only. Events about one attempt carry its number, which fences late outcomes: an
event of any other attempt changes nothing. Parsing (status lines, `Retry-After` in
either form, `retry-after-ms`, the first SSE event) happens in `wire`; here are results.
"""

from typing import ClassVar

from services.core.units import Duration
from services.core.values import value


@value
class Started:
    """The request was planned and may be sent."""

    attempt: ClassVar[None] = None


@value
class ConnectFailed:
    """No connection within the connect timeout, or it was refused; nothing of the request was sent."""

    attempt: int


@value
class NotSent:
    """This worker could not send it: its own connections are used up, or the policy names the cluster no more."""

    attempt: int


@value
class ResetBeforeFirstByte:
    """The connection ended before anything of the answer reached the client.

    `body_sent` says whether any byte of the request's body had been sent.
    """

    attempt: int
    body_sent: bool = True


@value
class HeadArrived:
    """Status line and headers of the answer are here.

    `retry_after` is the answer's own wish (seconds, HTTP-date or milliseconds, as a span from now),
    None when it has none. `drained` is tier 1's `x-gir-drained`; `hop_refused` says that tier 1 refused
    this router's hand-off, which is no answer to the client; `unable`, that tier 1 itself answered 503
    because none of its pods serves the model, is ready, or may see the request.
    """

    attempt: int
    status: int
    retry_after: Duration | None = None
    drained: bool = False
    hop_refused: bool = False
    unable: bool = False
    body_sent: bool = True


@value
class AnswerBegan:
    """A 2xx head came together with its first event, which is no error: both at once, as most answers do."""

    attempt: int


@value
class FirstEventArrived:
    """The first SSE event, or the first body byte of an answer that is no stream, is here and is no error."""

    attempt: int


@value
class SseErrorFirst:
    """The first event inside a 200 is an error: the attempt failed although its status says otherwise."""

    attempt: int


@value
class BodyFinished:
    """The answer is complete."""

    attempt: int


@value
class FailedAfterFirstByte:
    """The answer broke off after the client had got something of it."""

    attempt: int


@value
class ClusterLost:
    """The cluster became UNHEALTHY or was ejected; attempts there without a first byte go elsewhere."""

    attempt: ClassVar[None] = None
    cluster: str


@value
class ClientGone:
    """The client closed its side."""

    attempt: ClassVar[None] = None


@value
class FirstByteTimedOut:
    """The attempt had its time until the first byte and brought none."""

    attempt: int


@value
class IdleTimedOut:
    """The answer stood still for the idle timeout."""

    attempt: int


@value
class DeadlinePassed:
    """The request's total time, or the client's own deadline, is over."""

    attempt: ClassVar[None] = None


@value
class CommitTimerFired:
    """The client's headers have been held as long as they may be."""

    attempt: ClassVar[None] = None


@value
class ParkPolled:
    """A parked request asks again for a retry."""

    attempt: ClassVar[None] = None


AttemptEvent = (
    Started
    | ConnectFailed
    | NotSent
    | ResetBeforeFirstByte
    | HeadArrived
    | AnswerBegan
    | FirstEventArrived
    | SseErrorFirst
    | BodyFinished
    | FailedAfterFirstByte
    | ClusterLost
    | ClientGone
    | FirstByteTimedOut
    | IdleTimedOut
    | DeadlinePassed
    | CommitTimerFired
    | ParkPolled
)
