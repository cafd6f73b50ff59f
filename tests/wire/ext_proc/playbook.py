"""Conversations with the stream machine as text: `>> event`, `<< effect`, one a line.

Events: `request-headers NAME=VALUE ... [end]`, `request-body 'TEXT' [end]`, `request-trailers`, the same three of
`response-`, `decide ENDPOINT,... ['BODY' [TARGET CLIENT]]`, `refuse REASON`, `after SECONDS`, `closed`. A body may
be written `N*'TEXT'`. Blank lines and lines that begin with `#` say nothing.
"""

import re

from services.core.outcomes import DropReason
from services.core.units import Instant, seconds
from services.wire.ext_proc import events
from services.wire.ext_proc.events import Effect, Modes, StreamRules
from services.wire.ext_proc.session import Session
from services.wire.ext_proc.subset import Subset, read_subset
from services.wire.openai.errors import error_answer

_TEXT = re.compile(r"^(?:(\d+)\*)?'(.*?)'", re.DOTALL)
_SHOWN_BYTES = 80


class Player:
    """Plays events into one session and writes down both sides."""

    def __init__(self, rules: StreamRules | None = None, modes: Modes | None = None) -> None:
        self.session = Session(rules or StreamRules())
        self._modes = modes
        self._now = Instant(0)

    def play(self, script: str) -> str:
        """Return the conversation that the script's events really lead to."""
        said = []
        for raw in script.strip().splitlines():
            line = raw.strip()
            if not line or line.startswith(("<<", "#")):
                continue
            said.append(line)
            said += [f"<< {told(effect)}" for effect in self._event(line.removeprefix(">> "))]
        return "\n".join(said)

    def _event(self, line: str) -> list[Effect]:
        word, _, rest = line.partition(" ")
        match word:
            case "decide":
                return self._decide(rest)
            case "refuse":
                return self.session.refused(error_answer(DropReason(rest), "No."), self._now)
            case "after":
                self._now = Instant(self._now + seconds(int(rest)))
                return self.session.expired(self._now)
            case "closed":
                return self.session.closed()
            case _:
                return self.session.receive(self._heard(word, rest), self._now)

    def _heard(self, word: str, rest: str) -> events.Event:
        end = rest.rsplit(" ", maxsplit=1)[-1] == "end"
        match word:
            case "request-headers":
                headers, subset, _ = _headers(rest)
                return events.RequestHeaders(headers, end, subset, self._modes)
            case "request-body":
                return events.RequestBody(_text(rest)[0], end)
            case "request-trailers":
                return events.RequestTrailers()
            case "response-headers":
                headers, _, served = _headers(rest)
                return events.ResponseHeaders(headers, end, served)
            case "response-body":
                return events.ResponseBody(_text(rest)[0], end)
            case "response-trailers":
                return events.ResponseTrailers()
            case _:
                raise ValueError(f"no such event: {word}")

    def _decide(self, rest: str) -> list[Effect]:
        endpoints, _, more = rest.partition(" ")
        if not more:
            return self.session.decided(events.Decision(tuple(endpoints.split(","))))
        body, names = _text(more)
        back = tuple(names.split())
        return self.session.decided(
            events.Decision(tuple(endpoints.split(",")), body, (back[0], back[1]) if len(back) == 2 else None)
        )


def expect(script: str, rules: StreamRules | None = None, modes: Modes | None = None) -> Player:
    """Assert that the conversation goes as written."""
    wanted = "\n".join(
        line.strip()
        for line in script.strip().splitlines()
        if line.strip() and not line.strip().startswith("#")
    )
    player = Player(rules, modes)
    assert player.play(script) == wanted
    return player


def _headers(rest: str) -> tuple[events.Headers, Subset | None, str | None]:
    subset: Subset | None = None
    served: str | None = None
    pairs = []
    for word in rest.split():
        name, equals, value = word.partition("=")
        if name == "subset":
            subset = read_subset((value,))
        elif name == "served":
            served = value
        elif equals:
            pairs.append((name.encode(), value.replace("_", " ").encode()))
    return tuple(pairs), subset, served


def _text(rest: str) -> tuple[bytes, str]:
    found = _TEXT.match(rest)
    assert found is not None, rest
    data = found[2].replace("\\n", "\n").replace("\\r", "\r").encode() * int(found[1] or 1)
    return data, rest[found.end() :].strip()


def told(effect: Effect) -> str:
    """Return one effect as a line."""
    match effect:
        case events.Screen():
            return "screen"
        case events.Ask():
            body = "nothing" if effect.body is None else _shown(effect.body)
            return f"ask {body}" + ("" if effect.subset is None else f" among {_members(effect.subset)}")
        case events.Begun():
            return "begun"
        case events.Served():
            return f"served {effect.endpoint}"
        case events.Finished():
            usage = "" if effect.usage is None else f" {effect.usage.decode()}"
            return f"finished {effect.status} {'complete' if effect.complete else 'cut'}{usage}"
        case events.End():
            return "end"
        case events.AnswerRequestHeaders():
            return f"request-headers{_mutation(effect.mutation)}{_to(effect.destination)}"
        case events.AnswerRequestBody():
            body = "" if effect.body is None else f" {_shown(effect.body)}"
            return f"request-body{body}{_mutation(effect.mutation)}{_to(effect.destination)}"
        case events.StreamRequestBody():
            return f"request-body {_shown(effect.data)}{' end' if effect.end_of_stream else ''}"
        case events.AnswerRequestTrailers():
            return "request-trailers"
        case _:
            return _told_of_answer(effect)


def _told_of_answer(effect: Effect) -> str:
    match effect:
        case events.AnswerResponseHeaders():
            return f"response-headers{_mutation(effect.mutation)}"
        case events.StreamResponseBody():
            return f"response-body {_shown(effect.data)}{' end' if effect.end_of_stream else ''}"
        case events.AnswerResponseBody():
            return "response-body as it is" if effect.body is None else f"response-body {_shown(effect.body)}"
        case events.AnswerResponseTrailers():
            return "response-trailers"
        case events.Immediate():
            reason = dict(effect.answer.headers)["x-gir-drop-reason"]
            return f"immediate {effect.answer.status} {reason}"
        case _:
            raise ValueError(f"no line for {effect}")


def _mutation(mutation: events.Mutation) -> str:
    lines = [f" set {name.decode()}={value.decode()}" for name, value in mutation.set]
    return "".join((*lines, *[f" remove {name.decode()}" for name in mutation.remove]))


def _to(destination: str | None) -> str:
    return "" if destination is None else f" to {destination}"


def _members(subset: Subset) -> str:
    return ",".join(sorted(subset.hosts | subset.endpoints)) or "nobody"


def _shown(data: bytes) -> str:
    if len(data) > _SHOWN_BYTES:
        return f"{len(data)} bytes"
    text = data.decode(errors="backslashreplace").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{text}'"
