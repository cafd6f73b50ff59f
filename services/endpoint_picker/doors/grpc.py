"""LocalPicker over gRPC: which pod, for callers that go there themselves, and how it ended.

The same entry check and the same picks as the HTTP door. Listening, health and reflection are the gRPC
room's. Nothing is forwarded here.
"""

import asyncio
from dataclasses import dataclass, field

import grpc

from services.adapters.grpc.failures import Context, guard_unary, refuse
from services.adapters.grpc.metadata import hand_off as hand_off_in
from services.adapters.grpc.server import Door
from services.adapters.ports import Clock, Ids
from services.core.inference import InferenceRequest, ModelName
from services.core.pods.table import Pod
from services.core.units import Instant, seconds
from services.endpoint_picker.entry import Entry, EntryRefusedError, direct_request, request_of
from services.endpoint_picker.intake import Intake
from services.endpoint_picker.lifecycle import Dropped, Lifecycle, Running
from services.endpoint_picker.observe import Observer
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import Pick
from services.wire.gen.gir.v1 import picker_pb2, picker_pb2_grpc
from services.wire.hand_off import HandOff
from services.wire.openai.usage import Usage
from services.wire.routing_codec import decode_pick, encode_explanation
from services.wire.status import DoorReason

PICK_LIFETIME = seconds(3600)
"""The longest a request may take; a pick whose Complete never came stops counting then."""
PICKS_MAX = 100_000
"""Open picks kept; beyond this the oldest stops counting, so that callers without Complete cost no memory."""

_OUTCOMES = {
    picker_pb2.OUTCOME_SUCCEEDED: Outcome.SUCCEEDED,
    picker_pb2.OUTCOME_CONNECT_FAILED: Outcome.CONNECT_FAILED,
    picker_pb2.OUTCOME_GATEWAY_ERROR: Outcome.GATEWAY_ERROR,
    picker_pb2.OUTCOME_BROKEN_OFF: Outcome.BROKEN_OFF,
    picker_pb2.OUTCOME_SATURATED: Outcome.SATURATED,
    picker_pb2.OUTCOME_CANCELLED: Outcome.CANCELLED,
}


@dataclass(slots=True)
class _Open:
    request: Running
    pick: Pick
    since: Instant


@dataclass(slots=True, eq=False)
class PickerService:
    """The servicer. `expire` is called from time to time; `light` is cleared to hold every call (a black hole)."""

    entry: Entry
    life: Lifecycle
    observer: Observer
    clock: Clock
    ids: Ids
    light: asyncio.Event = field(default_factory=asyncio.Event)
    _open: dict[str, _Open] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin in the light."""
        self.light.set()

    def door(self) -> Door:
        """Return what a gRPC server is given to serve this."""

        def register(server: grpc.aio.Server) -> None:
            picker_pb2_grpc.add_LocalPickerServicer_to_server(_Guarded(self), server)

        return Door(picker_pb2.DESCRIPTOR.services_by_name["LocalPicker"], register)

    async def pick(self, request: picker_pb2.PickRequest, context: Context) -> picker_pb2.PickResponse:
        """Return the pod for one request."""
        await self.light.wait()
        now_ms = self.clock.wall_ms()
        try:
            hand_off = self.entry.authenticate(hand_off_in(context.invocation_metadata()), now_ms)
            self.entry.admit(hand_off, now_ms)
            inference = self._inference(request, hand_off)
        except EntryRefusedError as error:
            await refuse(context, error.reason, error.message, retry_after=error.retry_after)
        excluded = frozenset(request.excluded_endpoints)
        tried = [pod.id for pod in self.life.scheduler.table if pod.address in excluded]
        answer = _Answer(self.life, asyncio.get_running_loop().create_future())
        intake = Intake(
            inference,
            flow=inference.tenant.id,
            tried=tried,
            explain=request.explain,
            handed_over=hand_off is not None,
            deadline_ms=None if hand_off is None else hand_off.deadline_ms,
        )
        running = self.life.start(intake, answer)
        try:
            picked = await answer.future
        except asyncio.CancelledError:
            self.life.end(running, Outcome.CANCELLED)
            raise
        if isinstance(picked, Dropped):
            await refuse(context, picked.reason, picked.message, retry_after=picked.retry_after)
        pick_id = self.ids.request_id()
        if len(self._open) >= PICKS_MAX:
            self._release(next(iter(self._open)))
        self._open[pick_id] = _Open(running, picked, self.clock.now())
        return picker_pb2.PickResponse(
            pick_id=pick_id,
            request_id=inference.request_id,
            endpoint=_endpoint(picked.pod),
            fallbacks=[_endpoint(pod) for pod in picked.fallbacks],
            explanation=encode_explanation(picked.explanation) if request.explain else None,
        )

    async def complete(
        self, request: picker_pb2.CompleteRequest, context: Context
    ) -> picker_pb2.CompleteResponse:
        """Take in how a pick ended. Its id is unguessable and known to its caller alone, so no token is asked for:
        a stream outlives the token's minute."""
        await self.light.wait()
        outcome = _OUTCOMES.get(request.outcome)
        if outcome is None:
            await refuse(context, DoorReason.INVALID_VALUE, "outcome: must be one of the declared outcomes")
        found = self._open.pop(request.pick_id, None)
        if found is not None:
            if outcome is Outcome.CONNECT_FAILED:
                pods = (found.pick.pod, *found.pick.fallbacks)
                failed = next((pod for pod in pods if pod.address == request.address), found.pick.pod)
                self.observer.apply(self.life.scheduler.table.connect_failed(failed.id, self.clock.now()))
            self.life.end(found.request, outcome, _usage(request))
        return picker_pb2.CompleteResponse()

    def expire(self, now: Instant) -> None:
        """Let go of picks that nobody completed."""
        while self._open:
            pick_id, oldest = next(iter(self._open.items()))
            if now - oldest.since < PICK_LIFETIME:
                return
            self._release(pick_id)

    def _release(self, pick_id: str) -> None:
        self.life.scheduler.counters.expired_picks += 1
        self.life.end(self._open.pop(pick_id).request, Outcome.CANCELLED)

    def _inference(self, request: picker_pb2.PickRequest, hand_off: HandOff | None) -> InferenceRequest:
        if hand_off is None:
            plain = direct_request(self.ids.request_id(), ModelName(request.model))
        else:
            plain = request_of(hand_off)
            if request.model != plain.model:
                raise EntryRefusedError(
                    DoorReason.HAND_OFF_REFUSED,
                    "The hand-off token is for another model than the one asked for.",
                )
        return decode_pick(request, plain.request_id, plain.tenant, plain.residency)


@dataclass(slots=True, eq=False)
class _Answer:
    """Hands the life cycle's call-back to a coroutine."""

    life: Lifecycle
    future: asyncio.Future[Pick | Dropped]

    def picked(self, request: Running, pick: Pick, _body: bytes) -> None:
        # The caller goes to the pod itself: nothing here could stop it any more.
        self.life.out_of_reach(request)
        if not self.future.done():
            self.future.set_result(pick)

    def dropped(self, dropped: Dropped) -> None:
        if not self.future.done():
            self.future.set_result(dropped)

    def evicted(self, dropped: Dropped) -> None:
        raise AssertionError(f"evicted after it was committed: {dropped.message}")


def _usage(said: picker_pb2.CompleteRequest) -> Usage:
    return Usage(
        said.prompt_tokens if said.HasField("prompt_tokens") else None,
        said.completion_tokens if said.HasField("completion_tokens") else None,
    )


def _endpoint(pod: Pod) -> picker_pb2.PickedEndpoint:
    return picker_pb2.PickedEndpoint(pod=pod.id, address=pod.address, pool=pod.pool)


class _Guarded(picker_pb2_grpc.LocalPickerServicer):
    """The proto's names over the service, with the wall that keeps faults from callers."""

    def __init__(self, service: PickerService) -> None:
        self._pick = guard_unary(service.pick)
        self._complete = guard_unary(service.complete)

    async def Pick(  # noqa: N802 -- named by the proto
        self, request: picker_pb2.PickRequest, context: Context
    ) -> picker_pb2.PickResponse:
        return await self._pick(request, context)

    async def Complete(  # noqa: N802 -- named by the proto
        self, request: picker_pb2.CompleteRequest, context: Context
    ) -> picker_pb2.CompleteResponse:
        return await self._complete(request, context)
