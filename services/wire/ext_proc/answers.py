"""The response phase of one stream: status and usage observed, the client's model name put back.

Pieces go on as they come, events and JSON alike; a few bytes wait only where a model's name is cut in two. An
answer under a content coding passes untouched and unread. Apart from `session` because most streams skip it.
"""

from typing import Final

from services.wire.ext_proc.events import (
    CHUNK_BYTES_MAX,
    AnswerResponseBody,
    AnswerResponseHeaders,
    AnswerResponseTrailers,
    Begun,
    BodyMode,
    Effect,
    End,
    Finished,
    Headers,
    Mutation,
    ResponseBody,
    ResponseHeaders,
    Served,
    StreamResponseBody,
    StreamRules,
)
from services.wire.ext_proc.metadata import TEST_SERVED, WENT_THROUGH
from services.wire.http1.observer import BodyObserver, EventObserver, PlainObserver
from services.wire.openai.rewrite import ModelBack

_WENT_THROUGH: Final = (WENT_THROUGH.encode(), b"true")
_TEST_SERVED: Final = TEST_SERVED.encode()
_IDENTITY: Final = frozenset((b"", b"identity"))
_LENGTH: Final = b"content-length"


def media_type(content_type: bytes) -> bytes:
    """Return the type of a Content-Type value without parameters, in lower case (RFC 9110 8.3.1)."""
    return content_type.partition(b";")[0].strip().lower()


class Watch:
    """Watches one answer. `begun` once its head was seen: from then on it cannot be replaced."""

    __slots__ = ("_back", "_mode", "_observer", "_rules", "_status", "begun")

    def __init__(self, rules: StreamRules, mode: BodyMode, back: tuple[str, str] | None = None) -> None:
        self._rules = rules
        self._mode = mode
        self._back = None if back is None else ModelBack(*back)
        self._observer: BodyObserver | None = None
        self._status = 0
        self.begun = False

    def head(self, event: ResponseHeaders) -> list[Effect]:
        """Read the head and let it go on."""
        self.begun = True
        effects: list[Effect] = [Begun()]
        if event.served is not None:
            effects.append(Served(event.served))
        effects.append(AnswerResponseHeaders(self._read(event.headers, event.served)))
        if event.end_of_stream:
            effects.append(self._finished())
        return effects

    def body(self, event: ResponseBody) -> list[Effect]:
        """Let a piece go on, or hold it."""
        passed = self._pass(event.data, ended=event.end_of_stream)
        effects: list[Effect]
        if self._mode is not BodyMode.FULL_DUPLEX_STREAMED:
            effects = [AnswerResponseBody(None if passed is event.data else passed)]
        elif len(passed) <= CHUNK_BYTES_MAX:
            effects = (
                [StreamResponseBody(passed, event.end_of_stream)] if passed or event.end_of_stream else []
            )
        else:
            effects = self._pieces(passed, ended=event.end_of_stream)
        if event.end_of_stream:
            effects.append(self._finished())
        return effects

    def trailers(self) -> list[Effect]:
        """The body has ended; let go what is still held, then the trailers."""
        effects: list[Effect] = []
        rest = self._pass(b"", ended=True)
        if rest and self._mode is BodyMode.FULL_DUPLEX_STREAMED:
            effects += self._pieces(rest, ended=False)
        effects += [AnswerResponseTrailers(), self._finished()]
        return effects

    def closed(self) -> list[Effect]:
        """The stream ended first: the answer broke off, or the data plane sends none of it, or no body."""
        if self._mode is not BodyMode.NONE:
            return [self._finished(complete=False)]
        return [self._finished()] if self.begun else [End()]

    def _read(self, headers: Headers, served: str | None) -> Mutation:
        """Learn status and kind of body; return what the head gets."""
        kind = coding = b""
        for name, value in headers:
            if name == b":status":
                self._status = int(value) if value.isdigit() else 0
            elif name == b"content-type":
                kind = media_type(value)
            elif name == b"content-encoding":
                coding = value.strip().lower()
        lines: Headers = (_WENT_THROUGH,)
        if served is not None and self._rules.conformance:
            lines = (*lines, (_TEST_SERVED, served.encode()))
        if coding not in _IDENTITY:
            self._back = None
            return Mutation(lines)
        self._observer = EventObserver() if kind == b"text/event-stream" else PlainObserver()
        # The other name may be longer or shorter.
        return Mutation(lines, (_LENGTH,) if self._back is not None else ())

    def _pass(self, data: bytes, *, ended: bool) -> bytes:
        """Return what goes on now."""
        observer, back = self._observer, self._back
        if observer is not None:
            observer.feed(data)
            if ended:
                observer.finish()
        if back is None:
            return data
        passed = back.feed(data)
        return passed + back.finish() if ended else passed

    @staticmethod
    def _pieces(data: bytes, *, ended: bool) -> list[Effect]:
        last = (len(data) - 1) // CHUNK_BYTES_MAX * CHUNK_BYTES_MAX
        return [
            StreamResponseBody(data[at : at + CHUNK_BYTES_MAX], ended and at == last)
            for at in range(0, last + 1, CHUNK_BYTES_MAX)
        ]

    def _finished(self, *, complete: bool = True) -> Finished:
        observer = self._observer
        return Finished(self._status, complete, None if observer is None else observer.usage_object())
