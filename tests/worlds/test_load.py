import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from services.adapters.http.responder import Responder
from services.adapters.http.server import HttpServer
from services.adapters.system.clock import SystemClock
from services.adapters.system.tasks import TaskScope
from services.core.units import Duration
from services.wire.http1.requests import Request
from services.worlds.load import Crowd, DoorClient, Load, Sample, Shape, fault_in
from services.worlds.topology_ports import HostPorts
from tests.support.wait import eventually

WHOLE = Shape("whole", "m", stream=False, max_tokens=3, think=Duration(0))
STREAM = Shape("stream", "m", stream=True, max_tokens=3, think=Duration(0))
Handler = Callable[[Request, Responder], None]


@asynccontextmanager
async def door(handler: Handler) -> AsyncIterator[int]:
    server = HttpServer(handler)
    port = await server.listen("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.close()


async def asked(handler: Handler, shape: Shape = WHOLE) -> Sample:
    async with door(handler) as port:
        client = DoorClient("eu", port, "tok", SystemClock())
        sample = await client.ask(shape, shape.body(1))
        client.close()
        return sample


def whole(request: Request, responder: Responder) -> None:
    assert request.header(b"authorization") == b"Bearer tok"
    responder.respond(200, [(b"x-gir-cluster", b"eu-1"), (b"x-gir-request-id", b"r1")], b'{"choices": []}')


def stream_of(*events: bytes) -> Handler:
    def handle(request: Request, responder: Responder) -> None:  # noqa: ARG001 -- a Handler
        responder.start(200, [(b"content-type", b"text/event-stream")])
        for event in events:
            responder.write_nowait(b"data: " + event + b"\n\n")
        responder.end()

    return handle


async def test_a_whole_answer_is_noted_with_its_place_and_instants() -> None:
    sample = await asked(whole)
    assert (sample.status, sample.cluster, sample.request_id, sample.fault) == (200, "eu-1", "r1", "")
    assert sample.first_byte_at is not None
    assert sample.ended_at is not None
    assert sample.sent_at <= sample.first_byte_at <= sample.ended_at


async def test_a_stream_is_good_when_done_follows() -> None:
    assert not (await asked(stream_of(b"{}", b"[DONE]"), STREAM)).failed


@pytest.mark.parametrize(
    ("events", "fault"),
    [((b"{}",), "unfinished_stream"), ((b"{}", b'{"error":{"message":"x"}}'), "in_band_error")],
)
async def test_a_stream_that_broke_off_is_a_failure_after_its_first_byte(
    events: tuple[bytes, ...], fault: str
) -> None:
    sample = await asked(stream_of(*events), STREAM)
    assert sample.fault == fault
    assert sample.broken_after_first_byte


async def test_an_error_status_is_a_failure_before_any_first_byte() -> None:
    def refuse(request: Request, responder: Responder) -> None:  # noqa: ARG001 -- a Handler
        responder.respond(503, (), b"{}")

    sample = await asked(refuse, STREAM)
    assert sample.fault == "status_503"
    assert not sample.broken_after_first_byte


async def test_a_cut_connection_is_a_failure_and_the_next_request_gets_a_new_one() -> None:
    cuts = [True, False]

    def cut_once(request: Request, responder: Responder) -> None:
        if cuts.pop(0):
            responder.abort()
        else:
            whole(request, responder)

    async with door(cut_once) as port:
        client = DoorClient("eu", port, "tok", SystemClock())
        first = await client.ask(WHOLE, WHOLE.body(1))
        second = await client.ask(WHOLE, WHOLE.body(2))
        client.close()
    assert first.fault in {"reset", "truncated"}
    assert not second.failed


async def test_a_door_that_is_gone_refuses() -> None:
    port = HostPorts().next_free(38_080)
    sample = await DoorClient("eu", port, "tok", SystemClock()).ask(WHOLE, WHOLE.body(1))
    assert (sample.fault, sample.first_byte_at) == ("refused", None)


def test_a_body_holds_its_padding_and_no_two_prompts_begin_alike() -> None:
    bulky = Shape("bulky", "m", stream=False, max_tokens=1, think=Duration(0), padding_bytes=1_000_000)
    assert 1_000_000 < len(bulky.body(1)) < 1 << 20
    assert bulky.body(1) != bulky.body(2)


def test_an_answer_without_choices_is_a_fault() -> None:
    assert fault_in(200, b"{}", stream=False) == "no_choices"


async def test_a_crowd_asks_until_it_is_told_to_finish() -> None:
    clock = SystemClock()
    scope = TaskScope(lambda name, error: pytest.fail(f"{name}: {error!r}"))
    load = Load("tok", clock, scope)
    async with door(whole) as port:
        load.start([Crowd("eu", WHOLE, 2)], {"eu": port})
        await eventually(lambda: len(load.samples) > 5)
        await load.finish("eu")
        asked_before = len(load.samples)
        await asyncio.sleep(0)
        assert len(load.samples) == asked_before
        assert not any(sample.failed for sample in load.samples)
    await scope.close()


async def test_a_crowd_that_is_dropped_leaves_what_it_was_at_unnoted() -> None:
    arrived = asyncio.Event()

    def hang(request: Request, responder: Responder) -> None:  # noqa: ARG001 -- a Handler
        arrived.set()

    scope = TaskScope(lambda name, error: pytest.fail(f"{name}: {error!r}"))
    load = Load("tok", SystemClock(), scope)
    async with door(hang) as port:
        load.start([Crowd("eu", WHOLE, 1)], {"eu": port})
        await arrived.wait()
        await load.drop("eu")
        assert load.samples == []
    await scope.close()
