"""The pod's HTTP surface: vLLM's OpenAI endpoints, its metrics and probes, and the fault knobs.

Decides what happens to each request: hang, forced error, injected failure, refusal, or an exchange with
the engine. Sockets are in `sockets`, the answer's life in `exchange`, words on the wire in `answers`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from services.adapters.http.responder import Header, Responder
from services.adapters.ports import Clock
from services.simulator.answers import AnswerForm, error_document, model_list
from services.simulator.completions import ApiError, Generation, check_length, read_chat, read_completion
from services.simulator.driver import EngineDriver
from services.simulator.exchange import JSON, Exchange, Ticket
from services.simulator.faults import Crash, Faults, MetricsFault, ProbeFault, updated
from services.simulator.metrics_page import Gauges, MetricNames, MetricsPage
from services.wire.http1.refusals import Refusal
from services.wire.http1.requests import Request

PROMETHEUS: Header = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_GAUGES = {
    MetricsFault.NAN: Gauges.NAN,
    MetricsFault.MISSING_KV: Gauges.MISSING_KV,
    MetricsFault.ZERO: Gauges.ZERO,
}
_MS_PER_S = 1000

Handler = Callable[[Request, Responder], None]


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Who the pod says it is: name, port, vLLM version, models (the base model first, then aliases)."""

    pod: str
    port: int
    version: str
    models: tuple[str, ...]


class PodServer:
    """Answers every request to one pod. `crashes` carries out the crash knob, for the ways this pod has."""

    def __init__(
        self,
        identity: PodIdentity,
        driver: EngineDriver,
        clock: Clock,
        names: MetricNames,
        faults: Faults,
        crashes: Mapping[Crash, Callable[[], None]],
    ) -> None:
        self._identity = identity
        self._driver = driver
        self._clock = clock
        self._crashes = crashes
        self._arrivals = 0
        self._headers: tuple[Header, ...] = (
            (b"x-inference-pod", identity.pod.encode()),
            (b"x-inference-port", b"%d" % identity.port),
        )
        self._page = MetricsPage(names, identity.models[0], driver.engine)
        self._old_page = MetricsPage(MetricNames.OLD, identity.models[0], driver.engine)
        self._frozen_page: bytes | None = None
        self._models = model_list(identity.models, driver.engine.profile.max_model_len)
        self._routes: Mapping[bytes, Mapping[bytes, Handler]] = {
            b"/v1/chat/completions": {b"POST": self._chat},
            b"/v1/completions": {b"POST": self._completion},
            b"/v1/models": {b"GET": self._list_models},
            b"/metrics": {b"GET": self._metrics},
            b"/health": {b"GET": self._probe},
            b"/ping": {b"GET": self._probe, b"POST": self._probe},
            b"/version": {b"GET": self._version},
            b"/admin/config": {b"GET": self._show_faults, b"POST": self._change_faults},
        }
        self.faults = faults
        driver.slow_down(faults.slowdown())

    def handle(self, request: Request, responder: Responder) -> None:
        """Answer one request, now or later; the `RequestHandler` of the pod's connections."""
        try:
            self._route(request)(request, responder)
        except ApiError as error:
            self._refuse(error, responder)

    def refuse(self, refusal: Refusal, responder: Responder) -> None:
        """Answer what never became a request in the same error form."""
        self._refuse(ApiError(refusal.status, "BadRequestError", refusal.detail), responder)

    def configure(self, change: Mapping[str, object]) -> None:
        """Change some fault knobs; raises ValueError, and changes nothing, when one is wrong."""
        faults = updated(self.faults, change)
        if faults.metrics is not MetricsFault.FROZEN:
            self._frozen_page = None
        self.faults = faults
        self._driver.slow_down(faults.slowdown())

    def _route(self, request: Request) -> Handler:
        methods = self._routes.get(request.path)
        if methods is None:
            raise ApiError(404, "NotFoundError", "Not Found")
        handler = methods.get(request.method)
        if handler is None:
            raise ApiError(405, "MethodNotAllowedError", "Method Not Allowed")
        return handler

    # Inference

    def _chat(self, request: Request, responder: Responder) -> None:
        self._infer(request, responder, read_chat, chat=True)

    def _completion(self, request: Request, responder: Responder) -> None:
        self._infer(request, responder, read_completion, chat=False)

    def _infer(
        self, request: Request, responder: Responder, read: Callable[[bytes], Generation], *, chat: bool
    ) -> None:
        if self.faults.hang:
            return
        ticket = self._ticket(request)
        self._fail_as_asked(request, ticket)
        generation = read(request.body)
        if generation.model not in self._identity.models:
            raise ApiError(404, "NotFoundError", f"The model `{generation.model}` does not exist.", "model")
        check_length(generation, self._driver.engine.profile.max_model_len)
        form = AnswerForm(
            chat=chat,
            answer_id=f"{'chatcmpl' if chat else 'cmpl'}-{ticket.key}",
            model=generation.model,
            created_s=self._clock.wall_ms() // _MS_PER_S,
        )
        Exchange(generation, form, ticket, self._driver, responder, self._headers).begin()

    def _ticket(self, request: Request) -> Ticket:
        self._arrivals += 1
        given = request.header(b"x-request-id")
        key = given.decode("latin-1") if given else f"{self._identity.pod}-{self._arrivals}"
        return Ticket(key, self._arrivals)

    def _fail_as_asked(self, request: Request, ticket: Ticket) -> None:
        wanted = request.header(b"x-return-error")
        if wanted is not None:
            if not (wanted.isdigit() and 400 <= int(wanted) <= 599):
                raise ApiError(400, "BadRequestError", "X-Return-Error: expected a status from 400 to 599")
            raise ApiError(int(wanted), "InjectedError", f"Status {int(wanted)} was asked for.")
        failure = self.faults.injected(self._identity.pod, ticket.key)
        if failure is not None:
            raise ApiError(failure.status, failure.error_type, failure.message)

    # The rest

    def _list_models(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        self._answer(responder, self._models)

    def _metrics(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        fault = self.faults.metrics
        if fault is MetricsFault.HANG:
            return
        page = self._frozen_page
        if page is None:
            self._driver.settle()
            source = self._old_page if fault is MetricsFault.OLD_NAMES else self._page
            page = source.render(_GAUGES.get(fault, Gauges.TRUE))
            if fault is MetricsFault.FROZEN:
                self._frozen_page = page
        responder.respond(200, [PROMETHEUS, *self._headers], page)

    def _probe(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        if self.faults.probes is ProbeFault.HANG:
            return
        responder.respond(503 if self.faults.probes is ProbeFault.FAIL else 200, self._headers)

    def _version(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        self._answer(responder, orjson.dumps({"version": self._identity.version}))

    def _show_faults(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        self._answer(responder, orjson.dumps(self.faults.document()))

    def _change_faults(self, request: Request, responder: Responder) -> None:
        try:
            change = _knobs(request.body)
            crash = self._crash_for(change.pop("crash", None))
            self.configure(change)
        except ValueError as error:
            raise ApiError(400, "BadRequestError", str(error)) from None
        if crash is not None:
            crash()
            return
        self._answer(responder, orjson.dumps(self.faults.document()))

    def _crash_for(self, word: object) -> Callable[[], None] | None:
        if word is None:
            return None
        for crash, carry_out in self._crashes.items():
            if crash.value == word:
                return carry_out
        ways = " or ".join(crash.value for crash in self._crashes)
        raise ValueError(f"crash: this pod can only do {ways}, not {word!r}")

    def _answer(self, responder: Responder, body: bytes) -> None:
        responder.respond(200, [JSON, *self._headers], body)

    def _refuse(self, error: ApiError, responder: Responder) -> None:
        headers: Sequence[Header] = [JSON, *self._headers]
        if error.status == 429:
            headers = [*headers, (b"retry-after", b"1")]
        responder.respond(error.status, headers, error_document(error))


def _knobs(body: bytes) -> dict[str, object]:
    """Return the object in `body`; raises ValueError (orjson's own for what is not JSON)."""
    change = orjson.loads(body)
    if isinstance(change, dict):
        return change
    raise ValueError("expected a JSON object of knobs")
