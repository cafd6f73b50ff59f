"""The gRPC door end to end: Route, RouteStream, WatchFleet, health and reflection on a real router."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.adapters.ports import ChangeKind
from services.adapters.system.clock import SystemClock
from services.core.fleet import PodRecord, PodsReport, PodState, ReportId
from services.core.locality import ClusterId
from services.core.units import WallMs, ms
from services.wire.gen.gir.v1 import residency_pb2, routing_pb2, routing_pb2_grpc
from services.wire.hand_off import derive_key, verify
from services.wire.pods_codec import encode_pods, pods_key
from services.wire.policy_codec import encode_policy
from tests.global_router.rig import MODEL, SECRET, US, Rig, bearer, running, status
from tests.support.wait import eventually

# The generated stub's asynchronous twin exists for type checkers only.
Stub: TypeAlias = "routing_pb2_grpc.GlobalRouterAsyncStub"


@asynccontextmanager
async def stub(rig: Rig) -> AsyncIterator[Stub]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{rig.router.grpc_port}") as channel:
        yield routing_pb2_grpc.GlobalRouterStub(channel)


def auth(tenant: str = "acme") -> tuple[tuple[str, str], ...]:
    return (("authorization", bearer(tenant)),)


async def refused(
    call: "grpc.aio.UnaryUnaryCall[routing_pb2.RouteRequest, routing_pb2.RouteResponse]",
) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailers = dict(caught.value.trailing_metadata() or ())
    return caught.value.code(), str(trailers.get("x-gir-drop-reason"))


async def test_route_names_a_cluster_and_signs_each_hop(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, stub(rig) as router:
        answer = await router.Route(
            routing_pb2.RouteRequest(model=MODEL, client_request_id="mine", explain=True), metadata=auth()
        )
        assert (answer.cluster, answer.region, answer.jurisdiction) == ("eu-a", "eu-west", "eu")
        assert answer.gateway == f"http://127.0.0.1:{rig.gateways['eu-a'].port}"
        assert answer.client_request_id == "mine"
        assert answer.endpoint == ""
        assert [fallback.cluster for fallback in answer.fallbacks] == ["us-a"]
        now_ms = SystemClock().wall_ms()
        for cluster, token in (("eu-a", answer.hand_off_token), ("us-a", answer.fallbacks[0].hand_off_token)):
            key = derive_key("eu1", SECRET, ClusterId(cluster))
            said = verify(token, {"eu1": key.secret}, ClusterId(cluster), now_ms)
            assert (said.request_id, said.tenant, said.model) == (answer.request_id, "acme", MODEL)
        assert {verdict.candidate for verdict in answer.explanation.verdicts} == {"eu-a", "us-a"}
        assert rig.records()[-1].door == "grpc"


async def test_residency_binds_route_and_its_fallbacks(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, stub(rig) as router:
        answer = await router.Route(routing_pb2.RouteRequest(model=MODEL), metadata=auth("eu-only"))
        assert answer.cluster == "eu-a"
        assert list(answer.fallbacks) == []
        rule = residency_pb2.ResidencyRule(allow_jurisdictions=residency_pb2.NameSet(names=["us"]))
        moved = await router.Route(routing_pb2.RouteRequest(model=MODEL, residency=rule), metadata=auth())
        assert moved.cluster == "us-a"
        nowhere = routing_pb2.RouteRequest(model=MODEL, residency=rule)
        assert (await refused(router.Route(nowhere, metadata=auth("eu-only"))))[1] == "jurisdiction_denied"


async def test_refusals_carry_code_and_reason(tmp_path: Path) -> None:
    async with running(tmp_path, {"us-a": US}) as rig, stub(rig) as router:
        for request, metadata, code, reason in (
            (routing_pb2.RouteRequest(model=MODEL), (), grpc.StatusCode.UNAUTHENTICATED, "invalid_api_key"),
            (routing_pb2.RouteRequest(model="nope"), auth(), grpc.StatusCode.NOT_FOUND, "model_not_found"),
            (routing_pb2.RouteRequest(), auth(), grpc.StatusCode.INVALID_ARGUMENT, "invalid_value"),
            (
                routing_pb2.RouteRequest(model=MODEL),
                auth("eu-only"),
                grpc.StatusCode.FAILED_PRECONDITION,
                "residency_unsatisfiable",
            ),
        ):
            assert await refused(router.Route(request, metadata=metadata)) == (code, reason)


async def test_a_stream_answers_each_request_and_survives_refusals(tmp_path: Path) -> None:
    async def requests() -> AsyncIterator[routing_pb2.RouteStreamRequest]:
        for number, model in enumerate((MODEL, "nope", "alias")):
            yield routing_pb2.RouteStreamRequest(
                correlation_id=number, request=routing_pb2.RouteRequest(model=model)
            )

    async with running(tmp_path) as rig, stub(rig) as router:
        answers = [answer async for answer in router.RouteStream(requests(), metadata=auth())]
        assert [answer.correlation_id for answer in answers] == [0, 1, 2]
        assert [answer.WhichOneof("result") for answer in answers] == ["response", "rejection", "response"]
        assert answers[1].rejection.drop_reason == "model_not_found"


async def test_watchers_see_the_fleet_now_and_when_it_changes(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, stub(rig) as router:
        pods = PodsReport(
            ClusterId("eu-a"),
            "p",
            ReportId(1, 1),
            (PodRecord("pod-1", "127.0.0.1:1", PodState.READY, "vllm", "0.9.2", WallMs(1)),),
        )
        key = pods_key("eu-a", "p")
        await rig.store.put(ChangeKind.PODS, key, pods.id, encode_pods(pods), live=True)
        await eventually(rig.router.board.pods)
        watch = router.WatchFleet(routing_pb2.WatchFleetRequest(include_pods=True), metadata=auth())
        first: Any = await watch.read()
        assert {status.cluster: status.state for status in first.clusters} == {
            "eu-a": routing_pb2.HEALTH_STATE_HEALTHY,
            "us-a": routing_pb2.HEALTH_STATE_HEALTHY,
        }
        assert first.clusters[0].pools[0].ready_endpoints == 3
        assert first.pods[0].pods[0].id == "pod-1"
        assert (first.ready, first.isolated, first.bus_suspected) == (True, False, False)
        rig.kill("us-a")

        async def unhealthy() -> None:
            while True:
                message: Any = await watch.read()
                if message.clusters[1].state == routing_pb2.HEALTH_STATE_UNHEALTHY:
                    return

        await asyncio.wait_for(unhealthy(), 15)
        watch.cancel()


async def test_watchers_are_told_that_the_router_suspects_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, stub(rig) as router:
        watch = router.WatchFleet(routing_pb2.WatchFleetRequest(), metadata=auth())
        rig.kill("eu-a")
        rig.kill("us-a")

        async def isolated() -> Any:
            while True:
                message: Any = await watch.read()
                if message.isolated:
                    return message

        message = await asyncio.wait_for(isolated(), 15)
        assert not message.ready
        # Routing goes by the verdicts from before, but people are told what the probes found.
        assert [status.probing_ok for status in message.clusters] == [False, False]
        watch.cancel()


async def test_watching_needs_a_token(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, stub(rig) as router:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await router.WatchFleet(routing_pb2.WatchFleetRequest()).read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_watch_ends_when_its_caller_is_a_tenant_no_more(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, stub(rig) as router:
        watch = router.WatchFleet(routing_pb2.WatchFleetRequest(), metadata=auth())
        await watch.read()
        fewer = dataclasses.replace(rig.policy, revision=2, tenants=())
        await rig.store.put(ChangeKind.POLICY, "snapshot", ReportId(2, 0), encode_policy(fewer), live=True)

        async def read_on() -> None:
            while True:
                await watch.read()

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(read_on(), 10)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_an_ambiguous_identity_is_refused_and_tells_nothing_of_the_inside(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, stub(rig) as router:
        twice = (*auth(), *auth("eu-only"))
        code, reason = await refused(router.Route(routing_pb2.RouteRequest(model=MODEL), metadata=twice))
        assert (code, reason) == (grpc.StatusCode.UNAUTHENTICATED, "invalid_api_key")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await router.WatchFleet(routing_pb2.WatchFleetRequest(), metadata=twice).read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_an_explanation_sees_what_the_decision_saw(tmp_path: Path) -> None:
    """Back-pressure is noted under the model, so that another of its names meets it too."""
    async with running(tmp_path) as rig, stub(rig) as router:
        rig.gateways["eu-a"].script = status(429, ((b"retry-after", b"10"),))
        assert (await rig.post()).status_code == 200
        asked = routing_pb2.RouteRequest(model="alias", explain=True)
        answer = await router.Route(asked, metadata=auth())
        assert answer.cluster == "us-a"
        reasons = {verdict.candidate: verdict.reason for verdict in answer.explanation.verdicts}
        assert reasons == {"eu-a": "saturated", "us-a": ""}


async def test_health_tells_liveness_and_readiness_apart(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as rig,
        grpc.aio.insecure_channel(f"127.0.0.1:{rig.router.grpc_port}") as channel,
    ):
        health: Any = health_pb2_grpc.HealthStub(channel)

        async def status(service: str) -> int:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            return int(answer.status)

        async def settled(serving: bool) -> None:
            wanted = (
                health_pb2.HealthCheckResponse.SERVING
                if serving
                else health_pb2.HealthCheckResponse.NOT_SERVING
            )
            while await status("readiness") != wanted:
                await SystemClock().sleep(ms(20))

        await asyncio.wait_for(settled(serving=True), 5)
        rig.kill("eu-a")
        rig.kill("us-a")
        await asyncio.wait_for(settled(serving=False), 15)
        assert await status("liveness") == health_pb2.HealthCheckResponse.SERVING


async def test_pick_endpoint_without_a_picker_leaves_the_gateway(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, stub(rig) as router:
        answer = await router.Route(
            routing_pb2.RouteRequest(model=MODEL, pick_endpoint=True), metadata=auth()
        )
        assert answer.endpoint == ""
        assert answer.gateway
        assert await rig.router.picker.pick("127.0.0.1:1", "token", MODEL) is None
