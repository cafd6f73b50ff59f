"""The pod's HTTP surface: its engine's endpoints as vLLM or SGLang has them, and the fault knobs.

Decides what happens to each request: hang, forced error, injected failure, refusal, or an exchange with
one rank's engine. Sockets are in `sockets`, the answer's life in `exchange`, words on the wire in `answers`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from services.adapters.http.responder import Header, Responder
from services.adapters.ports import Clock
from services.simulator.answers import AnswerForm, error_document
from services.simulator.completions import (
    ApiError,
    Generation,
    bad_request,
    check_length,
    read_chat,
    read_completion,
    read_tokenize,
)
from services.simulator.driver import EngineDriver
from services.simulator.exchange import JSON, Exchange, Ticket
from services.simulator.exposition import Gauges
from services.simulator.faults import Crash, Faults, KvEventsFault, MetricsFault, ProbeFault, updated
from services.simulator.flavours import Flavour, Page
from services.simulator.kv_publisher import KvPublisher
from services.simulator.served_models import ServedModels
from services.simulator.tokens import token_ids
from services.wire.http1.refusals import Refusal
from services.wire.http1.requests import Request

PROMETHEUS: Header = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")
_GAUGES = {
    MetricsFault.NAN: Gauges.NAN,
    MetricsFault.MISSING_KV: Gauges.MISSING_KV,
    MetricsFault.ZERO: Gauges.ZERO,
}
_MS_PER_S = 1000

Handler = Callable[[Request, Responder], None]


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Who the pod says it is: name, port, engine and its version, base model."""

    pod: str
    port: int
    flavour: Flavour
    version: str
    model: str


@dataclass(frozen=True, slots=True)
class PodParts:
    """What one pod's server stands on, all of it made for this pod.

    `drivers` and `publishers` have one entry per rank (`publishers` none when there are no KV events);
    `old_page` is what the knob `metrics: old_names` shows; `crashes` carries out the crash knob, for the
    ways this pod has.
    """

    drivers: Sequence[EngineDriver]
    publishers: Sequence[KvPublisher]
    models: ServedModels
    page: Page
    old_page: Page
    crashes: Mapping[Crash, Callable[[], None]]


class PodServer:
    """Answers every request to one pod."""

    def __init__(self, identity: PodIdentity, parts: PodParts, clock: Clock, faults: Faults) -> None:
        self._identity = identity
        self._parts = parts
        self._clock = clock
        self._arrivals = 0
        self._headers: tuple[Header, ...] = (
            (b"x-inference-pod", identity.pod.encode()),
            (b"x-inference-port", b"%d" % identity.port),
        )
        self._frozen_page: bytes | None = None
        self._profile = parts.drivers[0].engine.profile
        self._routes = self._routed()
        self.faults = faults
        self._act_on(faults)

    def _routed(self) -> Mapping[bytes, Mapping[bytes, Handler]]:
        probe: Mapping[bytes, Handler] = {b"GET": self._probe}
        routes: dict[bytes, Mapping[bytes, Handler]] = {
            b"/v1/chat/completions": {b"POST": self._chat},
            b"/v1/completions": {b"POST": self._completion},
            b"/v1/models": {b"GET": self._list_models},
            b"/tokenize": {b"POST": self._tokenize},
            b"/metrics": {b"GET": self._metrics},
            b"/health": probe,
            b"/ping": {b"GET": self._probe, b"POST": self._probe},
            b"/admin/config": {b"GET": self._show_faults, b"POST": self._change_faults},
        }
        adapters: tuple[bytes, bytes]
        if self._identity.flavour is Flavour.SGLANG:
            adapters = b"/load_lora_adapter", b"/unload_lora_adapter"
            routes |= {
                b"/health_generate": probe,
                b"/get_server_info": {b"GET": self._server_info},
                b"/server_info": {b"GET": self._server_info},
                b"/flush_cache": {b"GET": self._reset_prefix_cache, b"POST": self._reset_prefix_cache},
            }
        else:
            adapters = b"/v1/load_lora_adapter", b"/v1/unload_lora_adapter"
            routes |= {
                b"/version": {b"GET": self._version},
                b"/reset_prefix_cache": {b"POST": self._reset_prefix_cache},
                b"/sleep": {b"POST": self._sleep},
                b"/wake_up": {b"POST": self._wake},
                b"/is_sleeping": {b"GET": self._is_sleeping},
            }
        if self._profile.max_loras:
            routes[adapters[0]] = {b"POST": self._load_adapter}
            routes[adapters[1]] = {b"POST": self._unload_adapter}
        return routes

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
        self._act_on(faults)

    def _act_on(self, faults: Faults) -> None:
        for driver in self._parts.drivers:
            driver.slow_down(faults.slowdown())
        for publisher in self._parts.publishers:
            publisher.losing = faults.kv_events is KvEventsFault.LOSE

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
        lora = self._parts.models.adapter(generation.model)
        check_length(generation, self._profile.max_model_len)
        driver = self._rank(request)
        form = AnswerForm(
            chat=chat,
            answer_id=f"{'chatcmpl' if chat else 'cmpl'}-{ticket.key}",
            model=generation.model,
            created_s=self._clock.wall_ms() // _MS_PER_S,
        )
        Exchange(generation, lora, form, ticket, driver, responder, self._headers).begin()

    def _rank(self, request: Request) -> EngineDriver:
        """Return the rank that the request names, else the least loaded one, ties going round."""
        drivers = self._parts.drivers
        wanted = request.header(b"x-data-parallel-rank")
        if wanted is None:
            turn = self._arrivals % len(drivers)
            return min((*drivers[turn:], *drivers[:turn]), key=_load)
        if not wanted.isdigit() or int(wanted) >= len(drivers):
            raise bad_request(f"X-data-parallel-rank: expected 0 to {len(drivers) - 1}")
        return drivers[int(wanted)]

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
        self._answer(responder, self._parts.models.document())

    def _load_adapter(self, request: Request, responder: Responder) -> None:
        self._say(responder, self._parts.models.load(request.body))

    def _unload_adapter(self, request: Request, responder: Responder) -> None:
        self._say(responder, self._parts.models.unload(request.body))

    def _tokenize(self, request: Request, responder: Responder) -> None:
        model, prompt = read_tokenize(request.body)
        if model:
            self._parts.models.adapter(model)
        document = {
            "count": prompt.tokens,
            "max_model_len": self._profile.max_model_len,
            "tokens": token_ids(prompt.content),
            "token_strs": None,
        }
        self._answer(responder, orjson.dumps(document))

    def _reset_prefix_cache(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        done = [driver.reset_prefix_cache() for driver in self._parts.drivers]
        # vLLM says 200 whatever came of it; SGLang 400 while requests are in flight.
        refused = self._identity.flavour is Flavour.SGLANG and not all(done)
        responder.respond(400 if refused else 200, self._headers)

    def _sleep(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        for driver in self._parts.drivers:
            driver.sleep()
        responder.respond(200, self._headers)

    def _wake(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        for driver in self._parts.drivers:
            driver.wake()
        responder.respond(200, self._headers)

    def _is_sleeping(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        asleep = self._parts.drivers[0].engine.asleep
        self._answer(responder, orjson.dumps({"is_sleeping": asleep}))

    def _metrics(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        fault = self.faults.metrics
        if fault is MetricsFault.HANG:
            return
        page = self._frozen_page
        if page is None:
            for driver in self._parts.drivers:
                driver.settle()
            source = self._parts.old_page if fault is MetricsFault.OLD_NAMES else self._parts.page
            page = source.render(self._clock.now(), self._clock.wall_ms(), _GAUGES.get(fault, Gauges.TRUE))
            if fault is MetricsFault.FROZEN:
                self._frozen_page = page
        responder.respond(200, [PROMETHEUS, *self._headers], page)

    def _probe(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        if self.faults.probes is ProbeFault.HANG:
            return
        responder.respond(503 if self.faults.probes is ProbeFault.FAIL else 200, self._headers)

    def _version(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        self._answer(responder, orjson.dumps({"version": self._identity.version}))

    def _server_info(self, request: Request, responder: Responder) -> None:  # noqa: ARG002 -- a Handler
        """Answer with the part of SGLang's server arguments and scheduler facts that this pod has."""
        profile = self._profile
        document = {
            "model_path": self._identity.model,
            "served_model_name": self._identity.model,
            "page_size": profile.block_size,
            "dp_size": len(self._parts.drivers),
            "max_running_requests": profile.max_num_seqs,
            "context_length": profile.max_model_len,
            "chunked_prefill_size": profile.max_num_batched_tokens,
            "disable_radix_cache": not profile.prefix_caching,
            "max_loras_per_batch": profile.max_loras,
            "status": "ready",
            "max_total_num_tokens": profile.num_gpu_blocks * profile.block_size,
            "version": self._identity.version,
        }
        self._answer(responder, orjson.dumps(document))

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
        for crash, carry_out in self._parts.crashes.items():
            if crash.value == word:
                return carry_out
        ways = " or ".join(crash.value for crash in self._parts.crashes)
        raise ValueError(f"crash: this pod can only do {ways}, not {word!r}")

    def _say(self, responder: Responder, text: str) -> None:
        responder.respond(200, [TEXT, *self._headers], text.encode())

    def _answer(self, responder: Responder, body: bytes) -> None:
        responder.respond(200, [JSON, *self._headers], body)

    def _refuse(self, error: ApiError, responder: Responder) -> None:
        headers: Sequence[Header] = [JSON, *self._headers]
        if error.status == 429:
            headers = [*headers, (b"retry-after", b"1")]
        responder.respond(error.status, headers, error_document(error))


def _load(driver: EngineDriver) -> int:
    return driver.engine.running + driver.engine.waiting


def _knobs(body: bytes) -> dict[str, object]:
    """Return the object in `body`; raises ValueError (orjson's own for what is not JSON)."""
    change = orjson.loads(body)
    if isinstance(change, dict):
        return change
    raise ValueError("expected a JSON object of knobs")
