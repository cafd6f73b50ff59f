"""LocalPicker over a real gRPC server: picks, completions, refusals, health."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from services.core.locality import ClusterId
from services.core.units import Instant, seconds
from services.endpoint_picker.doors import grpc as grpc_door
from services.wire.gen.gir.v1 import picker_pb2, picker_pb2_grpc
from tests.endpoint_picker.cluster import EU_ONLY, MODEL, REQUEST_ID, US_ONLY, Cluster, cluster_of, token
from tests.support.wait import eventually

HAND_OFF = "x-gir-hand-off"


@asynccontextmanager
async def stub_for(cluster: Cluster) -> "AsyncIterator[picker_pb2_grpc.LocalPickerAsyncStub]":
    async with grpc.aio.insecure_channel(f"127.0.0.1:{cluster.picker.grpc_port}") as channel:
        yield picker_pb2_grpc.LocalPickerStub(channel)


def ask(**changes: Any) -> picker_pb2.PickRequest:
    return picker_pb2.PickRequest(**({"model": MODEL} | changes))


async def refused(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailing = dict(caught.value.trailing_metadata() or ())
    return caught.value.code(), str(trailing.get("x-gir-drop-reason", ""))


async def next_status(watch: "grpc.aio.UnaryStreamCall[Any, Any]") -> int:
    answer = await watch.read()
    assert isinstance(answer, health_pb2.HealthCheckResponse)
    return answer.status


async def test_a_pick_names_a_pod_and_its_fallbacks_and_counts_until_completed() -> None:
    async with cluster_of(2) as cluster, stub_for(cluster) as stub:
        answer = await stub.Pick(ask(explain=True), metadata=((HAND_OFF, token(allowed=EU_ONLY)),))
        addresses = {pod.address for pod in cluster.pods}
        assert answer.request_id == REQUEST_ID
        assert {answer.endpoint.address, answer.fallbacks[0].address} == addresses
        assert answer.endpoint.pool == "chat"
        assert {verdict.candidate for verdict in answer.explanation.verdicts} == {"pod-0", "pod-1"}
        pod = cluster.picker.observer.table[answer.endpoint.pod]
        assert pod.in_flight == 1
        done = picker_pb2.CompleteRequest(
            pick_id=answer.pick_id,
            address=answer.endpoint.address,
            outcome=picker_pb2.OUTCOME_SUCCEEDED,
        )
        await stub.Complete(done)
        await stub.Complete(done)
        assert pod.in_flight == 0
        assert cluster.picker.observer.counters.outcomes == {"succeeded": 1}


async def test_an_endpoint_that_failed_is_not_picked_again() -> None:
    async with cluster_of(2) as cluster, stub_for(cluster) as stub:
        failed = cluster.pods[0].address
        for _ in range(4):
            answer = await stub.Pick(ask(excluded_endpoints=[failed]), metadata=((HAND_OFF, token()),))
            assert answer.endpoint.address == cluster.pods[1].address
        both = [pod.address for pod in cluster.pods]
        call = stub.Pick(ask(excluded_endpoints=both), metadata=((HAND_OFF, token()),))
        assert await refused(call) == (grpc.StatusCode.UNAVAILABLE, "attempts_exhausted")


async def test_a_connect_failure_told_by_the_caller_takes_the_pod_out() -> None:
    async with cluster_of(2) as cluster, stub_for(cluster) as stub:
        cluster.picker.observer.frozen = True
        answer = await stub.Pick(ask(), metadata=((HAND_OFF, token()),))
        await stub.Complete(
            picker_pb2.CompleteRequest(
                pick_id=answer.pick_id,
                address=answer.fallbacks[0].address,
                outcome=picker_pb2.OUTCOME_CONNECT_FAILED,
            )
        )
        assert cluster.state(answer.fallbacks[0].pod) == "EXCLUDED"
        assert cluster.state(answer.endpoint.pod) == "READY"


async def test_refusals_have_their_codes_and_reasons() -> None:
    async with cluster_of(0) as cluster, stub_for(cluster) as stub:
        unauthenticated = (grpc.StatusCode.UNAUTHENTICATED, "hand_off_refused")
        assert await refused(stub.Pick(ask())) == unauthenticated
        for hand_off in (
            token(audience=ClusterId("us-east-1")),
            token(expires_in_ms=-10_000),
            "eyJhbGciOiJFZERTQSJ9.e30.sig",
        ):
            assert await refused(stub.Pick(ask(), metadata=((HAND_OFF, hand_off),))) == unauthenticated
        good = ((HAND_OFF, token()),)
        assert await refused(stub.Pick(ask(model="other"), metadata=good)) == unauthenticated
        assert await refused(stub.Pick(ask(), metadata=good)) == (
            grpc.StatusCode.UNAVAILABLE,
            "no_endpoints",
        )
        assert await refused(stub.Pick(ask(), metadata=((HAND_OFF, token(allowed=US_ONLY)),))) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "residency_unsatisfiable",
        )
        assert await refused(stub.Pick(ask(traffic_class=99), metadata=good)) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "invalid_value",
        )
        assert await refused(stub.Complete(picker_pb2.CompleteRequest(pick_id="x"))) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "invalid_value",
        )
        cluster.picker.drain()
        assert await refused(stub.Pick(ask(), metadata=good)) == (grpc.StatusCode.UNAVAILABLE, "drained")


async def test_direct_callers_name_a_model_that_is_served() -> None:
    async with cluster_of(1, http={"port": 0, "accept": "direct"}) as cluster, stub_for(cluster) as stub:
        assert (await stub.Pick(ask())).endpoint.pod == "pod-0"
        assert await refused(stub.Pick(ask(model="other"))) == (
            grpc.StatusCode.NOT_FOUND,
            "model_not_found",
        )


async def test_readiness_follows_the_pods_and_liveness_does_not() -> None:
    async with cluster_of(1) as cluster:
        address = f"127.0.0.1:{cluster.picker.grpc_port}"
        async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(10):
            watch = channel.unary_stream(
                "/grpc.health.v1.Health/Watch",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            readiness = watch(health_pb2.HealthCheckRequest(service="readiness"))
            while await next_status(readiness) != health_pb2.HealthCheckResponse.SERVING:
                pass
            cluster.pods[0].reset()
            assert await next_status(readiness) == health_pb2.HealthCheckResponse.NOT_SERVING
            liveness = watch(health_pb2.HealthCheckRequest(service="liveness"))
            assert await next_status(liveness) == health_pb2.HealthCheckResponse.SERVING
            overall = watch(health_pb2.HealthCheckRequest(service=""))
            assert await next_status(overall) == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_black_holed_picker_holds_calls() -> None:
    async with cluster_of(1) as cluster, stub_for(cluster) as stub:
        cluster.picker.black_hole(True)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Pick(ask(), metadata=((HAND_OFF, token()),), timeout=0.3)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        cluster.picker.black_hole(False)
        assert (await stub.Pick(ask(), metadata=((HAND_OFF, token()),))).endpoint.pod == "pod-0"


async def test_picks_that_nobody_completes_stop_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_of(1) as cluster, stub_for(cluster) as stub:
        pod = cluster.picker.observer.table["pod-0"]
        service = cluster.picker.doors.grpc
        for _ in range(3):
            await stub.Pick(ask(), metadata=((HAND_OFF, token()),))
        service.expire(cluster.clock.now())
        assert pod.in_flight == 3
        monkeypatch.setattr(grpc_door, "PICKS_MAX", 3)
        await stub.Pick(ask(), metadata=((HAND_OFF, token()),))
        assert (pod.in_flight, service.life.scheduler.counters.expired_picks) == (3, 1)
        service.expire(Instant(cluster.clock.now() + seconds(3601)))
        assert (pod.in_flight, service.life.scheduler.counters.expired_picks) == (0, 4)


async def test_a_port_in_use_is_told_in_a_sentence() -> None:
    async with cluster_of(1) as cluster:
        taken = cluster.picker.grpc_port
        with pytest.raises(Exception, match=str(taken)):
            async with cluster_of(0, grpc={"port": taken}):
                pass
        await eventually(lambda: cluster.picker.ready)
