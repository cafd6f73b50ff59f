"""A real Envoy asks the picker over ext_proc and goes where it says: to simulated pods, in every shape of gateway."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator

import httpx
import pytest

from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer, ServerOptions
from services.wire.http1.limits import RequestLimits
from services.wire.http1.requests import Request
from tests.endpoint_picker.cluster import MODEL, chat, content_of, sse_data
from tests.integration.envoy_world import RULES, EnvoyWorld, until_answered, world_of
from tests.support.envoy import EnvoyPlaces
from tests.support.wait import eventually

RESPONSES = {"observed", "field"}
ASKING = ["production", "open", "closed", "observed", "field"]
PAGE = b"vllm:num_requests_waiting 0\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc 0\n"


class EchoPod:
    """A pod that says what reached it."""

    def __init__(self) -> None:
        limits = RequestLimits(body_bytes=32 << 20)
        self.server = HttpServer(self._handle, ServerOptions(limits=limits))

    @staticmethod
    def _handle(request: Request, responder: Responder) -> None:
        if request.path == b"/metrics":
            responder.respond(200, ((b"content-type", b"text/plain"),), PAGE)
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        digest = hashlib.sha256(request.body).hexdigest()
        said = {"headers": headers, "bytes": len(request.body), "sha256": digest, "model": "echo"}
        responder.respond(200, ((b"content-type", b"application/json"),), json.dumps(said).encode())


@pytest.mark.parametrize("listener", ASKING)
async def test_requests_go_where_the_picker_says(envoy_places: EnvoyPlaces, listener: str) -> None:
    """Plain, streamed and without body; the hint leaves one endpoint, which no round-robin would hit every time."""
    async with world_of(envoy_places) as world:
        only = world.address(2)
        for _ in range(3):
            answer = await world.post(listener, chat(), x_test_subset=only)
            assert (answer.status_code, answer.headers["x-inference-pod"]) == (200, "pod-2")
            streamed = await world.post(listener, chat(stream=True), x_test_subset=only)
            assert streamed.headers["x-inference-pod"] == "pod-2"
            events = sse_data(streamed.text)
            assert events[-1] == "[DONE]"
            assert content_of(events)
            models = await world.client.get(
                f"{envoy_places.url(listener)}/v1/models", headers={"x-test-subset": only}
            )
            assert (models.status_code, models.headers["x-inference-pod"]) == (200, "pod-2")
            watched = answer.headers.get("x-went-into-resp-headers")
            assert watched == ("true" if listener in RESPONSES else None)
        await world.settle()
        assert world.running == 0
        told = "succeeded" if listener in RESPONSES else "untold"
        assert set(world.picker.observer.counters.outcomes) == {told}


@pytest.mark.parametrize("listener", ASKING)
async def test_refusals_are_openais_in_every_shape(envoy_places: EnvoyPlaces, listener: str) -> None:
    async with world_of(envoy_places, 1) as world:
        nobody = await world.post(listener, chat(), x_test_subset="192.0.2.1:1")
        assert (nobody.status_code, nobody.json()["error"]["code"]) == (503, "no_endpoints")
        assert nobody.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"
        unknown = await world.post(listener, chat(model="no-such"))
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
        broken = await world.client.post(f"{envoy_places.url(listener)}/v1/chat/completions", content=b"[]")
        assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_json")


async def test_events_reach_the_client_before_the_answer_ends(envoy_places: EnvoyPlaces) -> None:
    """Through the response phase too: the first event is read while the pod still decodes."""
    async with world_of(envoy_places, 1) as world:
        for listener in ("production", "observed"):
            url = f"{envoy_places.url(listener)}/v1/chat/completions"
            async with world.client.stream("POST", url, json=chat(stream=True, max_tokens=40)) as answer:
                chunks = answer.aiter_bytes()
                first = await anext(chunks)
                assert first.startswith(b"data: ")
                assert world.pods[0].engine.running == 1
                rest = b"".join([chunk async for chunk in chunks])
            assert rest.endswith(b"data: [DONE]\n\n")


async def echoing(world: EnvoyWorld, places: EnvoyPlaces) -> EchoPod:
    pod = EchoPod()
    await pod.server.listen("127.0.0.1", places.pod_ports[0])
    await world.ready(1)
    return pod


@pytest.mark.parametrize("listener", ["production", "closed", "observed"])
async def test_ten_mebibytes_arrive_whole(envoy_places: EnvoyPlaces, listener: str) -> None:
    """In chunks to the picker and in chunks back; what the pod reads is byte for byte what was sent."""
    async with world_of(envoy_places, 0) as world:
        pod = await echoing(world, envoy_places)
        try:
            body = json.dumps(
                {"model": MODEL, "messages": [], "pad": "\u00e9" * (10 << 19)}, ensure_ascii=False
            ).encode()
            assert len(body) > 10 << 20
            answer = await world.client.post(
                f"{envoy_places.url(listener)}/v1/chat/completions", content=body
            )
            said = answer.json()
            assert (said["bytes"], said["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
            length = said["headers"].get("content-length")
            assert length == (None if listener in RESPONSES else str(len(body)))
        finally:
            await pod.server.close()


async def test_a_body_over_the_limit_is_413_with_a_body(envoy_places: EnvoyPlaces) -> None:
    """Whether its length is declared or it comes in pieces; up to the limit it is served."""
    limit = RULES["field"].body_bytes_max
    url = f"{envoy_places.url('field')}/v1/chat/completions"
    async with world_of(envoy_places, 0) as world:
        pod = await echoing(world, envoy_places)
        try:
            body = json.dumps({"model": MODEL, "pad": ""}).encode()
            body = body.replace(b'""', b'"%b"' % (b"x" * (limit - len(body))))
            assert (await world.client.post(url, content=body)).json()["bytes"] == limit

            async def pieces() -> AsyncIterator[bytes]:
                yield body
                yield b" "

            for content in (body + b" ", pieces()):
                refused = await world.client.post(url, content=content)
                assert (refused.status_code, refused.json()["error"]["code"]) == (413, "request_too_large")
        finally:
            await pod.server.close()


@pytest.mark.parametrize("listener", ["production", "closed", "field"])
async def test_a_spoofed_destination_does_nothing(envoy_places: EnvoyPlaces, listener: str) -> None:
    """The client names another server and steers a sidecar; neither happens, and the pod sees none of it."""
    reached: list[object] = []

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(writer)
        writer.close()

    elsewhere = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = elsewhere.sockets[0].getsockname()[1]
    async with elsewhere, world_of(envoy_places, 0) as world:
        pod = await echoing(world, envoy_places)
        try:
            answer = await world.post(
                listener,
                chat(),
                x_gateway_destination_endpoint=f"127.0.0.1:{port}",
                x_prefiller_host_port=f"127.0.0.1:{port}",
                x_llm_d_inference_objective="free-lunch",
                traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            )
            headers = answer.json()["headers"]
            assert headers["x-gateway-destination-endpoint"] == world.address(0)
            assert headers["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-")
            assert not headers.keys() & {"x-prefiller-host-port", "x-llm-d-inference-objective"}
            await world.kill_picker()
            late = await world.post(listener, chat(), x_gateway_destination_endpoint=f"127.0.0.1:{port}")
            assert late.status_code >= 500
            assert not reached
        finally:
            await pod.server.close()


async def test_a_killed_picker_fails_open_or_closed_as_configured(envoy_places: EnvoyPlaces) -> None:
    """Open: round-robin over the listed pods. Closed, and duplex whatever is configured: a 5xx at once."""
    async with world_of(envoy_places) as world:
        assert (await world.post("open", chat())).status_code == 200
        await world.kill_picker()
        served = Counter([(await world.post("open", chat())).headers["x-inference-pod"] for _ in range(6)])
        assert set(served) == {"pod-0", "pod-1", "pod-2"}
        for listener in ("closed", "production", "field"):
            answer = await asyncio.wait_for(world.post(listener, chat()), 5)
            assert answer.status_code >= 500
        await world.start_picker()
        for listener in ("closed", "production", "field"):
            await until_answered(lambda listener=listener: world.post(listener, chat()), 200)  # type: ignore[misc]  # bound now


async def test_a_picker_killed_under_load_recovers(envoy_places: EnvoyPlaces) -> None:
    """Requests that a pod already has go on; those waiting for the picker end; nothing hangs."""
    async with world_of(envoy_places) as world:
        url = f"{envoy_places.url('production')}/v1/chat/completions"
        async with world.client.stream("POST", url, json=chat(stream=True, max_tokens=60)) as answer:
            chunks = answer.aiter_bytes()
            await anext(chunks)
            await world.kill_picker()
            rest = b"".join([chunk async for chunk in chunks])
        assert rest.endswith(b"data: [DONE]\n\n")
        await world.start_picker()
        await until_answered(lambda: world.post("production", chat()), 200)


async def test_a_pod_killed_mid_request_costs_its_own_request_only(envoy_places: EnvoyPlaces) -> None:
    """Disruption case: the request it had fails, not hangs; those after it go to the survivors."""
    async with world_of(envoy_places, 3, faults={"extra_ttft_ms": 60_000}) as world:
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            only = world.address(0)
            asked = tasks.create_task(world.post("production", chat(), x_test_subset=only))
            await eventually(lambda: world.pods[0].engine.waiting + world.pods[0].engine.running > 0)
            for number in (1, 2):
                world.pods[number].configure({"extra_ttft_ms": 0})
            world.kill_pod(0)
        assert asked.result().status_code >= 500
        for _ in range(6):
            answer = await world.post("production", chat())
            assert answer.status_code == 200
            assert answer.headers["x-inference-pod"] in {"pod-1", "pod-2"}


@pytest.mark.parametrize("listener", ["production", "observed", "field"])
async def test_a_pod_killed_mid_stream_does_not_hang(envoy_places: EnvoyPlaces, listener: str) -> None:
    """Disruption case: the client's stream ends at once, and the picker counts nothing in flight."""
    async with world_of(envoy_places) as world:
        url = f"{envoy_places.url(listener)}/v1/chat/completions"
        only = {"x-test-subset": world.address(0)}

        async def read_on(chunks: AsyncIterator[bytes]) -> None:
            async with asyncio.timeout(5):
                async for _ in chunks:
                    pass

        async with world.client.stream(
            "POST", url, json=chat(stream=True, max_tokens=4000), headers=only
        ) as answer:
            chunks = answer.aiter_bytes()
            await anext(chunks)
            world.kill_pod(0)
            with pytest.raises(httpx.RemoteProtocolError):
                await read_on(chunks)
        later = await world.post(listener, chat())
        assert later.status_code == 200
        await world.settle()
        assert world.running == 0


async def test_all_pods_gone_is_503_and_their_return_is_noticed(envoy_places: EnvoyPlaces) -> None:
    """Disruption cases: all pods are gone; scale to zero and back."""
    async with world_of(envoy_places, 2) as world:
        assert (await world.post("production", chat())).status_code == 200
        for number in (0, 1):
            world.kill_pod(number)
        await world.ready(0)
        await eventually(lambda: not world.picker.ready)

        async def ask() -> httpx.Response:
            return await world.post("production", chat())

        gone = await until_answered(ask, 503)
        assert gone.json()["error"]["type"] == "server_error"
        assert gone.headers["x-gir-drop-reason"] == "no_endpoints"
        await world.start_pod(1)
        await world.ready(1)
        back = await world.post("production", chat())
        assert (back.status_code, back.headers["x-inference-pod"]) == (200, "pod-1")


async def test_fallbacks_serve_when_the_primary_cannot_be_connected_to(envoy_places: EnvoyPlaces) -> None:
    """The picker does not know yet that a pod is gone; Envoy takes the next of the list, and no client notices."""
    async with world_of(envoy_places) as world:
        world.picker.observer.frozen = True
        before = envoy_places.server.stats("cluster.production-pods.upstream_rq_retry")
        world.kill_pod(0)
        served: Counter[str] = Counter()
        for _ in range(12):
            answer = await world.post("production", chat())
            assert answer.status_code == 200
            served[answer.headers["x-inference-pod"]] += 1
        assert set(served) == {"pod-1", "pod-2"}
        after = envoy_places.server.stats("cluster.production-pods.upstream_rq_retry")
        retried = "cluster.production-pods.upstream_rq_retry"
        assert after[retried] > before.get(retried, 0)


async def test_a_client_that_leaves_frees_its_pods_place(envoy_places: EnvoyPlaces) -> None:
    """Mid-stream client cancel: Envoy ends the stream, and the pick ends with it."""
    async with world_of(envoy_places, 1) as world:
        url = f"{envoy_places.url('observed')}/v1/chat/completions"
        async with world.client.stream("POST", url, json=chat(stream=True, max_tokens=4000)) as answer:
            await anext(answer.aiter_bytes())
            assert world.running == 1
        await eventually(lambda: world.running == 0)
        assert world.picker.observer.table["pod-0"].in_flight == 0
        assert world.picker.observer.counters.outcomes == {"cancelled": 1}
