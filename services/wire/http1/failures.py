"""Why an attempt at an upstream failed before its response was committed to the client.

Values for the caller's attempt plan: each class is one cell of the retry table. No policy lives
here. Apart from the sockets so that ports and life cycles can name them without importing asyncio.
"""

from dataclasses import dataclass
from enum import Enum


class ConnectFault(Enum):
    """What went wrong while connecting."""

    REFUSED = "refused"
    TIMEOUT = "timeout"
    RESET = "reset"
    UNREACHABLE = "unreachable"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """No connection: nothing of the request was sent."""

    fault: ConnectFault


@dataclass(frozen=True, slots=True)
class PoolExhausted:
    """The pool's own bound on connections to this origin is reached: nothing was sent, the origin is not at fault."""


@dataclass(frozen=True, slots=True)
class ResetBeforeFirstByte:
    """The connection ended after the request was written and before any byte of the response.

    reused: the connection had served an earlier request, so the likeliest cause is that the peer
    closed it while idle; says nothing about the peer's health.
    """

    reused: bool


@dataclass(frozen=True, slots=True)
class FirstByteTimeout:
    """The response's first event did not come in time."""


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """The response began and then stood still."""


@dataclass(frozen=True, slots=True)
class TotalTimeout:
    """The whole exchange took longer than allowed."""


@dataclass(frozen=True, slots=True)
class MalformedResponse:
    """The upstream's bytes are not a valid response. detail: for the log, holds no content."""

    detail: str


@dataclass(frozen=True, slots=True)
class ResponseTruncated:
    """The connection ended inside the response."""


Failure = (
    ConnectFailed
    | PoolExhausted
    | ResetBeforeFirstByte
    | FirstByteTimeout
    | IdleTimeout
    | TotalTimeout
    | MalformedResponse
    | ResponseTruncated
)
