"""The OpenAI-compatible HTTP door of a router: paths, identity, body, then the one life cycle.

Translates only: authentication is `adapters/auth`, the body is `wire/openai`, where a request goes is
`core`. What can be refused from the head alone is refused before the body is read: an unknown
caller, and a caller whose data may not pass through this door's jurisdiction.
"""

from collections.abc import Callable
from typing import Final

from services.adapters.auth.authenticator import Authenticator
from services.adapters.auth.tokens import TokenRefusal, TokenRefusedError
from services.adapters.http.responder import Responder
from services.core.inference import InferenceRequest, ModelName, RequestId, Tenant
from services.core.locality import Locality
from services.core.outcomes import DropReason, Rejected
from services.core.residency import ANYWHERE, narrow
from services.core.units import Duration, WallMs
from services.global_router.answers import respond_error
from services.global_router.lifecycle import LifeCycle
from services.global_router.records import DecisionRecord
from services.wire.client_head import ClientHead, controls_of, read_head
from services.wire.control_headers import BadHeaderError, Controls
from services.wire.http1.refusals import Refusal
from services.wire.http1.requests import Request
from services.wire.openai.errors import ErrorAnswer, error_answer, refusal_answer
from services.wire.openai.requests import BadBodyError, ask_for_usage, model_list, read_body
from services.wire.status import DoorReason

PREFIXES: Final = (b"/openai/v1/", b"/v1/")
INFERENCE: Final = frozenset((b"chat/completions", b"completions"))
INFERENCE_PATHS: Final = frozenset(prefix + path for prefix in PREFIXES for path in INFERENCE)
MODEL_PATHS: Final = frozenset(prefix + b"models" for prefix in PREFIXES)

_JSON: Final = (b"content-type", b"application/json")
_TOKEN_MESSAGES: Final = {
    TokenRefusal.MISSING: "You didn't provide a token. Send it as 'Authorization: Bearer TOKEN'.",
    TokenRefusal.EXPIRED: "The token has expired.",
    TokenRefusal.NOT_YET_VALID: "The token is not valid yet; check the clocks.",
}
_TOKEN_MESSAGE: Final = "Incorrect token provided."  # noqa: S105 -- a sentence, not a secret


class HttpDoor:
    """Handles the requests of one HTTP server. `silent`: answer nothing, as a door behind a dead network."""

    def __init__(
        self,
        life: LifeCycle,
        authenticator: Authenticator,
        new_id: Callable[[], RequestId],
        here: Locality,
    ) -> None:
        self._life = life
        self._authenticator = authenticator
        self._new_id = new_id
        self._here = here
        self.silent = False
        self.refused: dict[DoorReason, int] = dict.fromkeys(DoorReason, 0)

    # --- Entrances ----------------------------------------------------------------------------------

    def handle(self, request: Request, responder: Responder) -> None:
        """Answer one complete request (a `RequestHandler`)."""
        if self.silent:
            return
        # The target is the path but for a query, which inference requests do not have.
        path = request.target if request.target in INFERENCE_PATHS else request.path
        if path in INFERENCE_PATHS:
            if request.method != b"POST":
                self._refuse(responder, DoorReason.METHOD_NOT_ALLOWED, "Use POST.")
                return
            self._infer(request, responder)
        elif path in MODEL_PATHS:
            self._models(request, responder)
        elif path == b"/healthz":
            responder.respond(200, [_JSON], b'{"status":"alive"}')
        elif path == b"/readyz":
            ready = self._life.view.ready
            responder.respond(
                200 if ready else 503, [_JSON], b'{"ready":true}' if ready else b'{"ready":false}'
            )
        else:
            self._refuse(responder, DoorReason.UNKNOWN_PATH, f"Unknown URL: {path.decode('latin-1')[:200]}.")

    def screen(self, request: Request, responder: Responder) -> bool:
        """Judge a head whose body has not arrived; True when it was answered and the body need not be read."""
        if self.silent or request.path not in INFERENCE_PATHS:
            return False
        return self._identify(_head_of(request), responder, self._life.clock.wall_ms()) is None

    def refuse(self, refusal: Refusal, responder: Responder) -> None:
        """Answer a request that never became one, in OpenAI's form (a `RefusalHandler`)."""
        answer = refusal_answer(refusal.status, refusal.reason, refusal.detail)
        responder.respond(answer.status, _encoded(answer), answer.body)

    # --- Inference ----------------------------------------------------------------------------------

    def _infer(self, request: Request, responder: Responder) -> None:
        life = self._life
        now_ms = life.clock.wall_ms()
        head = _head_of(request)
        identified = self._identify(head, responder, now_ms)
        if identified is None:
            return
        tenant, controls = identified
        if head.compressed:
            self._refuse(responder, DoorReason.UNSUPPORTED_ENCODING, "Send the body uncompressed.")
            return
        try:
            read = read_body(request.body)
        except BadBodyError as error:
            self._refuse(responder, error.reason, error.message, error.param)
            return
        now = life.clock.now()
        rule, asked = tenant.grants.residency, controls.residency
        inference = InferenceRequest(
            self._new_id(),
            tenant,
            read.model,
            rule if asked is ANYWHERE else narrow(rule, asked),
            controls.traffic_class,
            min(0, tenant.grants.priority_ceiling),
            read.prompt_tokens,
            read.max_output_tokens,
            read.stream,
            session=controls.session,
        )
        decision = life.decide(inference, now)
        prepared = life.view.current
        record = DecisionRecord(
            inference.request_id,
            controls.client_request_id,
            "http",
            tenant.id,
            read.model,
            controls.traffic_class,
            now,
            now_ms,
            prepared.revision,
            prepared.snapshot.version,
            life.clock.now() - now,
        )
        if isinstance(decision, Rejected):
            answer = error_answer(decision.reason, decision.message, retry_after=decision.retry_after)
            life.note_rejected(record, decision)
            respond_error(responder, record, answer)
            return
        record.draw, record.panic = decision.explanation.draw, decision.explanation.panic
        life.serve(
            responder,
            inference,
            decision,
            record,
            head.block,
            ask_for_usage(request.body, read) if read.stream else request.body,
            drop_usage=read.stream and not read.usage_requested,
        )

    def _identify(
        self, head: ClientHead, responder: Responder, now_ms: WallMs
    ) -> tuple[Tenant, Controls] | None:
        """Return who asks and how, or None after having answered why not."""
        try:
            tenant = self._authenticator.authenticate(head.authorization, now_ms)
            controls = controls_of(head)
        except TokenRefusedError as error:
            if self._life.view.policy is None:
                self._refuse(responder, DoorReason.NOT_READY, "This router has no policy yet.")
            else:
                message = _TOKEN_MESSAGES.get(error.refusal, _TOKEN_MESSAGE)
                self._refuse(responder, DoorReason.UNAUTHENTICATED, message)
            return None
        except BadHeaderError as error:
            self._refuse(responder, DoorReason.INVALID_VALUE, str(error), error.header)
            return None
        for rule in (tenant.grants.residency, controls.residency):
            if rule is not ANYWHERE and not rule.allows(self._here):
                self._deny_transit(responder)
                return None
        return tenant, controls

    def _deny_transit(self, responder: Responder) -> None:
        self._life.tallies.rejected[DropReason.JURISDICTION_DENIED] += 1
        answer = error_answer(
            DropReason.JURISDICTION_DENIED,
            f"Requests under this residency rule may not pass through jurisdiction '{self._here.jurisdiction}';"
            " use a door inside the allowed set.",
        )
        responder.respond(answer.status, _encoded(answer), answer.body)

    # --- Models -------------------------------------------------------------------------------------

    def _models(self, request: Request, responder: Responder) -> None:
        if request.method not in (b"GET", b"HEAD"):
            self._refuse(responder, DoorReason.METHOD_NOT_ALLOWED, "Use GET.")
            return
        identified = self._identify(_head_of(request), responder, self._life.clock.wall_ms())
        if identified is not None:
            responder.respond(200, [_JSON], model_list(self._granted(identified[0])))

    def _granted(self, tenant: Tenant) -> list[ModelName]:
        """Return policy ∩ grants, in policy order; a grant of a model covers its aliases."""
        policy = self._life.view.current.policy
        granted = tenant.grants.models
        names: list[ModelName] = []
        for model in policy.models if policy is not None else ():
            whole = granted is None or model.name in granted
            names.extend(
                name
                for name in (model.name, *model.aliases)
                if whole or (granted is not None and name in granted)
            )
        return names

    # --- Refusals -----------------------------------------------------------------------------------

    def _refuse(
        self,
        responder: Responder,
        reason: DoorReason,
        message: str,
        param: str | None = None,
        retry_after: Duration | None = None,
    ) -> None:
        self.refused[reason] += 1
        answer = error_answer(reason, message, param=param, retry_after=retry_after)
        responder.respond(answer.status, _encoded(answer), answer.body)


def _head_of(request: Request) -> ClientHead:
    """Read the head, or take what was read when the connection sent it before."""
    recurring = request.recurring
    if recurring is None:
        return read_head(request.headers)
    reading = recurring.reading
    if not isinstance(reading, ClientHead):
        reading = recurring.reading = read_head(request.headers)
    return reading


def _encoded(answer: ErrorAnswer) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in answer.headers]
