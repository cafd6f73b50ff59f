"""A request's way to a pod that misbehaves: what the caller is told, what is counted, what the dark holds back."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.endpoint_picker.cluster import MODEL, Cluster, chat, cluster_of
from tests.support.wait import eventually

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def pod_that(answer: Answer, **settings: Any) -> AsyncIterator[Cluster]:
    """A cluster whose one pod has no metrics and answers inference by `answer`, then closes."""
    open_conversations = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_conversations
        open_conversations += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET"):
                writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            else:
                await answer(writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        open_conversations -= 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    pools = [{"name": "chat", "models": [MODEL], "endpoints": [{"id": "odd", "address": address}]}]
    async with server:
        async with cluster_of(0, pools=pools, **settings) as cluster:
            await eventually(lambda: cluster.state("odd") == "STALE")
            yield cluster
        await eventually(lambda: not open_conversations)


def outcomes(cluster: Cluster) -> dict[str, int]:
    return dict(cluster.picker.observer.counters.outcomes)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.headers["x-gir-drop-reason"]


async def nothing(_: asyncio.StreamWriter) -> None:
    return


async def garbage(writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0\r\n\r\n")


async def half_a_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-le")


@pytest.mark.parametrize("answer", [nothing, garbage, half_a_head])
async def test_a_pod_that_breaks_off_before_its_answer_is_a_503_that_the_router_may_retry(
    answer: Answer,
) -> None:
    async with pod_that(answer) as cluster:
        assert refusal(await cluster.post(chat())) == (503, "attempts_exhausted")
        assert outcomes(cluster) == {"gateway_error": 1}
        assert cluster.picker.observer.table["odd"].in_flight == 0


async def test_a_pod_that_never_answers_is_a_504_after_the_first_byte_limit() -> None:
    released = asyncio.Event()

    async def hang(_: asyncio.StreamWriter) -> None:
        await released.wait()

    async with pod_that(hang, http={"port": 0, "first_byte_ms": 100}) as cluster:
        assert refusal(await cluster.post(chat())) == (504, "deadline_exceeded")
        assert outcomes(cluster) == {"gateway_error": 1}
        released.set()


async def test_a_pods_5xx_is_passed_on_whole_and_counted_as_a_gateway_error() -> None:
    async def fail(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Oops\r\ncontent-length: 4\r\nx-mine: 1\r\n\r\noops")

    async with pod_that(fail) as cluster:
        answer = await cluster.post(chat())
        assert (answer.status_code, answer.text, answer.headers["x-mine"]) == (500, "oops", "1")
        assert outcomes(cluster) == {"gateway_error": 1}


async def test_an_error_inside_a_200_stream_is_passed_on_and_counted_as_a_gateway_error() -> None:
    event = b'data: {"error": {"message": "x"}}\n\n'

    async def err(writer: asyncio.StreamWriter) -> None:
        writer.write(SSE + chunk(event) + b"0\r\n\r\n")

    async with pod_that(err) as cluster:
        answer = await cluster.post(chat(stream=True))
        assert (answer.status_code, answer.content) == (200, event)
        assert outcomes(cluster) == {"gateway_error": 1}


async def test_a_plain_answer_that_breaks_off_is_cut_as_nothing_can_be_added() -> None:
    async def part(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
        await writer.drain()

    async with pod_that(part) as cluster:
        with pytest.raises(httpx.RemoteProtocolError):
            await cluster.post(chat())
        assert outcomes(cluster) == {"broken_off": 1}


async def test_the_dark_holds_an_answer_that_comes_meanwhile() -> None:
    proceed, answered = asyncio.Event(), asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await proceed.wait()
        writer.write(OK)
        await writer.drain()
        answered.set()

    async with pod_that(late) as cluster, asyncio.TaskGroup() as scope:
        asked = scope.create_task(cluster.post(chat()))
        door = cluster.picker.doors.http
        await eventually(lambda: cluster.picker.observer.table["odd"].in_flight == 1)
        forward = next(iter(door._running))
        await eventually(lambda: forward.exchange is not None and forward.exchange._connection is not None)
        cluster.picker.black_hole(True)
        forward.exchange.resume_reading()  # type: ignore[union-attr] # set above; the pod's answer must be seen
        proceed.set()
        await answered.wait()
        await eventually(lambda: forward.held is not None)
        assert not asked.done()
        cluster.picker.black_hole(False)
        assert (await asked).json() == {}


async def test_the_dark_holds_a_failure_that_comes_meanwhile() -> None:
    proceed = asyncio.Event()

    async def fail(_: asyncio.StreamWriter) -> None:
        await proceed.wait()

    async with pod_that(fail) as cluster, asyncio.TaskGroup() as scope:
        asked = scope.create_task(cluster.post(chat()))
        door = cluster.picker.doors.http
        await eventually(lambda: cluster.picker.observer.table["odd"].in_flight == 1)
        forward = next(iter(door._running))
        await eventually(lambda: forward.exchange is not None and forward.exchange._connection is not None)
        cluster.picker.black_hole(True)
        forward.exchange.resume_reading()  # type: ignore[union-attr] # set above; the pod's close must be seen
        proceed.set()
        await eventually(lambda: forward.held is not None)
        assert not asked.done()
        cluster.picker.black_hole(False)
        assert refusal(await asked) == (503, "attempts_exhausted")


async def test_the_dark_holds_the_end_of_a_broken_stream() -> None:
    proceed = asyncio.Event()

    async def broken(writer: asyncio.StreamWriter) -> None:
        writer.write(SSE + chunk(b"data: {}\n\n"))
        await proceed.wait()

    async with pod_that(broken) as cluster, asyncio.TaskGroup() as scope:
        asked = scope.create_task(cluster.post(chat(stream=True)))
        door = cluster.picker.doors.http
        await eventually(lambda: door._running and next(iter(door._running)).exchange is not None)
        forward = next(iter(door._running))
        await eventually(lambda: forward.responder.started)
        cluster.picker.black_hole(True)
        forward.exchange.resume_reading()  # type: ignore[union-attr] # set above; the pod's close must be seen
        proceed.set()
        await eventually(lambda: forward.held is not None)
        assert not asked.done()
        cluster.picker.black_hole(False)
        lines = [line for line in (await asked).text.splitlines() if line]
        assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "attempts_exhausted"


async def test_a_client_that_leaves_in_the_dark_is_forgotten() -> None:
    released = asyncio.Event()

    async def hang(_: asyncio.StreamWriter) -> None:
        await released.wait()

    async with pod_that(hang) as cluster:
        async with asyncio.TaskGroup() as scope:
            asked = scope.create_task(cluster.post(chat()))
            await eventually(lambda: cluster.picker.observer.table["odd"].in_flight == 1)
            cluster.picker.black_hole(True)
            asked.cancel()
        await eventually(lambda: cluster.picker.observer.table["odd"].in_flight == 0)
        assert outcomes(cluster) == {"cancelled": 1}
        cluster.picker.black_hole(False)
        released.set()
