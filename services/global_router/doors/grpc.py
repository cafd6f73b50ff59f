"""The gRPC door of a router: Route, RouteStream and WatchFleet over the one decision.

Decides and signs; the caller sends the inference itself, to the gateway or, having asked for one, to
a pod. Identity comes from the `authorization` metadata on every message of a stream, so that an
expired token or a changed tenant acts on streams that are already open.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Final, NoReturn, TypeVar

import grpc

from services.adapters.auth.authenticator import Authenticator
from services.adapters.auth.tokens import TokenRefusedError
from services.adapters.grpc.failures import Context, guard_stream, guard_unary, refuse
from services.adapters.grpc.metadata import DROP_REASON, REQUEST_ID, RETRY_AFTER_MS, authorization
from services.adapters.grpc.server import Door
from services.adapters.ports import LocalPicker
from services.core.inference import InferenceRequest, RequestId
from services.core.locality import Locality
from services.core.outcomes import DropReason, Rejected, Routed
from services.core.units import Instant, ms
from services.global_router.fleet_board import FleetBoard
from services.global_router.hops import TOKEN_LIFETIME_MS, Hop, hand_off_for
from services.global_router.lifecycle import LifeCycle
from services.global_router.records import DecisionRecord
from services.wire.errors import UndecodableError
from services.wire.gen.gir.v1 import routing_pb2, routing_pb2_grpc
from services.wire.pods_codec import pods_message
from services.wire.routing_codec import (
    decode_route,
    encode_cluster_status,
    encode_explanation,
    encode_rejection,
)
from services.wire.status import STATUS, DoorReason

CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
WATCH_INTERVAL: Final = ms(200)
"""As often as snapshots are made; a slow watcher gets the newest fleet, never a queue of old ones."""

DecisionT = TypeVar("DecisionT", Routed, Rejected)


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that is not served: the message RouteStream would carry."""

    rejection: routing_pb2.Rejection


class GrpcDoor:
    """`gir.v1.GlobalRouter`. `picker` asks a cluster's LocalPicker for a pod when a caller wants one."""

    def __init__(
        self,
        life: LifeCycle,
        authenticator: Authenticator,
        new_id: Callable[[], RequestId],
        here: Locality,
        picker: LocalPicker,
        board: FleetBoard,
    ) -> None:
        self._life = life
        self._authenticator = authenticator
        self._new_id = new_id
        self._here = here
        self._picker = picker
        self._board = board

    def door(self) -> Door:
        """Return what a gRPC server is given to serve this."""

        def register(server: grpc.aio.Server) -> None:
            guarded = _Guarded(self)
            routing_pb2_grpc.add_GlobalRouterServicer_to_server(guarded, server)  # type: ignore[arg-type]  # The generated base class declares methods, not attributes.

        return Door(routing_pb2.DESCRIPTOR.services_by_name["GlobalRouter"], register)

    # --- Calls --------------------------------------------------------------------------------------

    async def route(self, request: routing_pb2.RouteRequest, context: Context) -> routing_pb2.RouteResponse:
        """Decide one request."""
        answer = self._route(request, authorization(context.invocation_metadata()))
        if isinstance(answer, Refused):
            await _abort(context, answer.rejection)
        if request.pick_endpoint:
            await self._pick(request, answer)
        return answer

    async def route_stream(
        self, request_iterator: AsyncIterator[routing_pb2.RouteStreamRequest], context: Context
    ) -> AsyncIterator[routing_pb2.RouteStreamResponse]:
        """Decide many requests; a refusal answers its request and leaves the stream open."""
        bearer = authorization(context.invocation_metadata())
        async for message in request_iterator:
            answer = self._route(message.request, bearer)
            if isinstance(answer, Refused):
                yield routing_pb2.RouteStreamResponse(
                    correlation_id=message.correlation_id, rejection=answer.rejection
                )
                continue
            if message.request.pick_endpoint:
                await self._pick(message.request, answer)
            yield routing_pb2.RouteStreamResponse(correlation_id=message.correlation_id, response=answer)

    async def watch_fleet(
        self, request: routing_pb2.WatchFleetRequest, context: Context
    ) -> AsyncIterator[routing_pb2.WatchFleetResponse]:
        """Send the fleet now and after each change, to any authenticated caller, for as long as it is one."""
        life = self._life
        bearer = authorization(context.invocation_metadata())
        sent = None
        while True:
            try:
                self._authenticator.authenticate(bearer, life.clock.wall_ms())
            except TokenRefusedError as error:
                await refuse(context, DoorReason.UNAUTHENTICATED, str(error))
            if life.view.current is not sent:
                sent = life.view.current
                yield self._fleet(include_pods=request.include_pods)
            await life.clock.sleep(WATCH_INTERVAL)

    # --- Deciding -----------------------------------------------------------------------------------

    def _route(
        self, message: routing_pb2.RouteRequest, bearer: bytes | None
    ) -> routing_pb2.RouteResponse | Refused:
        life = self._life
        now = life.clock.now()
        now_ms = life.clock.wall_ms()
        try:
            tenant = self._authenticator.authenticate(bearer, now_ms)
            request = decode_route(message, self._new_id(), tenant)
        except TokenRefusedError as error:
            if life.view.policy is None:
                return Refused(_door_rejection(DoorReason.NOT_READY, "This router has no policy yet."))
            return Refused(_door_rejection(DoorReason.UNAUTHENTICATED, str(error)))
        except UndecodableError as error:
            return Refused(_door_rejection(DoorReason.INVALID_VALUE, str(error)))
        record = DecisionRecord(
            request.request_id,
            message.client_request_id,
            "grpc",
            tenant.id,
            request.model,
            request.traffic_class,
            now,
            now_ms,
            life.view.current.revision,
            life.view.current.snapshot.version,
        )
        decision = life.decide(request, now)
        record.decide_ns = life.clock.now() - now
        if isinstance(decision, Rejected):
            life.note_rejected(record, decision)
            if message.explain:
                decision = self._explained(decision, request, now)
            return Refused(encode_rejection(decision, explain=message.explain))
        return self._answer(message, request, decision, record)

    def _answer(
        self,
        message: routing_pb2.RouteRequest,
        request: InferenceRequest,
        decision: Routed,
        record: DecisionRecord,
    ) -> routing_pb2.RouteResponse | Refused:
        life = self._life
        hop = life.hops.get(decision.target)
        if hop is None:
            rejected = Rejected(
                DropReason.NO_HEALTHY_CLUSTER, "The policy changed under the decision.", decision.explanation
            )
            life.note_rejected(record, rejected)
            return Refused(encode_rejection(rejected, explain=message.explain))
        expires_at_ms = record.received_ms + TOKEN_LIFETIME_MS
        response = routing_pb2.RouteResponse(
            request_id=request.request_id,
            cluster=hop.cluster,
            gateway=hop.gateway_url,
            picker=hop.picker_address,
            fallbacks=self._fallbacks(request, decision, record),
            hand_off_token=hand_off_for(request, hop, record.received_ms),
            expires_at_ms=expires_at_ms,
            client_request_id=message.client_request_id,
            region=hop.locality.region,
            jurisdiction=hop.locality.jurisdiction,
        )
        if message.explain:
            detailed = self._explained(decision, request, record.received_at)
            response.explanation.CopyFrom(encode_explanation(detailed.explanation))
        record.cluster, record.region = hop.cluster, hop.locality.region
        record.jurisdiction, record.draw = hop.locality.jurisdiction, decision.explanation.draw
        record.panic = decision.explanation.panic
        life.note_routed(record)
        return response

    def _fallbacks(
        self, request: InferenceRequest, decision: Routed, record: DecisionRecord
    ) -> list[routing_pb2.Fallback]:
        hops = [self._life.hops.get(name) for name in decision.fallbacks]
        return [_fallback(request, hop, record) for hop in hops if hop is not None]

    def _explained(self, decision: DecisionT, request: InferenceRequest, now: Instant) -> DecisionT:
        """Return `decision` with the verdicts of its replay."""
        return replace(decision, explanation=self._life.explain(request, now).explanation)

    async def _pick(self, message: routing_pb2.RouteRequest, response: routing_pb2.RouteResponse) -> None:
        """Fill in a pod when the cluster's picker gives one; without, the caller goes to the gateway."""
        if response.picker:
            endpoint = await self._picker.pick(response.picker, response.hand_off_token, message.model)
            response.endpoint = endpoint or ""

    # --- The fleet ----------------------------------------------------------------------------------

    def _fleet(self, *, include_pods: bool) -> routing_pb2.WatchFleetResponse:
        view = self._life.view
        now = self._life.clock.now()
        prepared = view.current
        return routing_pb2.WatchFleetResponse(
            fleet_version=prepared.snapshot.version,
            policy_revision=prepared.revision,
            region=self._here.region,
            jurisdiction=self._here.jurisdiction,
            bus_suspected=view.state.bus_suspect,
            isolated=view.state.isolated,
            ready=view.ready,
            clusters=[
                encode_cluster_status(status.candidate, status.pools, status.silence)
                for status in self._board.statuses(now)
            ],
            pods=[pods_message(pods) for pods in self._board.pods()] if include_pods else (),
        )


class _Guarded:
    """The proto's names over the door, with the wall that keeps faults from callers.

    The wrapped methods themselves, not methods around them: a stream pays for each layer per message.
    """

    def __init__(self, door: GrpcDoor) -> None:
        self.Route = guard_unary(door.route)
        self.RouteStream = guard_stream(door.route_stream)
        self.WatchFleet = guard_stream(door.watch_fleet)


def _fallback(request: InferenceRequest, hop: Hop, record: DecisionRecord) -> routing_pb2.Fallback:
    return routing_pb2.Fallback(
        cluster=hop.cluster,
        gateway=hop.gateway_url,
        picker=hop.picker_address,
        hand_off_token=hand_off_for(request, hop, record.received_ms),
        expires_at_ms=record.received_ms + TOKEN_LIFETIME_MS,
        region=hop.locality.region,
        jurisdiction=hop.locality.jurisdiction,
    )


def _door_rejection(reason: DoorReason, message: str) -> routing_pb2.Rejection:
    return routing_pb2.Rejection(code=STATUS[reason].grpc, drop_reason=reason.value, message=message)


async def _abort(context: Context, rejection: routing_pb2.Rejection) -> NoReturn:
    trailers = [(DROP_REASON, rejection.drop_reason), (REQUEST_ID, rejection.request_id)]
    if rejection.HasField("retry_after_ms"):
        trailers.append((RETRY_AFTER_MS, str(rejection.retry_after_ms)))
    await context.abort(CODES[rejection.code], rejection.message, tuple(trailers))
