"""One ext_proc stream, one HTTP request: what to say to the data plane, and when to decide.

A sans-I/O machine. Laws: the head's answer waits for the whole body (proposal 004, 1.1), answers go in the
order head, body, trailers; after an immediate answer nothing more is said and what still comes is drained;
the decision is asked for exactly once; every stream ends in at most one `Finished`. The response phase is
`answers.Watch`'s. Time is an argument.
"""

import enum
from typing import Final

from services.core.units import Instant
from services.wire.content_coding import CodingError, codings_of, decoded
from services.wire.ext_proc.answers import Watch
from services.wire.ext_proc.events import (
    CHUNK_BYTES_MAX,
    AnswerRequestBody,
    AnswerRequestHeaders,
    AnswerRequestTrailers,
    Ask,
    BodyMode,
    Decision,
    Effect,
    End,
    Event,
    Finished,
    Headers,
    Immediate,
    Modes,
    Mutation,
    RequestBody,
    RequestHeaders,
    RequestTrailers,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    Screen,
    StreamRequestBody,
    StreamRules,
)
from services.wire.ext_proc.metadata import TEST_SELECTION, is_control
from services.wire.ext_proc.subset import Subset, read_subset
from services.wire.openai.errors import DROP_REASON_HEADER, ErrorAnswer, error_answer, refusal_answer
from services.wire.status import DoorReason

_WHOLE_MODES: Final = Modes()
_READABLE_MODES: Final = frozenset((BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED))
_LENGTH: Final = b"content-length"
_CODING: Final = b"content-encoding"
_TOO_SLOW: Final = "too_slow"


class Phase(enum.Enum):
    """Where a stream stands."""

    HEAD = "head"
    BODY = "body"
    DECIDING = "deciding"
    DECIDED = "decided"
    DRAINING = "draining"
    ENDED = "ended"


class Session:
    """The machine. Feed it events, then `decided` or `refused`; perform the effects in their order.

    `deadline` is when `expired` has something to say; None: never. A `Screen` may be answered by `refused`, and
    then the effects that came with it are void.
    """

    __slots__ = (
        "_codings",
        "_headers",
        "_modes",
        "_pieces",
        "_rules",
        "_size",
        "_subset",
        "_trailers",
        "_watch",
        "deadline",
        "phase",
    )

    def __init__(self, rules: StreamRules) -> None:
        self._rules = rules
        self._modes = _WHOLE_MODES
        self._headers: Headers = ()
        self._codings: tuple[bytes, ...] = ()
        self._subset: Subset | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._trailers = False
        self._watch: Watch | None = None
        self.phase = Phase.HEAD
        self.deadline: Instant | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes of the body kept here now."""
        return self._size if self._pieces else 0

    def receive(self, event: Event, now: Instant) -> list[Effect]:
        """Take what the data plane says."""
        phase = self.phase
        if phase in (Phase.DRAINING, Phase.ENDED):
            return []
        match event:
            case RequestHeaders() if phase is Phase.HEAD:
                return self._begin(event, now)
            case RequestBody() if phase is Phase.BODY:
                return self._collect(event, now)
            case RequestTrailers() if phase is Phase.BODY:
                self._trailers = True
                return self._body_ended(now)
            case RequestTrailers() if phase is Phase.DECIDED:
                return [AnswerRequestTrailers()]
            case ResponseHeaders() | ResponseBody() | ResponseTrailers() if phase is not Phase.HEAD:
                return self._answer_part(event)
            case _:
                return self._immediate(
                    error_answer(
                        DoorReason.INTERNAL, "The gateway sent the parts of a request out of order."
                    ),
                    now,
                )

    def decided(self, decision: Decision) -> list[Effect]:
        """Say the decision that was asked for. Nothing is said when the stream has moved on meanwhile."""
        if self.phase is not Phase.DECIDING:
            return []
        self.phase = Phase.DECIDED
        effects = self._let_go(decision)
        self._pieces = []
        self._watch = Watch(self._rules, self._modes.response_body, decision.back)
        return effects

    def refused(self, answer: ErrorAnswer, now: Instant) -> list[Effect]:
        """Answer the client in the model server's place, at any time before its answer has begun."""
        if self.phase in (Phase.DRAINING, Phase.ENDED) or (self._watch is not None and self._watch.begun):
            return []
        return self._immediate(answer, now)

    def expired(self, now: Instant) -> list[Effect]:
        """A body that does not end is refused; a data plane that does not end a refused stream is left."""
        if self.deadline is None or now < self.deadline:
            return []
        if self.phase is Phase.DRAINING:
            self.phase = Phase.ENDED
            self.deadline = None
            return [End()]
        answer = refusal_answer(408, _TOO_SLOW, "The request did not arrive in time.")
        headers = (*answer.headers, (DROP_REASON_HEADER, _TOO_SLOW))
        return self._immediate(ErrorAnswer(answer.status, headers, answer.body), now)

    def closed(self) -> list[Effect]:
        """The data plane ended the stream, in order or not."""
        watch, phase = self._watch, self.phase
        self.phase = Phase.ENDED
        self.deadline = None
        self._pieces = []
        return watch.closed() if watch is not None and phase is Phase.DECIDED else []

    # The request phase

    def _begin(self, event: RequestHeaders, now: Instant) -> list[Effect]:
        self._headers, self._subset = event.headers, event.subset
        self._modes = event.modes or _WHOLE_MODES
        length = b""
        for name, value in event.headers:
            if name == _LENGTH:
                length = value
            elif name == _CODING:
                self._codings = codings_of(value)
            elif name == TEST_SELECTION and self._rules.conformance:
                self._subset = read_subset((value.decode("latin-1"),))
        if event.end_of_stream:
            self.phase = Phase.DECIDING
            return [Ask(event.headers, None, self._subset)]
        if self._modes.request_body not in _READABLE_MODES:
            return self._immediate(
                error_answer(
                    DoorReason.INTERNAL,
                    "The gateway sends request bodies in a mode in which no endpoint can be picked; "
                    "it must be FULL_DUPLEX_STREAMED or BUFFERED.",
                ),
                now,
            )
        if length.isdigit() and int(length[:20]) > self._rules.body_bytes_max:
            return self._too_large(now)
        self.phase = Phase.BODY
        self.deadline = Instant(now + self._rules.body_wait)
        effects: list[Effect] = [Screen(event.headers)]
        if self._modes.request_body is BodyMode.BUFFERED:
            # The data plane holds head and body back until the body is answered.
            effects.append(AnswerRequestHeaders())
        return effects

    def _collect(self, event: RequestBody, now: Instant) -> list[Effect]:
        self._size += len(event.data)
        if self._size > self._rules.body_bytes_max:
            return self._too_large(now)
        self._pieces.append(event.data)
        if event.end_of_stream or self._modes.request_body is BodyMode.BUFFERED:
            return self._body_ended(now)
        return []

    def _body_ended(self, now: Instant) -> list[Effect]:
        self.deadline = None
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = [body]
        if self._codings:
            try:
                body = decoded(body, self._codings, self._rules.body_bytes_max)
            except CodingError as error:
                return self._immediate(error_answer(error.reason, error.message), now)
        self.phase = Phase.DECIDING
        return [Ask(self._headers, body, self._subset)]

    def _let_go(self, decision: Decision) -> list[Effect]:
        """Head, body and trailers of a request that has its endpoint."""
        destination = ",".join(decision.endpoints[: self._rules.endpoints_max])
        remove = [name for name, _ in self._headers if is_control(name)]
        scores = decision.scores if self._rules.scores else ()
        if not self._pieces:
            mutation = Mutation(decision.headers, tuple(remove))
            return [AnswerRequestHeaders(mutation, destination, scores)]
        body = self._pieces[0] if decision.body is None else decision.body
        if decision.body is not None and self._codings:
            remove.append(_CODING)
        duplex = self._modes.request_body is BodyMode.FULL_DUPLEX_STREAMED
        lines = decision.headers
        if duplex or decision.body is not None:
            lines = (*lines, (_LENGTH, b"%d" % len(body)))
        mutation = Mutation(lines, tuple(remove))
        if not duplex:
            return [AnswerRequestBody(mutation, destination, scores, decision.body)]
        effects: list[Effect] = [AnswerRequestHeaders(mutation, destination, scores)]
        last = max(len(body) - 1, 0) // CHUNK_BYTES_MAX * CHUNK_BYTES_MAX
        effects += [
            StreamRequestBody(body[at : at + CHUNK_BYTES_MAX], at == last and not self._trailers)
            for at in range(0, last + 1, CHUNK_BYTES_MAX)
        ]
        if self._trailers:
            effects.append(AnswerRequestTrailers())
        return effects

    # The response phase

    def _answer_part(self, part: ResponseHeaders | ResponseBody | ResponseTrailers) -> list[Effect]:
        watch = self._watch
        if watch is None:
            # Something between client and picker answered before the decision: not ours to judge.
            watch = self._watch = Watch(self._rules, self._modes.response_body)
            self.phase = Phase.DECIDED
            self.deadline = None
        effects: list[Effect]
        match part:
            case ResponseHeaders():
                effects = watch.head(part)
            case ResponseBody():
                effects = watch.body(part)
            case ResponseTrailers():
                effects = watch.trailers()
        if effects and isinstance(effects[-1], Finished):
            self.phase = Phase.ENDED
            effects.append(End())
        return effects

    def _too_large(self, now: Instant) -> list[Effect]:
        message = f"The request body is larger than the limit of {self._rules.body_bytes_max} bytes."
        return self._immediate(error_answer(DoorReason.BODY_TOO_LARGE, message), now)

    def _immediate(self, answer: ErrorAnswer, now: Instant) -> list[Effect]:
        self._pieces = []
        self._watch = None
        self.phase = Phase.DRAINING
        self.deadline = Instant(now + self._rules.body_wait)
        return [Immediate(answer)]
