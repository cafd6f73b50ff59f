"""Whole pods: ranks behind one port, KV events of a conversation, the time before a pod listens."""

import socket
from typing import Any

import httpx
import msgpack
import pytest
import zmq
import zmq.asyncio

from services.adapters.system.clock import SystemClock
from services.simulator.assembly import RunningPod, start_pod
from services.simulator.settings import PodSettings
from tests.simulator.pods import MODEL, QUICK, STUCK, chat, running_pod
from tests.support.wait import eventually

ANY = "tcp://127.0.0.1:0"
EVENTS = {"endpoint": ANY, "replay_endpoint": ANY}


async def replayed(endpoint: str) -> list[list[Any]]:
    """Return the events of each batch a rank has published, by its replay socket."""
    dealer: zmq.asyncio.Socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
    dealer.connect(endpoint)
    batches = []
    try:
        await dealer.send_multipart((b"", bytes(8)))
        while (frames := await dealer.recv_multipart())[2]:
            batches.append(msgpack.unpackb(frames[2])[1])
    finally:
        dealer.close(linger=0)
    return batches


def client(pod: RunningPod) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{pod.address}")


async def test_the_blocks_told_of_are_the_tokens_that_tokenize_gives() -> None:
    body = chat(messages=[{"role": "user", "content": "x" * 1000}], max_tokens=40)
    async with running_pod(kv_events=EVENTS) as pod, client(pod) as http:
        prompt = (await http.post("/tokenize", json=body)).json()["tokens"]
        await http.post("/v1/chat/completions", json=body)
        events = [event for batch in await replayed(pod.kv_replay_endpoints[0]) for event in batch]
    assert {event[0] for event in events} == {"BlockStored"}
    told = [token for event in events for token in event[3]]
    assert told[: len(prompt)] == prompt
    # 253 tokens of prompt and 40 of answer, the last of which is never computed: 18 full blocks.
    assert len(told) == 18 * 16
    hashes = [block for event in events for block in event[1]]
    assert len(set(hashes)) == 18
    assert [event[2] for event in events] == [None, *(event[1][-1] for event in events[:-1])]


async def test_a_second_turn_reuses_what_the_first_one_answered() -> None:
    question = {"role": "user", "content": "x" * 1000}
    async with running_pod() as pod, client(pod) as http:
        first = (
            await http.post("/v1/chat/completions", json=chat(messages=[question], max_tokens=40))
        ).json()
        answer = first["choices"][0]["message"]
        turns = [question, answer, {"role": "user", "content": "Go on"}]
        second = (await http.post("/v1/chat/completions", json=chat(messages=turns))).json()
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 18 * 16


async def test_text_and_token_ids_share_the_cache() -> None:
    text = "words " * 50
    async with running_pod() as pod, client(pod) as http:
        tokens = (await http.post("/tokenize", json={"model": MODEL, "prompt": text})).json()["tokens"]
        bodies = ({"model": MODEL, "prompt": prompt, "max_tokens": 2} for prompt in (text, tokens))
        answers = [(await http.post("/v1/completions", json=body)).json() for body in bodies]
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert cached == [0, 64]


async def test_each_rank_publishes_and_answers_for_itself() -> None:
    async with running_pod(data_parallel_size=2, kv_events=EVENTS) as pod, client(pod) as http:
        long = chat(messages=[{"role": "user", "content": "x" * 400}])
        for rank in "01":
            answer = await http.post(
                "/v1/chat/completions", json=long, headers={"x-data-parallel-rank": rank}
            )
            assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        batches = [await replayed(endpoint) for endpoint in pod.kv_replay_endpoints]
        assert len({*pod.kv_endpoints, *pod.kv_replay_endpoints}) == 4
    assert batches[0] == batches[1] != []


async def test_load_is_spread_over_the_ranks() -> None:
    async with running_pod(data_parallel_size=3, engine=STUCK) as pod, client(pod) as http:
        calls = [http.build_request("POST", "/v1/chat/completions", json=chat(stream=True)) for _ in range(6)]
        answers = [await http.send(call, stream=True) for call in calls]
        assert [engine.running + engine.waiting for engine in pod.engines] == [2, 2, 2]
        page = (await http.get("/metrics")).text
        for answer in answers:
            await answer.aclose()
    assert all(f'vllm:num_requests_running{{engine="{rank}"' in page for rank in range(3))


async def test_a_given_port_counts_up_by_rank() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        base = one.getsockname()[1]
    settings = {"endpoint": f"tcp://127.0.0.1:{base}"}
    async with running_pod(data_parallel_size=2, kv_events=settings) as pod:
        assert pod.kv_endpoints == tuple(f"tcp://127.0.0.1:{base + rank}" for rank in range(2))
        assert pod.kv_replay_endpoints == ("", "")


async def test_clearing_the_cache_and_sleeping_are_told() -> None:
    async with running_pod(kv_events=EVENTS) as pod, client(pod) as http:
        assert (await http.post("/reset_prefix_cache")).status_code == 200
        assert (await http.post("/sleep")).status_code == 200
        assert (await http.get("/is_sleeping")).json() == {"is_sleeping": True}
        assert (await http.post("/wake_up")).status_code == 200
        assert (await http.get("/is_sleeping")).json() == {"is_sleeping": False}
        assert await replayed(pod.kv_replay_endpoints[0]) == [[["AllBlocksCleared"]]] * 2
        assert (await http.post("/v1/chat/completions", json=chat())).status_code == 200


async def test_the_topic_names_address_and_base_model() -> None:
    async with running_pod(kv_events=EVENTS, aliases=("alias",)) as pod, client(pod) as http:
        subscriber: zmq.asyncio.Socket = zmq.asyncio.Context.instance().socket(zmq.SUB)
        subscriber.subscribe(b"kv@")
        subscriber.connect(pod.kv_endpoints[0])
        try:
            for _ in range(500):  # A subscription takes a moment to arrive.
                await http.post("/reset_prefix_cache")
                if await subscriber.poll(20):
                    break
            topic, _, _ = await subscriber.recv_multipart()
        finally:
            subscriber.close(linger=0)
    assert topic.decode() == f"kv@127.0.0.1:{pod.port}@{MODEL}"


async def test_lost_events_are_kept_for_replay() -> None:
    async with running_pod(kv_events=EVENTS) as pod, client(pod) as http:
        pod.configure({"kv_events": "lose"})
        await http.post("/reset_prefix_cache")
        assert await replayed(pod.kv_replay_endpoints[0]) == [[["AllBlocksCleared"]]]


async def test_a_pod_that_loads_weights_refuses_connections_and_then_serves() -> None:
    async with running_pod(startup_s=0.05) as pod, client(pod) as http:
        assert not pod.ready.is_set()
        with pytest.raises(httpx.ConnectError):
            await http.get("/health")
        await pod.ready.wait()
        assert (await http.get("/health")).status_code == 200


async def test_a_pod_stopped_while_it_loads_leaves_nothing() -> None:
    async with running_pod(startup_s=60) as pod:
        assert not pod.ready.is_set()
    assert not pod.ready.is_set()


async def test_a_reset_pod_comes_back_where_it_was() -> None:
    async with running_pod(kv_events=EVENTS) as pod, client(pod) as http:
        assert (await http.get("/health")).status_code == 200
        pod.reset()
        settings = PodSettings(port=pod.port, engine=QUICK)
        successor = await start_pod(settings, SystemClock())
        try:
            assert (await http.get("/health")).status_code == 200
        finally:
            await successor.stop()


async def test_an_address_that_cannot_be_had_is_an_error_and_leaves_nothing_open() -> None:
    async with running_pod(kv_events=EVENTS) as pod:
        place, _, port = pod.kv_endpoints[0].rpartition(":")
        second_rank_there = {"data_parallel_size": 2, "kv_events": {"endpoint": f"{place}:{int(port) - 1}"}}
        for wanted in (
            {"port": pod.port},
            {"port": 0} | second_rank_there,
            {"port": 0, "kv_events": {"endpoint": pod.kv_endpoints[0]}},
            {"port": 0, "kv_events": {"endpoint": ANY, "replay_endpoint": pod.kv_replay_endpoints[0]}},
        ):
            with pytest.raises(OSError, match="in use"):
                await start_pod(PodSettings.model_validate({"engine": QUICK} | wanted), SystemClock())


async def test_a_hundred_pods_share_a_process() -> None:
    pods = [
        await start_pod(PodSettings(port=0, pod=f"p-{n}", engine=QUICK), SystemClock()) for n in range(100)
    ]
    try:
        async with httpx.AsyncClient() as http:
            for pod in pods[::10]:
                answer = await http.get(f"http://{pod.address}/v1/models")
                assert answer.headers["x-inference-pod"].startswith("p-")
    finally:
        for pod in pods:
            await pod.stop()
    await eventually(lambda: not any(pod.connections for pod in pods), what="every connection to close")
