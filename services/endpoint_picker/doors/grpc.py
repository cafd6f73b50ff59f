"""LocalPicker over gRPC: which pod, for callers that go there themselves, and how it ended.

The same entry check and the same picks as the HTTP door. Also the standard health service, with liveness and
readiness apart, as endpoint pickers of the field answer it. Nothing is forwarded here.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from services.adapters.ports import Clock, Ids
from services.core.inference import InferenceRequest, ModelName
from services.core.outcomes import DropReason, Rejected
from services.core.pods.table import Pod
from services.core.units import Duration, Instant, seconds
from services.endpoint_picker.entry import Entry, EntryRefusedError, direct_request, request_of
from services.endpoint_picker.observe import Observer
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import LocalScheduler, Pick
from services.wire.errors import UndecodableError
from services.wire.gen.gir.v1 import picker_pb2, picker_pb2_grpc
from services.wire.hand_off import HEADER, HandOff
from services.wire.openai.errors import DROP_REASON_HEADER
from services.wire.routing_codec import decode_pick, encode_explanation, whole_ms
from services.wire.status import STATUS, DoorReason

PICK_LIFETIME = seconds(3600)
"""The longest a request may take; a pick whose Complete never came stops counting then."""
PICKS_MAX = 100_000
"""Open picks kept; beyond this the oldest stops counting, so that callers without Complete cost no memory."""
LIVENESS = "liveness"
READINESS = "readiness"
RETRY_AFTER_MS = "retry-after-ms"

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OUTCOMES = {
    picker_pb2.OUTCOME_SUCCEEDED: Outcome.SUCCEEDED,
    picker_pb2.OUTCOME_CONNECT_FAILED: Outcome.CONNECT_FAILED,
    picker_pb2.OUTCOME_GATEWAY_ERROR: Outcome.GATEWAY_ERROR,
    picker_pb2.OUTCOME_BROKEN_OFF: Outcome.BROKEN_OFF,
    picker_pb2.OUTCOME_SATURATED: Outcome.SATURATED,
    picker_pb2.OUTCOME_CANCELLED: Outcome.CANCELLED,
}
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@dataclass(slots=True)
class _Open:
    pick: Pick
    since: Instant


@dataclass(slots=True, eq=False)
class PickerService(picker_pb2_grpc.LocalPickerServicer):
    """The servicer. `expire` is called from time to time."""

    entry: Entry
    scheduler: LocalScheduler
    observer: Observer
    clock: Clock
    ids: Ids
    _open: dict[str, _Open] = field(default_factory=dict)

    async def Pick(  # noqa: N802 -- named by the proto
        self, request: picker_pb2.PickRequest, context: _Context
    ) -> picker_pb2.PickResponse:
        """Return the pod for one request."""
        now_ms = self.clock.wall_ms()
        try:
            hand_off = self.entry.authenticate(_token(context), now_ms)
            self.entry.admit(hand_off, now_ms)
            inference = self._inference(request, hand_off)
        except EntryRefusedError as error:
            await _refuse(context, error.reason, error.message, error.retry_after)
        except UndecodableError as error:
            await _refuse(context, DoorReason.INVALID_VALUE, str(error))
        excluded = frozenset(request.excluded_endpoints)
        tried = [pod.id for pod in self.scheduler.table if pod.address in excluded]
        now = self.clock.now()
        picked = self.scheduler.pick(inference, now, tried=tried, verbose=request.explain)
        if isinstance(picked, Rejected):
            await _refuse(context, picked.reason, picked.message, picked.retry_after)
        pick_id = self.ids.request_id()
        if len(self._open) >= PICKS_MAX:
            self._release(next(iter(self._open)))
        self._open[pick_id] = _Open(picked, now)
        return picker_pb2.PickResponse(
            pick_id=pick_id,
            request_id=inference.request_id,
            endpoint=_endpoint(picked.pod),
            fallbacks=[_endpoint(pod) for pod in picked.fallbacks],
            explanation=encode_explanation(picked.explanation) if request.explain else None,
        )

    async def Complete(  # noqa: N802 -- named by the proto
        self, request: picker_pb2.CompleteRequest, context: _Context
    ) -> picker_pb2.CompleteResponse:
        """Take in how a pick ended. Its id is unguessable and known to its caller alone, so no token is asked for:
        a stream outlives the token's minute."""
        outcome = _OUTCOMES.get(request.outcome)
        if outcome is None:
            await _refuse(context, DoorReason.INVALID_VALUE, "outcome: must be one of the declared outcomes")
        found = self._open.pop(request.pick_id, None)
        if found is not None:
            if outcome is Outcome.CONNECT_FAILED:
                pods = (found.pick.pod, *found.pick.fallbacks)
                failed = next((pod for pod in pods if pod.address == request.address), found.pick.pod)
                self.observer.apply(self.scheduler.table.connect_failed(failed.id, self.clock.now()))
            self.scheduler.complete(found.pick, outcome)
        return picker_pb2.CompleteResponse()

    def expire(self, now: Instant) -> None:
        """Let go of picks that nobody completed."""
        while self._open:
            pick_id, oldest = next(iter(self._open.items()))
            if now - oldest.since < PICK_LIFETIME:
                return
            self._release(pick_id)

    def _release(self, pick_id: str) -> None:
        self.scheduler.counters.expired_picks += 1
        self.scheduler.complete(self._open.pop(pick_id).pick, Outcome.CANCELLED)

    def _inference(self, request: picker_pb2.PickRequest, hand_off: HandOff | None) -> InferenceRequest:
        if hand_off is None:
            model = ModelName(request.model)
            if not self.scheduler.serves(model):
                raise EntryRefusedError(
                    DropReason.MODEL_NOT_FOUND, f"The model '{model}' is not served here."
                )
            plain = direct_request(self.ids.request_id(), model)
        else:
            plain = request_of(hand_off)
            if request.model != plain.model:
                raise EntryRefusedError(
                    DoorReason.HAND_OFF_REFUSED,
                    "The hand-off token is for another model than the one asked for.",
                )
        return decode_pick(request, plain.request_id, plain.tenant, plain.residency)


def _token(context: _Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == HEADER:
            return value if isinstance(value, str) else ""
    return None


def _endpoint(pod: Pod) -> picker_pb2.PickedEndpoint:
    return picker_pb2.PickedEndpoint(pod=pod.id, address=pod.address, pool=pod.pool)


async def _refuse(
    context: _Context, reason: DropReason | DoorReason, message: str, retry_after: Duration | None = None
) -> NoReturn:
    trailing = [(DROP_REASON_HEADER, reason.value)]
    if retry_after is not None:
        trailing.append((RETRY_AFTER_MS, str(whole_ms(retry_after))))
    await context.abort(_CODES[STATUS[reason].grpc], message, tuple(trailing))


class _Gate(grpc.aio.ServerInterceptor):
    """Holds every call while the cluster is dark."""

    def __init__(self) -> None:
        self.light = asyncio.Event()
        self.light.set()

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Wait for the light, then go on."""
        await self.light.wait()
        return await continuation(handler_call_details)


class GrpcDoor:
    """A gRPC server with LocalPicker, health and reflection on one port."""

    def __init__(self, service: PickerService) -> None:
        self.service = service
        self._gate = _Gate()
        self._server = grpc.aio.server(
            interceptors=(self._gate,),
            # Two processes on one port would share its calls without anybody noticing.
            options=(("grpc.so_reuseport", 0),),
        )
        self._health = health_aio.HealthServicer()
        self._ready: bool | None = None
        picker_pb2_grpc.add_LocalPickerServicer_to_server(service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (picker_pb2.DESCRIPTOR.services_by_name["LocalPicker"].full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(
            (*names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name), self._server
        )

    async def listen(self, host: str, port: int) -> int:
        """Listen and serve; port 0 takes a free one. Returns the port, or raises OSError when it cannot be had."""
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound = self._server.add_insecure_port(authority)
        except RuntimeError as error:
            raise OSError(f"{authority}: {error}") from None
        await self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await self.tell_readiness()
        await self._server.start()
        return bound

    async def tell_readiness(self) -> None:
        """Publish readiness to health watchers when it changed."""
        ready = self.service.scheduler.ready and not self.service.entry.draining
        if ready is not self._ready:
            self._ready = ready
            status = (
                health_pb2.HealthCheckResponse.SERVING
                if ready
                else health_pb2.HealthCheckResponse.NOT_SERVING
            )
            await self._health.set(READINESS, status)
            await self._health.set("", status)

    def black_hole(self, on: bool) -> None:
        """Hold new calls, or let them go."""
        if on:
            self._gate.light.clear()
        else:
            self._gate.light.set()

    async def stop(self, grace_s: float) -> None:
        """Stop; calls in progress get `grace_s` seconds."""
        await self._server.stop(grace_s)
