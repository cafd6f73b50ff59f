"""The pod as a conversation over real sockets: endpoints, errors, faults one by one."""

import asyncio
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI, RateLimitError

from services.simulator.assembly import RunningPod
from services.simulator.tokens import words
from tests.simulator.pods import MODEL, QUICK, STUCK, chat, connected, raw_request, running_pod
from tests.simulator.test_vllm_page import parsed, value
from tests.support.wait import eventually


def openai_client(pod: RunningPod) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"http://{pod.address}/v1", api_key="none", max_retries=0)


# --- the official client ------------------------------------------------------------------------


async def test_the_official_client_gets_a_whole_answer(pod: RunningPod) -> None:
    async with openai_client(pod) as client:
        answer = await client.chat.completions.create(
            model=MODEL, max_tokens=6, n=2, messages=[{"role": "user", "content": "Hello"}]
        )
    assert [choice.message.content for choice in answer.choices] == [words(6)] * 2
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 12)


async def test_the_official_client_streams_with_usage_when_it_asks(pod: RunningPod) -> None:
    async with openai_client(pod) as client:
        stream = await client.chat.completions.create(
            model="alias",
            max_tokens=6,
            n=2,
            messages=[{"role": "user", "content": "Hello"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    texts = {0: "", 1: ""}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == {0: words(6), 1: words(6)}
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12
    assert not any(chunk.usage for chunk in chunks[:-1])


async def test_the_official_client_completes_prompts_in_order(pod: RunningPod) -> None:
    async with openai_client(pod) as client:
        answer = await client.completions.create(model=MODEL, prompt=["one", "two"], max_tokens=3)
        stream = await client.completions.create(model=MODEL, prompt="one", max_tokens=3, stream=True)
        text = "".join([chunk.choices[0].text async for chunk in stream])
        models = [model.id async for model in client.models.list()]
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert text == words(3)
    assert models == [MODEL, "alias"]


async def test_the_official_client_sees_errors_as_its_own(pod: RunningPod) -> None:
    async with openai_client(pod) as client:
        messages: Any = [{"role": "user", "content": "Hello"}]
        with pytest.raises(NotFoundError, match="`nope` does not exist"):
            await client.chat.completions.create(model="nope", messages=messages)
        with pytest.raises(BadRequestError, match="maximum context length is 131072"):
            await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=131_072)
        pod.configure({"failure_injection_rate": 100, "failure_types": ["rate_limit"]})
        with pytest.raises(RateLimitError, match="Rate limit reached"):
            await client.chat.completions.create(model=MODEL, messages=messages)


async def test_the_synchronous_client_works_too(pod: RunningPod) -> None:
    def converse() -> tuple[str | None, str]:
        with OpenAI(base_url=f"http://{pod.address}/v1", api_key="none", max_retries=0) as client:
            messages: Any = [{"role": "user", "content": "Hello"}]
            answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=4)
            stream = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=4, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        return answer.choices[0].message.content, text

    assert await asyncio.to_thread(converse) == (words(4), words(4))


# --- the wire -----------------------------------------------------------------------------------


async def test_a_stream_ends_with_the_end_mark_and_no_usage_unasked(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/chat/completions", json=chat(stream=True))
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert "usage" not in answer.text
    assert len(events) == 1 + 4 + 1 + 1 + 1


async def test_an_answer_names_its_server_and_follows_the_clients_id(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/chat/completions", json=chat(), headers={"x-request-id": "r-1"})
    assert answer.headers["x-inference-pod"] == "pod-7"
    assert int(answer.headers["x-inference-port"]) == http.base_url.port
    assert answer.json()["id"] == "chatcmpl-r-1"


async def test_an_answer_ends_by_itself_at_a_length_its_id_decides(http: httpx.AsyncClient) -> None:
    headers = {"x-request-id": "r-1"}
    first = (await http.post("/v1/chat/completions", json=chat(max_tokens=None), headers=headers)).json()
    again = (await http.post("/v1/chat/completions", json=chat(max_tokens=600), headers=headers)).json()
    forced = chat(max_tokens=600, ignore_eos=True)
    whole = (await http.post("/v1/chat/completions", json=forced, headers=headers)).json()
    assert first["choices"][0]["finish_reason"] == "stop"
    assert first["usage"]["completion_tokens"] == again["usage"]["completion_tokens"]
    assert whole["usage"]["completion_tokens"] == 600
    assert whole["choices"][0]["finish_reason"] == "length"


async def test_a_repeated_prompt_is_counted_as_cached(http: httpx.AsyncClient) -> None:
    body = chat(messages=[{"role": "user", "content": "x" * 1000}])
    cold = (await http.post("/v1/chat/completions", json=body)).json()
    warm = (await http.post("/v1/chat/completions", json=body)).json()
    salted = (await http.post("/v1/chat/completions", json=body | {"cache_salt": "other"})).json()
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in (cold, warm, salted)]
    assert cached == [0, 240, 0]


async def test_the_prefix_cache_can_be_off() -> None:
    off = QUICK.model_copy(update={"prefix_caching": False})
    async with running_pod(engine=off) as pod, httpx.AsyncClient(base_url=f"http://{pod.address}") as http:
        body = chat(messages=[{"role": "user", "content": "x" * 1000}])
        answers = [(await http.post("/v1/chat/completions", json=body)).json() for _ in range(2)]
    assert answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/v1/chat/completions", b"{", 400),
        ("POST", "/v1/chat/completions", b'{"messages":[{"role":"user","content":"x"}]}', 400),
        ("POST", "/v1/completions", b'{"model":7,"prompt":"x"}', 400),
        ("POST", "/v1/completions", b'{"model":"nope","prompt":"x"}', 404),
        ("GET", "/v1/chat/completions", b"", 405),
        ("GET", "/v1/nothing", b"", 404),
    ],
)
async def test_an_error_has_openais_form(
    http: httpx.AsyncClient, method: str, path: str, content: bytes, status: int
) -> None:
    answer = await http.request(method, path, content=content)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status


async def test_an_oversized_body_is_refused_in_the_same_form() -> None:
    async with (
        running_pod(body_max_bytes=1024) as pod,
        httpx.AsyncClient(base_url=f"http://{pod.address}") as http,
    ):
        answer = await http.post("/v1/chat/completions", content=b"x" * 1025)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, 413)


async def test_health_version_and_load_are_served(http: httpx.AsyncClient) -> None:
    assert (await http.get("/health")).status_code == 200
    assert (await http.get("/ping")).status_code == 200
    assert (await http.post("/ping")).status_code == 200
    assert (await http.get("/version")).json() == {"version": "0.11.0"}


async def test_metrics_follow_what_was_served(http: httpx.AsyncClient) -> None:
    await http.post("/v1/chat/completions", json=chat(max_tokens=4))
    answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = parsed(answer.content)
    assert value(samples, "vllm:request_success_total", finished_reason="length", model_name=MODEL) == 1
    assert value(samples, "vllm:generation_tokens_total") == 4
    assert value(samples, "vllm:inter_token_latency_seconds_count") == 3


async def test_metrics_show_what_runs_and_what_waits() -> None:
    crowded = STUCK.model_copy(update={"max_num_seqs": 1})
    async with (
        running_pod(engine=crowded) as pod,
        httpx.AsyncClient(base_url=f"http://{pod.address}") as http,
    ):
        calls = [asyncio.ensure_future(http.post("/v1/chat/completions", json=chat())) for _ in range(3)]  # noqa: TID251 -- awaited below
        await eventually(lambda: pod.engine.running + pod.engine.waiting == 3, what="three in flight")
        samples = parsed((await http.get("/metrics")).content)
        assert value(samples, "vllm:num_requests_running") == 1
        assert value(samples, "vllm:num_requests_waiting") == 2
        assert value(samples, "vllm:kv_cache_usage_perc") > 0
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_vanished_client_aborts_its_sequences(stream: bool) -> None:
    async with running_pod(engine=STUCK) as pod:
        async with connected(pod) as (_, writer):
            writer.write(raw_request(chat(stream=stream, n=3)))
            await eventually(lambda: pod.engine.running + pod.engine.waiting == 3, what="three in flight")
        await eventually(lambda: pod.engine.waiting == 0, what="the waiting ones to be gone")
        assert pod.engine.tallies.finished["abort"] == 2


async def test_pipelined_requests_are_answered_in_order(pod: RunningPod) -> None:
    metrics = b"GET /metrics HTTP/1.1\r\nhost: pod\r\nconnection: close\r\n\r\n"
    async with connected(pod) as (reader, writer):
        writer.write(raw_request(chat(max_tokens=3)) + raw_request(chat(max_tokens=2, stream=True)) + metrics)
        everything = await reader.read()
    assert everything.count(b"HTTP/1.1 200 OK") == 3
    order = [everything.index(mark) for mark in (b'"chat.completion"', b"data: [DONE]", b"vllm:num_requests")]
    assert order == sorted(order)


# --- adapters, tokens, ranks --------------------------------------------------------------------


async def test_an_adapter_is_served_listed_and_seen_in_the_metrics() -> None:
    async with (
        running_pod(loras=("sql",), max_loras=2) as pod,
        httpx.AsyncClient(base_url=f"http://{pod.address}") as http,
    ):
        loaded = await http.post("/v1/load_lora_adapter", json={"lora_name": "chat", "lora_path": "/x"})
        assert (loaded.status_code, loaded.text) == (200, "Success: LoRA adapter 'chat' added successfully.")
        listed = (await http.get("/v1/models")).json()["data"]
        assert [(card["id"], card["parent"]) for card in listed] == [
            (MODEL, None),
            ("sql", MODEL),
            ("chat", MODEL),
        ]
        for name in ("sql", "chat"):
            answer = await http.post("/v1/chat/completions", json=chat(model=name))
            assert answer.json()["model"] == name
        samples = parsed((await http.get("/metrics")).content)
        seen = {
            dict(labels)["running_lora_adapters"]
            for name, labels in samples
            if name == "vllm:lora_requests_info"
        }
        assert seen == {"", "sql", "chat"}
        assert pod.engine.resident_adapters == ("sql", "chat")
        gone = await http.post("/v1/unload_lora_adapter", json={"lora_name": "chat"})
        assert gone.status_code == 200
        assert (await http.post("/v1/chat/completions", json=chat(model="chat"))).status_code == 404


async def test_an_adapter_has_a_cache_of_its_own_and_an_alias_has_not() -> None:
    body = chat(messages=[{"role": "user", "content": "x" * 1000}])
    async with (
        running_pod(loras=("sql",), aliases=("alias",)) as pod,
        httpx.AsyncClient(base_url=f"http://{pod.address}") as http,
    ):
        cached = []
        for name in (MODEL, "sql", "alias"):
            answer = await http.post("/v1/chat/completions", json=body | {"model": name})
            cached.append(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 0, 240]


async def test_without_adapters_there_is_nothing_to_load(http: httpx.AsyncClient) -> None:
    for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter"):
        assert (await http.post(path, json={"lora_name": "a", "lora_path": "/a"})).status_code == 404


async def test_a_text_is_tokenized_as_vllm_answers(http: httpx.AsyncClient) -> None:
    answer = (await http.post("/tokenize", json={"model": MODEL, "prompt": "Hello"})).json()
    assert answer == {
        "count": 2,
        "max_model_len": 131_072,
        "tokens": [0x48656C6C, 0x6F000000],
        "token_strs": None,
    }
    assert (await http.post("/tokenize", json={"prompt": "Hello"})).json()["count"] == 2
    assert (await http.post("/tokenize", json={"model": "nope", "prompt": "x"})).status_code == 404


@pytest.mark.parametrize("rank", ["1", "-1", "many"])
async def test_a_rank_the_pod_has_not_is_refused(http: httpx.AsyncClient, rank: str) -> None:
    answer = await http.post("/v1/chat/completions", json=chat(), headers={"x-data-parallel-rank": rank})
    assert answer.status_code == 400
    assert "expected 0 to 0" in answer.json()["error"]["message"]


# --- as SGLang ----------------------------------------------------------------------------------


async def test_a_pod_can_pose_as_sglang() -> None:
    async with (
        running_pod(flavour="sglang", version="0.4.9", loras=("sql",), page_lines=1500) as pod,
        httpx.AsyncClient(base_url=f"http://{pod.address}") as http,
    ):
        answer = await http.post("/v1/chat/completions", json=chat(model="sql"))
        assert answer.status_code == 200
        page = (await http.get("/metrics")).content
        assert page.count(b"\n") >= 1500
        assert value(parsed(page), "sglang:num_requests_total", model_name=MODEL) == 1
        for path in ("/get_server_info", "/server_info"):
            info = (await http.get(path)).json()
            assert (info["version"], info["served_model_name"]) == ("0.4.9", MODEL)
            assert (info["page_size"], info["dp_size"]) == (16, 1)
            assert info["max_total_num_tokens"] == 24_000 * 16
        assert [(await http.get(path)).status_code for path in ("/health", "/health_generate")] == [200, 200]
        assert (await http.get("/version")).status_code == 404
        assert (await http.get("/v1/models")).json()["data"][0]["owned_by"] == "sglang"
        loaded = await http.post("/load_lora_adapter", json={"lora_name": "b", "lora_path": "/b"})
        assert loaded.status_code == 200
        assert (await http.post("/flush_cache")).status_code == 200
        pod.configure({"probes": "fail"})
        assert (await http.get("/health_generate")).status_code == 503


async def test_sglang_refuses_to_flush_while_it_works() -> None:
    async with (
        running_pod(flavour="sglang", engine=STUCK) as pod,
        httpx.AsyncClient(base_url=f"http://{pod.address}") as http,
        connected(pod) as (_, writer),
    ):
        writer.write(raw_request(chat()))
        await eventually(lambda: pod.engine.running == 1, what="one in flight")
        assert (await http.post("/flush_cache")).status_code == 400
        assert (await http.get("/metrics")).status_code == 200


async def test_an_old_version_has_the_old_names() -> None:
    async with (
        running_pod(version="0.9.1") as pod,
        httpx.AsyncClient(base_url=f"http://{pod.address}") as http,
    ):
        names = {name for name, _ in parsed((await http.get("/metrics")).content)}
        assert (await http.get("/version")).json() == {"version": "0.9.1"}
    assert "vllm:gpu_cache_usage_perc" in names
    assert "vllm:kv_cache_usage_perc" not in names
