"""Open-loop load against a real server: paces, shapes, and what becomes of requests that fail."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer
from services.adapters.system.clock import SystemClock
from services.core.units import Instant
from services.wire.http1.requests import Request
from services.worlds import bench_picker_load as module
from services.worlds.bench_picker_load import OpenLoad, Paces, RequestShape, main

SHAPE = RequestShape("bench", prompt_tokens=20, output_tokens=3)


@asynccontextmanager
async def served(answer: Callable[[Request, Responder], None]) -> AsyncIterator[int]:
    server = HttpServer(answer)
    port = await server.listen("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.close()


def answering(status: int) -> Callable[[Request, Responder], None]:
    return lambda _request, responder: responder.respond(status, [], b"{}")


def load_of(port: int, count: int = 20, rate: float = 2000.0) -> OpenLoad:
    return OpenLoad(port, SHAPE, rate, count, SystemClock())


def test_paces_are_even_and_do_not_drift() -> None:
    assert list(Paces(Instant(1_000), 500.0, 3)) == [1_000, 2_001_000, 4_001_000]
    thirds = list(Paces(Instant(0), 3.0, 3_001))
    assert thirds[-1] == 1_000 * 1_000_000_000
    assert len(thirds) == 3_001


def test_no_two_prompts_begin_alike_and_each_has_its_length() -> None:
    bodies = [json.loads(SHAPE.body(number)) for number in (1, 2)]
    texts = [body["messages"][0]["content"] for body in bodies]
    assert texts[0][:16] != texts[1][:16]
    assert [len(text) for text in texts] == [80, 80]
    assert (bodies[0]["max_tokens"], bodies[0]["ignore_eos"], "stream" in bodies[0]) == (3, True, False)
    assert json.loads(RequestShape("bench", stream=True).body(1))["stream"] is True


async def test_every_request_is_sent_answered_and_the_first_tenth_is_not_counted() -> None:
    seen = []

    def answer(request: Request, responder: Responder) -> None:
        seen.append(json.loads(request.body)["messages"][0]["content"][:12])
        responder.respond(200, [], b"{}")

    async with served(answer) as port:
        figures = await load_of(port).run(first_number=100)
    assert sorted(seen) == [f"{number:012d}" for number in range(100, 120)]
    assert (figures["sent"], figures["answered"], figures["faults"]) == (20, 18, 0)
    assert 0 < figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"]
    assert 0 < figures["first_byte_p50_ms"] <= figures["p99_ms"]
    assert figures["requests_per_s"] > 0
    assert figures["cpu_s"] > 0


async def test_a_refusal_is_a_fault_and_no_latency() -> None:
    async with served(answering(503)) as port:
        figures = await load_of(port).run()
    assert (figures["answered"], figures["faults"], figures["p50_ms"]) == (0, 20, None)
    assert figures["first_faults"] == ["answered 503"] * 5


async def test_a_subject_that_is_not_there_is_a_fault_of_every_request() -> None:
    async with served(answering(200)) as port:
        pass
    figures = await load_of(port, count=3).run()
    assert figures["faults"] == 3
    assert all(fault.startswith("connect: ") for fault in figures["first_faults"])


async def test_a_subject_that_answers_nothing_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAIN_S", 0.05)
    async with served(lambda _request, _responder: None) as port:
        figures = await load_of(port, count=4).run()
    assert (figures["answered"], figures["first_faults"]) == (0, ["no answer"] * 4)


async def test_a_subject_at_a_standstill_does_not_take_the_host_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DRAIN_S", 0.05)
    monkeypatch.setattr(module, "OPEN_AT_MOST", 2)
    async with served(lambda _request, _responder: None) as port:
        figures = await load_of(port, count=5).run()
    assert figures["first_faults"] == ["too many connections"] * 3 + ["no answer"] * 2


async def test_what_is_no_http_or_breaks_off_is_a_fault() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"hello\r\n\r\n" if first else b"")
        writer.close()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    for peer, fault in ((babble, "malformed"), (hang_up, "connection lost")):
        server = await asyncio.start_server(peer, "127.0.0.1", 0)
        async with server:
            figures = await load_of(server.sockets[0].getsockname()[1], count=2).run()
        assert [text.partition(":")[0] for text in figures["first_faults"]] == [fault] * 2


def test_the_process_prints_its_figures_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--port", "9", "--rate", "1000", "--requests", "1", "--model", "bench", "--stream"])
    figures = json.loads(capsys.readouterr().out)
    assert (figures["sent"], figures["faults"]) == (1, 1)
