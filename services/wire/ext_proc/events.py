"""What an ext_proc stream says and is told, as plain values.

Events come from a data plane (`messages.decode`), effects go to it (`messages.encode`) or to the door. Apart
from the machine so that a conversation can be written down and compared, and from protobuf so that it can be
typed.
"""

import enum
from dataclasses import dataclass, field
from typing import Final

from services.core.units import Duration, seconds
from services.core.values import value
from services.wire.ext_proc.subset import Subset
from services.wire.openai.errors import ErrorAnswer

Headers = tuple[tuple[bytes, bytes], ...]
"""(lower-case name, value) pairs in their order, repeats included."""

CHUNK_BYTES_MAX: Final = 62_000
"""A streamed body goes back in pieces of at most this: with its envelope each stays below 64 KiB."""


class BodyMode(enum.Enum):
    """How the data plane sends a body (`ProcessingMode.BodySendMode`)."""

    NONE = 0
    STREAMED = 1
    BUFFERED = 2
    BUFFERED_PARTIAL = 3
    FULL_DUPLEX_STREAMED = 4
    GRPC = 5


@dataclass(frozen=True, slots=True)
class StreamRules:
    """Limits and choices of every stream.

    body_bytes_max: request bodies, as sent and decoded, above it are 413. body_wait: a body that has not ended
    this long after its head is 408. endpoints_max: the primary and how many fallbacks are told; one by default,
    because Envoy's ORIGINAL_DST clusters, by which several gateways follow the decision, cannot read a list and
    answer 503. scores: tell the data plane each endpoint's score. conformance: honour the test headers of the
    conformance suites.

    Whether there is a response phase is the gateway's to configure. Envoy ignores a `mode_override` where bodies
    are full duplex, and a stream that is closed after the request phase loses answers that are fast: what is on
    its way here is gone from Envoy.
    """

    body_bytes_max: int = 16 << 20
    body_wait: Duration = field(default_factory=lambda: seconds(30))
    endpoints_max: int = 1
    scores: bool = False
    conformance: bool = False


@value
class Modes:
    """What the data plane said of its filter in its first message."""

    request_body: BodyMode = BodyMode.FULL_DUPLEX_STREAMED
    response_body: BodyMode = BodyMode.FULL_DUPLEX_STREAMED


# --- Events: from the data plane ----------------------------------------------------------------


@value
class RequestHeaders:
    """The head of a request; `end_of_stream` when it has no body. `subset` is None without a hint."""

    headers: Headers
    end_of_stream: bool = False
    subset: Subset | None = None
    modes: Modes | None = None


@value
class RequestBody:
    """A piece of the body, or all of it, by the mode."""

    data: bytes
    end_of_stream: bool = False


@value
class RequestTrailers:
    """The body ended before these."""


@value
class ResponseHeaders:
    """The head of the answer, and the endpoint that served it where the data plane says so."""

    headers: Headers
    end_of_stream: bool = False
    served: str | None = None


@value
class ResponseBody:
    """A piece of the answer."""

    data: bytes
    end_of_stream: bool = False


@value
class ResponseTrailers:
    """The answer ended before these."""


Event = RequestHeaders | RequestBody | RequestTrailers | ResponseHeaders | ResponseBody | ResponseTrailers


# --- Answers: what the door decided -------------------------------------------------------------


@value
class Decision:
    """Where the request goes: `endpoints`, the primary and its ordered fallbacks, each `host:port`.

    `body` is what to send, None for the body as it came. `back` is (target model, client's model) when the body
    names another model than the client did. `headers` are set on the request besides. `scores` by endpoint.
    """

    endpoints: tuple[str, ...]
    body: bytes | None = None
    back: tuple[str, str] | None = None
    headers: Headers = ()
    scores: tuple[tuple[str, float], ...] = ()


# --- Effects: to the door -----------------------------------------------------------------------


@value
class Screen:
    """A head whose body is still to come: refuse now what need not be read."""

    headers: Headers


@value
class Ask:
    """The request is complete: decide. `body` is decoded; None when the request has none."""

    headers: Headers
    body: bytes | None
    subset: Subset | None


@value
class Served:
    """The data plane says which endpoint answered."""

    endpoint: str


@value
class Begun:
    """The answer has begun: the client can be told nothing else any more."""


@value
class Finished:
    """The answer has ended, or the stream did before: `status` is 0 when unknown, `usage` a JSON object."""

    status: int
    complete: bool
    usage: bytes | None = None


# --- Effects: to the data plane -----------------------------------------------------------------


@value
class Mutation:
    """Headers to set, each in place of any other of its name, and names to remove first."""

    set: Headers = ()
    remove: tuple[bytes, ...] = ()


NO_MUTATION: Final = Mutation()


@value
class AnswerRequestHeaders:
    """Let the head go on. `destination` is also told as metadata."""

    mutation: Mutation = NO_MUTATION
    destination: str | None = None
    scores: tuple[tuple[str, float], ...] = ()


@value
class AnswerRequestBody:
    """In BUFFERED mode: let head and body go on; `body` replaces it unless None."""

    mutation: Mutation
    destination: str
    scores: tuple[tuple[str, float], ...] = ()
    body: bytes | None = None


@value
class StreamRequestBody:
    """In FULL_DUPLEX_STREAMED mode: one piece of the body."""

    data: bytes
    end_of_stream: bool


@value
class AnswerRequestTrailers:
    """Let them go on."""


@value
class AnswerResponseHeaders:
    """Let the head of the answer go on."""

    mutation: Mutation = NO_MUTATION


@value
class StreamResponseBody:
    """In FULL_DUPLEX_STREAMED mode: one piece of the answer."""

    data: bytes
    end_of_stream: bool


@value
class AnswerResponseBody:
    """In the other modes: let this piece go on; `body` replaces it unless None."""

    body: bytes | None = None


@value
class AnswerResponseTrailers:
    """Let them go on."""


@value
class Immediate:
    """Answer the client now; nothing goes on."""

    answer: ErrorAnswer


@value
class End:
    """Close the stream in good order; the data plane goes on without it, and how the request ends is not told."""


ToDataPlane = (
    AnswerRequestHeaders
    | AnswerRequestBody
    | StreamRequestBody
    | AnswerRequestTrailers
    | AnswerResponseHeaders
    | StreamResponseBody
    | AnswerResponseBody
    | AnswerResponseTrailers
    | Immediate
)
Effect = Screen | Ask | Begun | Served | Finished | End | ToDataPlane
