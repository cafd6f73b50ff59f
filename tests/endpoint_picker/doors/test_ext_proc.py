"""ext_proc over a real gRPC connection: the protocol rows of llm-d's hermetic suite, and the door's own promises.

Source of the rows: llm-d-router test/integration/epp/hermetic_test.go; which pod the scorers choose is
`tests/core/scheduling/test_hermetic_suite.py`. Where a status differs from theirs, the design decides and the test says so.
"""

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire

from services.core.outcomes import DropReason
from services.core.units import Instant, seconds
from services.endpoint_picker.doors import ext_proc, ext_proc_stream
from services.endpoint_picker.lifecycle import Dropped
from tests.endpoint_picker.cluster import MODEL, US_ONLY, Cluster, chat, cluster_of, token
from tests.endpoint_picker.doors.processor import Answer, DataPlane, data_plane
from tests.support.wait import eventually

BODY = json.dumps(chat()).encode()
DIRECT = {"port": 0, "accept": "direct"}


@asynccontextmanager
async def asked(pods: int = 2, **changes: Any) -> AsyncIterator[tuple[Cluster, DataPlane]]:
    async with (
        cluster_of(pods, **({"http": DIRECT} | changes)) as cluster,
        data_plane(cluster.picker.grpc_port) as plane,
    ):
        yield cluster, plane


def error(answer: Answer) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/json"
    return answer.status, json.loads(answer.body)["error"]["code"]


# --- Rows of the hermetic suite -----------------------------------------------------------------


async def test_invalid_json_body() -> None:
    async with asked() as (_, plane):
        assert error(await plane.ask(b"no healthy upstream")) == (400, "invalid_json")


async def test_request_missing_model_field() -> None:
    async with asked() as (_, plane):
        answer = await plane.ask(b'{"prompt":"hello world"}')
        assert error(answer) == (400, "missing_required_parameter")
        assert json.loads(answer.body)["error"]["param"] == "model"


async def test_split_body_across_chunks() -> None:
    """The joined body goes back, rewritten in its model alone: keys keep their order."""
    async with asked() as (cluster, plane):
        exchange = plane.exchange()
        await exchange.head({"x-llm-d-model-name-rewrite": "llama-3.1-8b-v2"})
        await exchange.body(BODY[:20], end=False)
        await exchange.body(BODY[20:])
        answer = await exchange.answer()
        assert answer.body == BODY.replace(MODEL.encode(), b"llama-3.1-8b-v2")
        assert answer.headers["content-length"] == str(len(answer.body))
        assert answer.destination in {pod.address for pod in cluster.pods}
        assert answer.metadata == {"x-gateway-destination-endpoint": answer.destination}
        assert "x-llm-d-model-name-rewrite" in answer.removed


async def test_no_backend_pods_available() -> None:
    """Theirs is a 500; nobody can serve now is 503 here, with the field's drop reason."""
    async with asked(0) as (_, plane):
        exchange = plane.exchange()
        await exchange.head(method="GET", end=True)
        answer = await exchange.answer()
        assert error(answer) == (503, "no_endpoints")
        assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"
        assert error(await plane.ask(BODY)) == (503, "no_endpoints")


async def test_subsetting_select_from_subset() -> None:
    async with asked(3) as (cluster, plane):
        addresses = [pod.address for pod in cluster.pods]
        for _ in range(4):
            answer = await plane.ask(BODY, subset=addresses[1:])
            assert answer.destination in addresses[1:]


async def test_subsetting_partial_match() -> None:
    async with asked(3) as (cluster, plane):
        only = cluster.pods[2].address
        for _ in range(3):
            assert (await plane.ask(BODY, subset=["192.0.2.9:8000", only])).destination == only


@pytest.mark.parametrize("subset", [["192.0.2.99:8000"], [], ""])
async def test_subsetting_no_pods_match(subset: Any) -> None:
    async with asked() as (_, plane):
        answer = await plane.ask(BODY, subset=subset)
        assert error(answer) == (503, "no_endpoints")
        assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"


async def test_endpoint_scores_metadata() -> None:
    """Each endpoint that was compared and its weighted sum, the destination's the highest."""
    async with asked(3, ext_proc={"scores": True}) as (cluster, plane):
        answer = await plane.ask(BODY)
        scores = answer.metadata["x-gateway-destination-endpoint-scores"]
        assert set(scores) == {pod.address for pod in cluster.pods}
        assert scores[answer.destination] == max(scores.values()) > 0


async def test_endpoint_scores_metadata_off_by_default() -> None:
    async with asked() as (_, plane):
        assert set((await plane.ask(BODY)).metadata) == {"x-gateway-destination-endpoint"}


async def test_model_not_in_objectives() -> None:
    """An objective nobody declared is priority 0, and no reason to refuse."""
    async with asked() as (_, plane):
        answer = await plane.ask(BODY, {"x-gateway-inference-objective": "no-such"})
        assert answer.destination
        assert answer.body == BODY


async def test_protocol_simple_get_header_only() -> None:
    """Any ready endpoint, in turn; no model is asked for."""
    async with asked() as (cluster, plane):
        seen = set()
        for _ in range(4):
            exchange = plane.exchange()
            await exchange.head(method="GET", end=True)
            message = await exchange.read()
            mutation = message.request_headers.response.header_mutation
            seen.add(mutation.set_headers[0].header.raw_value.decode())
            await exchange.close()
        assert seen == {pod.address for pod in cluster.pods}


async def responded(
    plane: DataPlane, content_type: str, *pieces: bytes
) -> tuple[list[bytes], dict[str, str]]:
    exchange = plane.exchange()
    await exchange.head()
    await exchange.body(BODY)
    await exchange.answer()
    lines = {":status": "200", "content-type": content_type}
    await exchange.send(response_headers=_headers(lines))
    head = (await exchange.read()).response_headers.response.header_mutation
    said = []
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        await exchange.send(response_body=wire.HttpBody(body=piece, end_of_stream=last))
        message = await exchange.read()
        streamed = message.response_body.response.body_mutation.streamed_response
        assert streamed.end_of_stream is last
        said.append(streamed.body)
    return said, {each.header.key: each.header.raw_value.decode() for each in head.set_headers}


def _headers(lines: dict[str, str]) -> Any:
    head = wire.HttpHeaders()
    for key, value in lines.items():
        head.headers.headers.add(key=key, raw_value=value.encode())
    return head


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param((b'{"max_tokens":100,', b'"model":"x"}', b""), id="multi-chunk JSON"),
        pytest.param((b"not json", b" at all"), id="invalid JSON"),
        pytest.param((b"{}", b""), id="empty EOS chunk"),
    ],
)
async def test_response_buffering(pieces: tuple[bytes, ...]) -> None:
    """Theirs holds JSON to the end; here it goes on piece by piece, and joins to the same."""
    async with asked() as (cluster, plane):
        said, head = await responded(plane, "application/json", *pieces)
        assert b"".join(said) == b"".join(pieces)
        assert head["x-went-into-resp-headers"] == "true"
        await eventually(lambda: cluster.picker.observer.counters.outcomes == {"succeeded": 1})


async def test_response_streaming_sse_token_counting() -> None:
    events = (b"data: {}\n\n", b'data: {"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n', b"")
    async with asked() as (cluster, plane):
        said, _ = await responded(plane, "text/event-stream", *events)
        assert said == list(events)
        await eventually(lambda: cluster.picker.observer.counters.outcomes == {"succeeded": 1})


# --- The door's own promises --------------------------------------------------------------------


async def test_health_names_follow_readiness() -> None:
    names = (
        "liveness",
        "readiness",
        "",
        "envoy.service.ext_proc.v3.ExternalProcessor",
        "inference-extension",
    )
    async with asked() as (cluster, plane):
        ready = [await plane.health(name) for name in names]
        while ready[1] != "SERVING":
            ready = [await plane.health(name) for name in names]
        assert ready == ["SERVING"] * len(names)
        cluster.picker.drain()
        drained = ready
        while drained[1] == "SERVING":
            drained = [await plane.health(name) for name in names]
        assert drained == ["SERVING"] + ["NOT_SERVING"] * (len(names) - 1)
        assert await plane.health("no-such") == "NOT_FOUND"


async def test_the_hop_is_checked_before_the_body_is_read() -> None:
    """A refused hop costs no upload; a valid token is for its own model and place only."""
    async with asked(http={"port": 0}) as (cluster, plane):
        exchange = plane.exchange()
        await exchange.head()
        assert error(await exchange.answer()) == (401, "hand_off_refused")
        other = await plane.ask(BODY, {"x-gir-hand-off": token(model=type(MODEL)("other"))})
        assert error(other) == (401, "hand_off_refused")
        abroad = await plane.ask(BODY, {"x-gir-hand-off": token(allowed=US_ONLY)})
        assert error(abroad) == (503, "residency_unsatisfiable")
        served = await plane.ask(BODY, {"x-gir-hand-off": token()})
        assert served.destination in {pod.address for pod in cluster.pods}
        assert "x-gir-hand-off" in served.removed
        cluster.picker.drain()
        drained = await plane.ask(BODY, {"x-gir-hand-off": token()})
        assert error(drained) == (503, "drained")
        assert drained.headers["x-gir-drained"] == "true"
        assert drained.headers["retry-after"]


async def test_a_malformed_control_header_is_400() -> None:
    async with asked() as (_, plane):
        answer = await plane.ask(BODY, {"x-llm-d-slo-ttft-ms": "soon"})
        assert error(answer) == (400, "invalid_value")


async def test_fallbacks_and_their_order_are_told_up_to_the_limit() -> None:
    async with asked(3, ext_proc={"endpoints_max": 2}) as (cluster, plane):
        endpoints = (await plane.ask(BODY)).destination.split(",")
        assert len(endpoints) == 2
        assert set(endpoints) < {pod.address for pod in cluster.pods}


async def test_a_compressed_body_is_read_and_goes_on_as_it_came() -> None:
    async with asked() as (_, plane):
        coded = gzip.compress(BODY)
        answer = await plane.ask(coded, {"content-encoding": "gzip"})
        assert answer.body == coded
        assert "content-encoding" not in answer.removed


async def test_the_pick_lasts_as_long_as_the_stream_and_moves_with_the_feedback() -> None:
    """The data plane used a fallback: the request counts there."""
    async with asked(2, ext_proc={"endpoints_max": 2}) as (cluster, plane):
        table = cluster.picker.observer.table
        exchange = plane.exchange()
        await exchange.head()
        await exchange.body(BODY)
        first, second = (await exchange.answer()).destination.split(",")
        by_address = {pod.address: pod for pod in table}
        assert (by_address[first].in_flight, by_address[second].in_flight) == (1, 0)
        request = wire.ProcessingRequest(response_headers=_headers({":status": "200"}))
        fields = request.metadata_context.filter_metadata["envoy.lb"].fields
        fields["x-gateway-destination-endpoint-served"].string_value = second
        await exchange.call.write(request)
        await exchange.read()
        assert (by_address[first].in_flight, by_address[second].in_flight) == (0, 1)
        exchange.call.cancel()
        await eventually(lambda: by_address[second].in_flight == 0)
        assert cluster.picker.observer.counters.outcomes == {"cancelled": 1}


async def test_an_evicted_request_is_429_before_its_answer_begins() -> None:
    async with asked() as (cluster, plane):
        exchange = plane.exchange()
        await exchange.head()
        await exchange.body(BODY)
        await exchange.answer()
        (stream,) = cluster.picker.doors.ext_proc._streams
        stream.evicted(Dropped(DropReason.EVICTED, "Evicted.", seconds(1)))
        answer = await exchange.answer()
        assert error(answer) == (429, "evicted")
        assert answer.headers["x-llm-d-request-dropped-reason"] == "evicted"
        assert cluster.picker.life.running == 0


async def test_a_request_whose_end_is_not_told_is_let_go_after_a_while() -> None:
    async with asked() as (cluster, plane):
        door = cluster.picker.doors.ext_proc
        exchange = plane.exchange()
        modes = wire.ProtocolConfiguration(request_body_mode=4, response_body_mode=0)
        await exchange.send(request_headers=_headers({":method": "POST"}), protocol_config=modes)
        await exchange.body(BODY)
        await exchange.answer()
        await exchange.close()
        await door.finished()
        assert cluster.picker.life.running == 1
        door.expire(Instant(cluster.clock.now() + ext_proc.UNWATCHED_FOR))
        assert cluster.picker.life.running == 0
        assert cluster.picker.observer.counters.outcomes == {"untold": 1}


async def test_what_is_no_message_ends_the_call() -> None:
    async with asked() as (_, plane):
        call = plane.raw()
        await call.write(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_bodies_of_all_streams_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ext_proc_stream, "HELD_BYTES_MAX", 1000)
    async with asked() as (cluster, plane):
        door = cluster.picker.doors.ext_proc
        first = plane.exchange()
        await first.head()
        await first.body(b"x" * 900, end=False)
        await eventually(lambda: door.held_bytes == 900)
        second = plane.exchange()
        await second.head()
        await second.body(b"x" * 200, end=False)
        answer = await second.answer()
        assert error(answer) == (429, "saturated")
        assert answer.headers["retry-after"] == "1"
        first.call.cancel()
        await eventually(lambda: door.held_bytes == 0)
