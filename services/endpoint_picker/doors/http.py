"""The cluster gateway without Envoy: OpenAI paths in, the picked pod's answer out.

Checks the hop, picks, forwards byte for byte. What a request may do is `entry`, which pod serves it is
`pick`, its way there is `forward`; this file knows paths, headers and the order of the steps.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from services.adapters.http.relay import ExchangeTimeouts, UpstreamRequest
from services.adapters.http.responder import Responder
from services.adapters.http.upstream import Origin
from services.adapters.ports import Clock
from services.core.outcomes import DropReason
from services.core.pods.table import Pod
from services.core.units import Duration, WallMs
from services.endpoint_picker.addresses import split
from services.endpoint_picker.doors.forward import Forward, Pool
from services.endpoint_picker.entry import Entry, EntryRefusedError
from services.endpoint_picker.intake import Intake, Reception
from services.endpoint_picker.lifecycle import Dropped, Lifecycle, Running
from services.endpoint_picker.observe import Observer
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import Pick
from services.wire.content_coding import CodingError, codings_of, decoded
from services.wire.control_headers import BadHeaderError
from services.wire.ext_proc.metadata import is_control
from services.wire.hand_off import HEADER, HandOff
from services.wire.http1.heads import forwardable_block, header_block
from services.wire.http1.limits import RequestLimits
from services.wire.http1.refusals import Refusal
from services.wire.http1.requests import Request
from services.wire.model_headers import model_headers
from services.wire.openai.errors import DROP_REASON_HEADER, ErrorAnswer, error_answer, refusal_answer
from services.wire.openai.requests import BadBodyError, model_list
from services.wire.openai.rewrite import ModelBack
from services.wire.openai.usage import read_usage
from services.wire.status import DoorReason

_LOG = logging.getLogger(__name__)

_ALIAS = b"/openai/v1/"
_ALIAS_BYTES = len(b"/openai")
_READABLE = frozenset({b"/v1/models", b"/readyz", b"/healthz"})
_SERVED = frozenset({b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings", b"/v1/responses"})
_HAND_OFF = HEADER.encode()
_CREDENTIALS = frozenset({b"authorization"})
DRAINED_HEADER = ("x-gir-drained", "true")
_PLAIN = ((b"content-type", b"text/plain; charset=utf-8"),)
_CODING: Final = b"content-encoding"
_TRACE: Final = b"traceparent"
_POST: Final = (b"POST", b"OPTIONS")
_READ: Final = (b"GET", b"HEAD", b"OPTIONS")
_ORIGINS_MAX: Final = 4096
"""Parsed addresses kept: more than a picker has pods."""


@dataclass(slots=True, eq=False)
class HttpDoor:
    """Answers requests; `handle`, `screen` and `refuse_malformed` are what an HTTP server calls.

    `black_hole` holds every answer, as if the cluster's network were gone; sockets stay open. `body_bytes_max`
    bounds what a coded body may decode to; the server bounds what is sent. `pool_total_ms` bounds the exchanges with
    the pods of some pools more narrowly than `timeouts`.
    """

    entry: Entry
    reception: Reception
    life: Lifecycle
    observer: Observer
    pool: Pool
    clock: Clock
    timeouts: ExchangeTimeouts
    body_bytes_max: int = RequestLimits().body_bytes
    pool_total_ms: Mapping[str, int] = field(default_factory=dict)
    _running: set[Forward] = field(default_factory=set)
    waiting: set["_Waiting"] = field(default_factory=set)
    _held: list[Callable[[], None]] = field(default_factory=list)
    _dark: bool = False

    def handle(self, request: Request, responder: Responder) -> None:
        """Answer one request, now or through a forward."""
        if self._dark:
            self._held.append(lambda: self.handle(request, responder) if responder.open else None)
            return
        path = _own_path(request)
        allowed = _POST if path in _SERVED else _READ if path in _READABLE else None
        if allowed is None:
            self._answer(responder, error_answer(DoorReason.UNKNOWN_PATH, "This path is not served here."))
        elif request.method == b"OPTIONS":
            responder.respond(204, ((b"allow", b", ".join(allowed)),))
        elif request.method not in allowed:
            self._answer(responder, _not_allowed(allowed))
        elif path in _SERVED:
            self._serve(request, responder, path)
        elif path == b"/readyz":
            ready = self.life.scheduler.ready and not self.entry.draining
            responder.respond(200 if ready else 503, _PLAIN, b"ready\n" if ready else b"no ready endpoint\n")
        elif path == b"/healthz":
            responder.respond(200, _PLAIN, b"ok\n")
        else:
            self._list_models(request, responder)

    def screen(self, request: Request, responder: Responder) -> bool:
        """Refuse from the head alone what may not enter; a prompt is not read where it must not be."""
        if self._dark or request.method != b"POST" or _own_path(request) not in _SERVED:
            return False
        try:
            self._enter(request, self.clock.wall_ms())
        except EntryRefusedError as error:
            self.refuse(responder, error.reason, error.message, error.retry_after)
            return True
        return False

    def refuse_malformed(self, refusal: Refusal, responder: Responder) -> None:
        """Answer what never became a request, in OpenAI's form."""
        answer = refusal_answer(refusal.status, refusal.reason, refusal.detail)
        if all(name != DROP_REASON_HEADER for name, _ in answer.headers):
            answer = replace(answer, headers=(*answer.headers, (DROP_REASON_HEADER, refusal.reason)))
        self._answer(responder, answer)

    def black_hole(self, on: bool) -> None:
        """Go dark, or surface: what was held goes on in its order."""
        self._dark = on
        if on:
            for forward in self._running:
                forward.go_dark()
            return
        for forward in tuple(self._running):
            forward.surface()
        held, self._held = self._held, []
        for answer in held:
            answer()

    def cancel_all(self) -> None:
        """Give up every running forward without an answer."""
        self._held.clear()
        for waiting in tuple(self.waiting):
            waiting.give_up()
        for forward in tuple(self._running):
            forward.stop()
            self.ended(forward, Outcome.CANCELLED)

    # The steps of one request

    def _serve(self, request: Request, responder: Responder, path: bytes) -> None:
        now_ms = self.clock.wall_ms()
        try:
            hand_off = self._enter(request, now_ms)
            body, coding = request.body, request.header(_CODING)
            if coding is not None:
                body = decoded(body, codings_of(coding), self.body_bytes_max)
            intake = self.reception.read(hand_off, body, request.header)
        except EntryRefusedError as error:
            self.refuse(responder, error.reason, error.message, error.retry_after)
            return
        except CodingError as error:
            self._answer(responder, error_answer(error.reason, error.message))
            return
        except BadBodyError as error:
            self._answer(responder, error_answer(error.reason, error.message, param=error.param))
            return
        except BadHeaderError as error:
            self._answer(responder, error_answer(DoorReason.INVALID_VALUE, str(error), param=error.header))
            return
        _Waiting(self, responder, path).begin(intake)

    def _enter(self, request: Request, now_ms: WallMs) -> HandOff | None:
        hand_off = self._authenticate(request, now_ms)
        self.entry.admit(hand_off, now_ms)
        return hand_off

    def _authenticate(self, request: Request, now_ms: WallMs) -> HandOff | None:
        token = request.header(_HAND_OFF)
        return self.entry.authenticate(None if token is None else token.decode("latin-1"), now_ms)

    def timeouts_until(self, deadline_ms: WallMs | None, pool: str) -> ExchangeTimeouts:
        """Return the timeouts of an exchange with `pool` that begins now, unwanted after `deadline_ms`."""
        total_ms = min(self.timeouts.total_ms, self.pool_total_ms.get(pool, self.timeouts.total_ms))
        if deadline_ms is not None:
            total_ms = min(total_ms, max(1, deadline_ms - self.clock.wall_ms()))
        return (
            self.timeouts if total_ms == self.timeouts.total_ms else replace(self.timeouts, total_ms=total_ms)
        )

    def _list_models(self, request: Request, responder: Responder) -> None:
        try:
            self._authenticate(request, self.clock.wall_ms())
        except EntryRefusedError as error:
            self.refuse(responder, error.reason, error.message)
            return
        models = list(self.life.declared.models.names())
        responder.respond(200, ((b"content-type", b"application/json"),), model_list(models))

    # ForwardOwner

    def forward(self, forward: Forward) -> None:
        """Run a forward; what was picked in the dark waits for the light."""
        self._running.add(forward)
        forward.responder.on_disconnect = forward.client_gone
        if self._dark:
            self._held.append(forward.start)
        else:
            forward.start()

    def origin(self, pod: Pod) -> Origin:
        """Return where a pod listens."""
        return _origin(pod.address)

    def connect_failed(self, pod: Pod) -> None:
        """Take the pod out at once."""
        self.observer.apply(self.life.scheduler.table.connect_failed(pod.id, self.clock.now()))

    def committed(self, request: Running) -> None:
        """The request can no longer be evicted."""
        self.life.committed(request)

    def move(self, request: Running, pod: Pod) -> None:
        """Count the request on another pod."""
        self.life.move(request, pod)

    def ended(self, forward: Forward, outcome: Outcome) -> None:
        """Forget a forward and free its pod's place."""
        self._running.discard(forward)
        exchange = forward.exchange
        if exchange is None or outcome is not Outcome.SUCCEEDED:
            self.life.end(forward.request, outcome)
            return
        observer = exchange.observer
        self.life.end(forward.request, outcome, read_usage(observer.usage_object()), observer.bytes_seen)

    def refuse(
        self,
        responder: Responder,
        reason: DropReason | DoorReason,
        message: str,
        retry_after: Duration | None = None,
    ) -> None:
        """Answer a refusal in OpenAI's form; a draining cluster says so in a header that re-dispatches."""
        if self._dark:
            self._held.append(lambda: self.refuse(responder, reason, message, retry_after))
            return
        answer = error_answer(reason, message, retry_after=retry_after)
        if reason is DropReason.DRAINED:
            answer = replace(answer, headers=(*answer.headers, DRAINED_HEADER))
        self._answer(responder, answer)

    @staticmethod
    def _answer(responder: Responder, answer: ErrorAnswer) -> None:
        headers = [(name.encode(), value.encode()) for name, value in answer.headers]
        responder.respond(answer.status, headers, answer.body)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that has no pod yet; it becomes a forward or is refused."""

    door: HttpDoor
    responder: Responder
    path: bytes
    request: Running | None = None
    running: Forward | None = None

    def begin(self, intake: Intake) -> None:
        """Ask for a pod; the answer may come at once."""
        request = self.request = self.door.life.start(intake, self)
        if request.pick is None and not request.ended:
            self.door.waiting.add(self)
            self.responder.on_disconnect = self.give_up

    def give_up(self) -> None:
        """Nobody waits for the answer any more."""
        self.door.waiting.discard(self)
        if self.request is not None:
            self.door.life.end(self.request, Outcome.CANCELLED)

    def _upstream(self, request: Running, body: bytes) -> UpstreamRequest:
        """Return what goes to the pod: `body` if it was rewritten, else the caller's own bytes, coded as they came."""
        client = self.responder.request
        without = _CREDENTIALS
        # What steers routing ends here, so that no caller steers a model server or its sidecar.
        steering = [name for name, _ in client.headers if is_control(name)]
        if steering:
            without = without.union(steering)
        block = b"" if request.resolved is None else header_block(model_headers(request.resolved))
        if request.told is not None and request.told.span is not None:
            without = without.union((_TRACE,))
            block += b"traceparent: %b\r\n" % request.told.span.traceparent.encode()
        if body is request.intake.body:
            body = client.body
        else:
            without = without.union((_CODING,))
        _, mark, query = client.target.partition(b"?")
        block += forwardable_block(client.headers, without=without)
        return UpstreamRequest(client.method, self.path + mark + query, block, body)

    # Answer

    def picked(self, request: Running, pick: Pick, body: bytes) -> None:
        """Send the request to its pod."""
        self.door.waiting.discard(self)
        door, responder, resolved = self.door, self.responder, request.resolved
        rewriter = None
        if resolved is not None and resolved.target_model != resolved.client_model:
            rewriter = ModelBack(resolved.target_model, resolved.client_model)
        self.running = Forward(
            door,
            request,
            pick,
            self._upstream(request, body),
            responder,
            door.timeouts_until(request.intake.deadline_ms, pick.pod.pool),
            rewriter,
            sessions=door.life.sessions is not None,
        )
        door.forward(self.running)

    def dropped(self, dropped: Dropped) -> None:
        """Tell the caller."""
        self.door.waiting.discard(self)
        self.door.refuse(self.responder, dropped.reason, dropped.message, dropped.retry_after)

    def evicted(self, dropped: Dropped) -> None:
        """Give the pod up before its answer has begun, and tell the caller."""
        if self.running is not None:
            self.running.evict(dropped.reason, dropped.message, dropped.retry_after)


def _not_allowed(allowed: tuple[bytes, ...]) -> ErrorAnswer:
    """Return the refusal of a method, with those that are allowed (RFC 9110 15.5.6)."""
    names = b", ".join(allowed).decode()
    answer = error_answer(DoorReason.METHOD_NOT_ALLOWED, f"Only {allowed[0].decode()} is allowed here.")
    return replace(answer, headers=(*answer.headers, ("allow", names)))


@lru_cache(maxsize=_ORIGINS_MAX)
def _origin(address: str) -> Origin:
    return Origin(*split(address))


def _own_path(request: Request) -> bytes:
    """Return the path as model servers know it: `/openai/v1/...` is another name of `/v1/...`."""
    path = request.path
    return path[_ALIAS_BYTES:] if path.startswith(_ALIAS) else path
