"""Attempts through real sockets: what is retried, what is not, and what the client sees of it."""

import asyncio
import dataclasses
import json
from pathlib import Path

import pytest

from services.adapters.http.responder import Responder
from services.adapters.http.upstream import UpstreamOptions
from services.adapters.ports import ChangeKind
from services.core.fleet import HealthState, ReportId
from services.core.locality import ClusterId
from services.core.policy import Timeouts
from services.core.units import ms
from services.wire.http1.requests import Request
from services.wire.policy_codec import encode_policy
from tests.global_router.rig import (
    ANSWER,
    EU,
    EVENTS,
    MODEL,
    US,
    Rig,
    Script,
    answer,
    bearer,
    reset,
    running,
    status,
)
from tests.support.wait import eventually

FIRST = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM = {"model": MODEL, "messages": [], "stream": True}


def events(*parts: bytes) -> Script:
    """Return a script that streams `parts` and ends."""

    def script(_: Request, responder: Responder) -> None:
        responder.start(200, EVENTS)
        for part in parts:
            responder.write_nowait(part)
        responder.end()

    return script


def hang(_: Request, responder: Responder) -> None:
    """Never answer."""
    del responder


def broken(_: Request, responder: Responder) -> None:
    """Send the first event, then cut the connection."""
    responder.start(200, EVENTS)
    responder.write_nowait(FIRST)
    asyncio.get_running_loop().call_later(0.05, responder.abort)


def near_and_far(rig: Rig, near: Script, far: Script = answer) -> None:
    rig.gateways["eu-a"].script = near
    rig.gateways["us-a"].script = far


def outcomes(rig: Rig) -> list[tuple[str, str]]:
    return [(attempt.cluster, attempt.outcome) for attempt in rig.records()[-1].attempts]


@pytest.mark.parametrize(
    ("near", "outcome"),
    [
        (reset, "reset"),
        (status(500), "gateway_error"),
        (status(502), "gateway_error"),
        (status(503), "gateway_error"),
        (status(408), "answered"),
        (status(425), "answered"),
        (status(429, ((b"retry-after", b"1"),)), "back_pressure"),
        (status(503, ((b"x-gir-drained", b"1"),)), "drained"),
        (status(503, ((b"x-gir-drop-reason", b"no_healthy_cluster"),)), "unable"),
        (status(401, ((b"x-gir-drop-reason", b"hand_off_refused"),)), "gateway_error"),
    ],
)
async def test_a_failed_attempt_is_served_elsewhere(near: Script, outcome: str, tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        near_and_far(rig, near)
        response = await rig.post()
        assert response.status_code == 200
        assert response.content == ANSWER
        assert response.headers["x-gir-cluster"] == "us-a"
        assert response.headers["x-gir-attempts"] == "2"
        assert outcomes(rig) == [("eu-a", outcome), ("us-a", "answered")]
        tokens = [gateway.hand_offs[0] for gateway in rig.gateways.values()]
        assert tokens[0].request_id == tokens[1].request_id
        assert [token.audience for token in tokens] == ["eu-a", "us-a"]


async def test_a_cluster_without_the_model_is_left_alone_and_never_ejected(tmp_path: Path) -> None:
    """A router that starts blind asks clusters which cannot serve; their answers are no sign of ill health."""
    async with running(tmp_path) as rig:
        near_and_far(rig, status(503, ((b"x-gir-drop-reason", b"no_healthy_cluster"),)))
        for _ in range(10):
            response = await rig.post()
            assert response.headers["x-gir-cluster"] == "us-a"
        assert len(rig.gateways["eu-a"].seen) == 1
        assert not rig.router.view.state.clusters[ClusterId("eu-a")].outlier.ejected


async def test_residency_binds_retries(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        near_and_far(rig, status(500))
        response = await rig.post(tenant="eu-only")
        assert response.status_code == 500
        assert rig.gateways["us-a"].seen == []


async def test_a_dead_gateway_is_a_connect_failure_and_costs_the_client_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.gateways["eu-a"].server.close()
        responses = await asyncio.gather(*(rig.post() for _ in range(20)))
        assert {response.status_code for response in responses} == {200}
        assert {response.headers["x-gir-cluster"] for response in responses} == {"us-a"}


async def test_an_error_as_first_event_is_a_failure_although_the_status_says_200(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        near_and_far(rig, events(b'data: {"error":{"message":"no"}}\n\n'), events(FIRST, DONE))
        response = await rig.post(STREAM)
        assert response.headers["x-gir-cluster"] == "us-a"
        assert response.content == FIRST + DONE


async def test_usage_is_asked_for_upstream_and_dropped_when_the_client_did_not_ask(tmp_path: Path) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}\n\n'
    async with running(tmp_path) as rig:
        rig.gateways["eu-a"].script = events(FIRST, usage, DONE)
        silent = await rig.post(STREAM)
        assert silent.content == FIRST + DONE
        assert json.loads(rig.gateways["eu-a"].seen[0].body)["stream_options"] == {"include_usage": True}
        asked = await rig.post({**STREAM, "stream_options": {"include_usage": True}})
        assert asked.content == FIRST + usage + DONE
        await eventually(lambda: len(rig.records()) == 2)
        assert all(json.loads(record.usage or b"{}")["total_tokens"] == 3 for record in rig.records())


async def test_nothing_is_retried_after_the_first_byte(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        near_and_far(rig, broken, events(FIRST, DONE))
        response = await rig.post(STREAM)
        assert response.status_code == 200
        assert response.content.startswith(FIRST)
        last = response.content.removeprefix(FIRST)
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "attempts_exhausted"
        assert b"[DONE]" not in response.content
        assert rig.gateways["us-a"].seen == []
        assert outcomes(rig) == [("eu-a", "broken")]


async def test_a_slow_stream_gets_heartbeats_then_its_events(tmp_path: Path) -> None:
    def late(_: Request, responder: Responder) -> None:
        asyncio.get_running_loop().call_later(0.4, events(FIRST, DONE), _, responder)

    async with running(tmp_path, timeouts=Timeouts(commit_after=ms(100))) as rig:
        rig.gateways["eu-a"].script = late
        response = await rig.post(STREAM)
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.content.startswith(b": waiting\n\n")
        assert response.content.endswith(FIRST + DONE)


async def test_a_failure_after_heartbeats_is_in_band(tmp_path: Path) -> None:
    def late(_: Request, responder: Responder) -> None:
        asyncio.get_running_loop().call_later(0.4, responder.abort)

    async with running(tmp_path, timeouts=Timeouts(commit_after=ms(100))) as rig:
        near_and_far(rig, late)
        response = await rig.post(STREAM)
        assert response.status_code == 200
        assert b'"error"' in response.content
        assert rig.gateways["us-a"].seen == []


@pytest.mark.parametrize("body", [STREAM, {"model": MODEL}])
async def test_the_total_limit_is_504_and_cancels_upstream(body: dict[str, object], tmp_path: Path) -> None:
    async with running(tmp_path, timeouts=Timeouts(total=ms(200))) as rig:
        rig.gateways["eu-a"].script = hang
        response = await rig.post(body)
        assert response.status_code == 504
        assert response.json()["error"]["code"] == "deadline_exceeded"
        await eventually(lambda: rig.gateways["eu-a"].gone == 1, what="the upstream to be cancelled")


async def test_a_stream_that_has_begun_keeps_no_prompt_in_memory(tmp_path: Path) -> None:
    def stalls(_: Request, responder: Responder) -> None:
        responder.start(200, EVENTS)
        responder.write_nowait(FIRST)

    async with running(tmp_path, timeouts=Timeouts(idle=ms(500))) as rig:
        rig.gateways["eu-a"].script = stalls
        pending = asyncio.ensure_future(rig.post({**STREAM, "x": "x" * 100_000}))  # noqa: TID251 -- awaited below
        await eventually(
            lambda: rig.router.life.live and next(iter(rig.router.life.live)).record.first_byte_at
        )
        assert rig.router.life.replay_bytes == 0
        assert (await pending).content.startswith(FIRST)
        assert rig.router.life.replay_bytes == 0


async def test_a_silent_stream_ends_in_band_after_the_idle_limit(tmp_path: Path) -> None:
    def stalls(_: Request, responder: Responder) -> None:
        responder.start(200, EVENTS)
        responder.write_nowait(FIRST)

    async with running(tmp_path, timeouts=Timeouts(idle=ms(200))) as rig:
        rig.gateways["eu-a"].script = stalls
        response = await rig.post(STREAM)
        assert response.content.startswith(FIRST)
        assert b"deadline_exceeded" in response.content
        await eventually(lambda: rig.gateways["eu-a"].gone == 1)


async def test_a_vanished_client_cancels_upstream_and_is_recorded(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.gateways["eu-a"].script = hang
        _, writer = await asyncio.open_connection("127.0.0.1", rig.router.http_port)
        body = json.dumps({"model": MODEL}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: a\r\nauthorization: {bearer()}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await eventually(lambda: rig.gateways["eu-a"].seen)
        writer.close()
        await eventually(lambda: rig.gateways["eu-a"].gone == 1, what="the upstream to be cancelled")
        await eventually(rig.records)
        assert outcomes(rig) == [("eu-a", "abandoned")]
        assert not rig.router.life.live
        assert rig.router.life.in_flight()["eu-a"] == 0


async def test_a_lost_cluster_frees_its_long_requests_at_once(tmp_path: Path) -> None:
    """The gateway hangs with requests in flight and falls silent; they are served elsewhere, unseen."""
    async with running(tmp_path) as rig:
        near_and_far(rig, hang)
        pending = [asyncio.ensure_future(rig.post()) for _ in range(5)]  # noqa: TID251 -- awaited below
        await eventually(lambda: len(rig.gateways["eu-a"].seen) == 5)
        rig.kill("eu-a")
        responses = await asyncio.wait_for(asyncio.gather(*pending), 10)
        assert {response.status_code for response in responses} == {200}
        assert {response.headers["x-gir-cluster"] for response in responses} == {"us-a"}
        assert all(record.attempts[1].redispatch for record in rig.records())


async def test_a_large_body_gets_one_attempt(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        near_and_far(rig, status(500))
        response = await rig.post({"model": MODEL, "prompt": "x" * (2 << 20)})
        assert response.status_code == 500
        assert rig.gateways["us-a"].seen == []
        assert rig.router.life.replay_bytes == 0
        assert rig.records()[-1].note == "one attempt: the body is too large to be kept for another"


async def test_when_nobody_is_left_the_refusal_says_when_to_come_back(tmp_path: Path) -> None:
    """The living cluster elsewhere is no way out for a tenant that may not go there."""
    async with running(tmp_path) as rig:
        rig.kill("eu-a")
        await eventually(lambda: rig.state("eu-a") is HealthState.UNHEALTHY, what="the cluster to be lost")
        response = await rig.post(tenant="eu-only")
        assert response.status_code == 503
        assert rig.gateways["us-a"].seen == []
        assert response.json()["error"]["code"] == "no_healthy_cluster"
        assert response.headers["retry-after"]


async def test_a_drained_cluster_gets_nothing_new_and_finishes_what_runs(tmp_path: Path) -> None:
    release: list[Responder] = []

    def wait(_: Request, responder: Responder) -> None:
        release.append(responder)

    async with running(tmp_path, {"eu-a": EU, "us-a": US}) as rig:
        rig.gateways["eu-a"].script = wait
        running_request = asyncio.ensure_future(rig.post())  # noqa: TID251 -- awaited below
        await eventually(lambda: release)
        await rig.report("eu-a", draining=True)
        await eventually(lambda: "eu-a" in rig.router.view.unroutable, what="the drain to be seen")
        assert (await rig.post()).headers["x-gir-cluster"] == "us-a"
        answer(release[0].request, release[0])
        assert (await running_request).headers["x-gir-cluster"] == "eu-a"


async def test_stop_lets_running_requests_finish(tmp_path: Path) -> None:
    release: list[Responder] = []

    def wait(_: Request, responder: Responder) -> None:
        release.append(responder)

    async with running(tmp_path) as rig:
        rig.gateways["eu-a"].script = wait
        request = asyncio.ensure_future(rig.post())  # noqa: TID251 -- awaited below
        await eventually(lambda: release)
        stopping = asyncio.ensure_future(rig.router.http_server.drain(5000))  # noqa: TID251 -- awaited below
        await eventually(lambda: rig.router.http_server.draining)
        answer(release[0].request, release[0])
        assert (await request).status_code == 200
        assert await stopping


async def test_a_hop_that_every_gateway_refuses_is_no_answer_to_the_client(tmp_path: Path) -> None:
    """A 401 of the hop would tell the client that its own token is wrong."""
    async with running(tmp_path) as rig:
        refused = status(401, ((b"x-gir-drop-reason", b"hand_off_refused"),))
        near_and_far(rig, refused, refused)
        response = await rig.post()
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "attempts_exhausted"


async def test_a_routers_own_limit_is_held_against_no_cluster(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        rig.router.pool.options = UpstreamOptions(connections_max=0)
        responses = await asyncio.gather(*(rig.post() for _ in range(4)))
        assert {response.status_code for response in responses} == {503}
        assert {attempt.outcome for record in rig.records() for attempt in record.attempts} == {"not_sent"}
        assert not any(record.outlier.counting for record in rig.router.view.state.clusters.values())
        assert not any(record.outlier.ejected for record in rig.router.view.state.clusters.values())


async def test_a_retry_does_not_follow_a_cluster_out_of_its_jurisdiction(tmp_path: Path) -> None:
    """Invariant 4: judged by the policy of the decision, and by where a newer one says the address lies."""
    held: list[Responder] = []
    async with running(tmp_path, {"eu-a": EU, "eu-b": EU}) as rig:
        for gateway in rig.gateways.values():
            gateway.script = lambda _, responder: held.append(responder)
        asking = asyncio.ensure_future(rig.post(tenant="eu-only"))  # noqa: TID251 -- awaited below
        await eventually(lambda: held, what="the first attempt")
        (other,) = (gateway for gateway in rig.gateways.values() if not gateway.seen)
        other.place = US
        moved = tuple(
            dataclasses.replace(spec, locality=rig.gateways[spec.id].place) for spec in rig.policy.clusters
        )
        policy = dataclasses.replace(rig.policy, revision=2, clusters=moved)
        await rig.store.put(ChangeKind.POLICY, "snapshot", ReportId(2, 0), encode_policy(policy), live=True)
        await eventually(
            lambda: rig.router.view.policy == policy and other.cluster not in rig.router.view.unroutable,
            what="policy and reports to agree",
        )
        held[0].abort()
        assert (await asking).status_code == 503
        assert other.seen == []
