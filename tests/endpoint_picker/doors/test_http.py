"""The cluster gateway over real sockets: the hop is authenticated, the body untouched, refusals have their forms."""

import asyncio
import json

import httpx
import pytest

from services.core.inference import ModelName
from services.core.locality import ClusterId
from services.wire.hand_off import HandOffKey, derive_key
from tests.endpoint_picker.cluster import (
    EU_ONLY,
    KEY,
    MODEL,
    REQUEST_ID,
    US_ONLY,
    Cluster,
    chat,
    cluster_of,
    content_of,
    sse_data,
    token,
)
from tests.support.wait import eventually

OTHER = ClusterId("us-east-1")


def refusal(answer: httpx.Response) -> tuple[int, str]:
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    return answer.status_code, answer.headers["x-gir-drop-reason"]


async def test_a_handed_over_request_is_answered_by_a_pod_that_the_answer_names() -> None:
    async with cluster_of() as cluster:
        answer = await cluster.post(chat())
        assert answer.status_code == 200
        assert answer.headers["x-gir-endpoint"] in ("pod-0", "pod-1")
        assert answer.headers["x-gir-endpoint"] == answer.headers["x-inference-pod"]
        assert answer.headers["x-gir-request-id"] == REQUEST_ID
        assert answer.json()["choices"][0]["message"]["content"]


async def test_a_stream_passes_through_to_its_end() -> None:
    async with cluster_of() as cluster:
        answer = await cluster.post(chat(stream=True))
        events = sse_data(answer.text)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert events[-1] == "[DONE]"
        assert content_of(events)


async def test_both_spellings_of_the_path_reach_the_pod() -> None:
    async with cluster_of(1) as cluster:
        for path in ("/v1/chat/completions", "/openai/v1/chat/completions?x=1"):
            answer = await cluster.client.post(path, json=chat(), headers={"x-gir-hand-off": token()})
            assert answer.status_code == 200


@pytest.mark.parametrize(
    ("hand_off", "why"),
    [
        (token(audience=OTHER, key=HandOffKey(KEY.kid, KEY.secret)), "wrong_audience"),
        (token(audience=OTHER, key=derive_key(KEY.kid, b"s" * 32, OTHER)), "bad_signature"),
        (token(key=HandOffKey("other", KEY.secret)), "unknown_key"),
        (token(expires_in_ms=-10_000), "expired"),
        (token(expires_in_ms=600_000), "lifetime_too_long"),
        ("eyJhbGciOiJFZERTQSJ9.e30.sig", "malformed"),
        ("", "missing"),
        (f"{token()}, {token()}", "malformed"),
    ],
)
async def test_a_hop_without_a_valid_token_for_this_cluster_is_refused(hand_off: str, why: str) -> None:
    async with cluster_of(0) as cluster:
        answer = await cluster.post(chat(), hand_off)
        assert refusal(answer) == (401, "hand_off_refused")
        assert why in answer.json()["error"]["message"]
        assert cluster.picker.doors.http.entry.counters.hand_off_refusals == {why: 1}


async def test_a_client_token_sent_straight_to_the_gateway_is_refused() -> None:
    async with cluster_of(0) as cluster:
        for path in ("/v1/chat/completions", "/v1/models"):
            method = "GET" if path == "/v1/models" else "POST"
            answer = await cluster.client.request(method, path, headers={"authorization": "Bearer abc"})
            assert refusal(answer) == (401, "hand_off_refused")


async def test_content_is_refused_where_its_residency_does_not_allow_it() -> None:
    async with cluster_of(1) as cluster:
        assert refusal(await cluster.post(chat(), token(allowed=US_ONLY))) == (503, "residency_unsatisfiable")
        assert (await cluster.post(chat(), token(allowed=EU_ONLY))).status_code == 200


async def test_a_prompt_that_may_not_be_here_is_refused_before_it_is_read() -> None:
    """The answer comes from the head alone: the body is announced and never sent."""
    async with cluster_of(0) as cluster:
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.picker.http_port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n"
            b"x-gir-hand-off: %b\r\n\r\n{" % token(allowed=US_ONLY).encode()
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"residency_unsatisfiable" in head
        writer.close()
        await writer.wait_closed()


async def test_an_expired_deadline_is_not_begun_and_a_near_one_ends_the_wait() -> None:
    async with cluster_of(1) as cluster:
        assert refusal(await cluster.post(chat(), token(deadline_in_ms=-1))) == (504, "deadline_exceeded")
        cluster.pods[0].configure({"extra_ttft_ms": 5_000})
        assert refusal(await cluster.post(chat(), token(deadline_in_ms=200))) == (504, "deadline_exceeded")
        assert cluster.picker.observer.table["pod-0"].in_flight == 0


async def test_no_pod_at_all_is_503_and_not_429() -> None:
    async with cluster_of(0) as cluster:
        answer = await cluster.post(chat())
        assert refusal(answer) == (503, "no_endpoints")
        assert int(answer.headers["retry-after"]) >= 1


async def test_readiness_needs_a_ready_endpoint_and_liveness_needs_none() -> None:
    async with cluster_of(0) as cluster:
        assert (await cluster.client.get("/healthz")).status_code == 200
        assert (await cluster.client.get("/readyz")).status_code == 503
    async with cluster_of(1) as cluster:
        assert (await cluster.client.get("/readyz")).status_code == 200


async def test_unknown_paths_and_methods_have_openai_errors() -> None:
    async with cluster_of(0) as cluster:
        assert refusal(await cluster.client.get("/v1/unknown")) == (404, "unknown_url")
        for method, path, allowed in (
            ("GET", "/v1/chat/completions", "POST, OPTIONS"),
            ("HEAD", "/v1/responses", "POST, OPTIONS"),
            ("POST", "/v1/models", "GET, HEAD, OPTIONS"),
            ("POST", "/readyz", "GET, HEAD, OPTIONS"),
        ):
            refused = await cluster.client.request(method, path)
            assert (refused.status_code, refused.headers["allow"]) == (405, allowed)
            assert refused.headers["x-gir-drop-reason"] == "method_not_allowed"
            asked = await cluster.client.options(path)
            assert (asked.status_code, asked.headers["allow"], asked.content) == (204, allowed, b"")
        assert (await cluster.client.get("/openai/readyz")).status_code == 404


async def test_too_large_a_body_has_an_openai_error() -> None:
    async with cluster_of(0, http={"port": 0, "body_max_bytes": 1024}) as cluster:
        answer = await cluster.post(chat() | {"user": "x" * 5_000})
        assert refusal(answer) == (413, "request_too_large")


async def test_models_are_listed_for_routers() -> None:
    async with cluster_of(0) as cluster:
        answer = await cluster.client.get("/v1/models", headers={"x-gir-hand-off": token()})
        assert [model["id"] for model in answer.json()["data"]] == [MODEL]


async def test_a_draining_cluster_says_so_and_finishes_what_runs() -> None:
    async with cluster_of(1, pod={"faults": {"extra_ttft_ms": 300}}) as cluster:
        running = asyncio.ensure_future(cluster.post(chat(stream=True)))  # noqa: TID251 -- awaited below
        await eventually(lambda: cluster.picker.observer.table["pod-0"].in_flight == 1)
        cluster.picker.drain()
        answer = await cluster.post(chat())
        assert refusal(answer) == (503, "drained")
        assert answer.headers["x-gir-drained"] == "true"
        assert (await cluster.client.get("/readyz")).status_code == 503
        assert sse_data((await running).text)[-1] == "[DONE]"


class Echo:
    """A pod that keeps the bytes it was sent and answers with headers no pod should send."""

    def __init__(self) -> None:
        self.seen = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"POST"):
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            self.seen = head + await reader.readexactly(size)
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-gir-drained: true\r\nx-gir-endpoint: liar\r\n"
                b"connection: close\r\n\r\n{}"
            )
        else:
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()


async def test_the_body_arrives_byte_for_byte_and_steering_headers_and_credentials_do_not() -> None:
    pod = Echo()
    server = await asyncio.start_server(pod.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pools = [
        {"name": "chat", "models": [MODEL], "endpoints": [{"id": "echo", "address": f"127.0.0.1:{port}"}]}
    ]
    body = b'{ "model":"llama-3.1-8b",\n  "unknown": 1.50, "messages":[] , "z":"\\u00e9"}'
    async with server, cluster_of(0, pools=pools) as cluster:
        await eventually(lambda: cluster.state("echo") == "STALE")
        answer = await cluster.client.post(
            "/openai/v1/completions?a=b%20c",
            content=body,
            headers={
                "x-gir-hand-off": token(),
                "authorization": "Bearer client",
                "x-gateway-destination-endpoint": "10.0.0.1:80",
                "x-llm-d-inference-objective": "x",
                "x-gir-attempt": "1",
                "x-custom": "kept",
                "traceparent": "00-1-2-01",
            },
        )
    head, _, received = pod.seen.partition(b"\r\n\r\n")
    assert received == body
    assert head.startswith(b"POST /v1/completions?a=b%20c HTTP/1.1\r\n")
    for absent in (b"authorization", b"x-gir-", b"x-gateway-destination", b"x-llm-d-"):
        assert absent not in head.lower()
    assert b"x-custom: kept" in head
    for name in (b"x-gateway-model-name", b"x-gateway-base-model-name"):
        assert b"\r\n%b: %b\r\n" % (name, MODEL.encode()) in head
    assert b"traceparent: 00-1-2-01" in head
    assert answer.headers.get_list("x-gir-endpoint") == ["echo"]
    assert "x-gir-drained" not in answer.headers


async def test_a_pod_that_cannot_be_connected_to_costs_the_client_nothing() -> None:
    async with cluster_of(2) as cluster:
        cluster.picker.observer.frozen = True
        cluster.pods[0].reset()
        answers = [await cluster.post(chat()) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 6
        assert {answer.headers["x-gir-endpoint"] for answer in answers} == {"pod-1"}
        assert cluster.picker.observer.table["pod-0"].in_flight == 0


async def test_a_pod_lost_between_scrapes_leaves_with_the_first_failed_connection() -> None:
    async with cluster_of(1) as cluster:
        cluster.picker.observer.frozen = True
        cluster.pods[0].reset()
        assert refusal(await cluster.post(chat())) == (503, "attempts_exhausted")
        assert cluster.state("pod-0") == "EXCLUDED"
        assert (await cluster.client.get("/readyz")).status_code == 503


async def test_a_pod_that_dies_in_its_answer_ends_the_stream_with_an_error_and_no_done() -> None:
    async with cluster_of(1) as cluster:
        hand_off = {"x-gir-hand-off": token()}
        body = chat(stream=True, max_tokens=400)
        async with cluster.client.stream(
            "POST", "/v1/chat/completions", json=body, headers=hand_off
        ) as answer:
            lines = answer.aiter_lines()
            first = await anext(lines)
            cluster.pods[0].reset()
            rest = [line async for line in lines if line]
        assert first.startswith("data: ")
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "attempts_exhausted"
        assert "data: [DONE]" not in rest
        assert cluster.picker.doors.http.entry.counters.outcomes["broken_off"] == 1


async def test_a_client_that_leaves_stops_the_pod() -> None:
    async with cluster_of(1) as cluster:
        engine = cluster.pods[0].engine
        hand_off = {"x-gir-hand-off": token()}
        body = chat(stream=True, max_tokens=4_000)
        async with cluster.client.stream(
            "POST", "/v1/chat/completions", json=body, headers=hand_off
        ) as answer:
            await anext(answer.aiter_lines())
            assert cluster.picker.observer.table["pod-0"].in_flight == 1
        await eventually(lambda: cluster.picker.observer.table["pod-0"].in_flight == 0)
        await eventually(lambda: engine.running == 0)
        assert cluster.picker.doors.http.entry.counters.outcomes["cancelled"] == 1


async def test_a_pods_own_refusal_is_passed_on_and_counted() -> None:
    faults = {"failure_injection_rate": 100, "failure_types": ["rate_limit"]}
    async with cluster_of(1, pod={"faults": faults}) as cluster:
        answer = await cluster.post(chat())
        assert answer.status_code == 429
        assert cluster.picker.doors.http.entry.counters.outcomes["saturated"] == 1


async def test_direct_access_is_explicit_and_then_needs_no_token_but_a_body() -> None:
    async with cluster_of(1, http={"port": 0, "accept": "direct"}) as cluster:

        async def ask(body: bytes, headers: dict[str, str]) -> httpx.Response:
            return await cluster.client.post("/v1/chat/completions", content=body, headers=headers)

        assert (await ask(json.dumps(chat()).encode(), {})).status_code == 200
        assert refusal(await ask(b"{", {})) == (400, "invalid_json")
        assert refusal(await ask(b"{}", {})) == (400, "missing_required_parameter")
        unknown = json.dumps(chat(model="no-such")).encode()
        assert refusal(await ask(unknown, {})) == (404, "model_not_found")
        forged = {"x-gir-hand-off": token(expires_in_ms=-9_000)}
        assert refusal(await ask(json.dumps(chat()).encode(), forged)) == (401, "hand_off_refused")


async def test_a_handed_over_model_that_this_cluster_does_not_serve_may_be_served_elsewhere() -> None:
    async with cluster_of(1) as cluster:
        asked = chat(model="no-such")
        assert refusal(await cluster.post(asked, token(model=ModelName("no-such")))) == (
            503,
            "no_endpoints",
        )


async def test_a_hand_off_opens_the_model_it_names_and_no_other() -> None:
    """A caller of `Route` holds a token too: what it was not granted it must not reach through a shared pool."""
    pools = [
        {"name": "chat", "models": [MODEL, "secret"], "endpoints": [{"id": "a", "address": "127.0.0.1:9"}]}
    ]
    async with cluster_of(0, pools=pools) as cluster:
        twice = b'{"model":"llama-3.1-8b","model":"secret"}'
        for body in (json.dumps(chat(model="secret")).encode(), twice, b"[]", b""):
            answer = await cluster.client.post(
                "/v1/chat/completions", content=body, headers={"x-gir-hand-off": token()}
            )
            assert refusal(answer) in {
                (401, "hand_off_refused"),
                (400, "invalid_value"),
                (400, "invalid_json"),
            }
        assert cluster.picker.doors.http.entry.counters.picks == 0


async def test_a_black_holed_gateway_answers_nothing_and_goes_on_where_it_stopped() -> None:
    async with cluster_of(1) as cluster:
        hand_off = {"x-gir-hand-off": token()}
        body = chat(stream=True, max_tokens=60)
        async with cluster.client.stream(
            "POST", "/v1/chat/completions", json=body, headers=hand_off
        ) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            cluster.picker.black_hole(True)
            new = asyncio.ensure_future(cluster.post(chat()))  # noqa: TID251 -- awaited below
            probe = asyncio.ensure_future(cluster.client.get("/readyz"))  # noqa: TID251 -- awaited below
            await eventually(lambda: len(cluster.picker.doors.http._held) == 2)
            await _quiet(cluster)
            assert not new.done()
            assert not probe.done()
            cluster.picker.black_hole(False)
            rest = [line async for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert (await new).status_code == 200
        assert (await probe).status_code == 200


async def _quiet(cluster: Cluster) -> None:
    """Let several scrape intervals of real time pass."""
    counters = cluster.picker.observer.counters
    before = counters.reports
    started = cluster.clock.now()
    await eventually(lambda: cluster.clock.now() - started > 300_000_000)
    assert counters.reports == before
