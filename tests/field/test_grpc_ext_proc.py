"""Field cases of the category grpc-extproc, and those of request bodies as they are over ext_proc.

The same request bodies over HTTP are `test_request_body`'s; what is asserted here is the same answer.
"""

import asyncio
import gzip
import json
import os
import signal
import zlib
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from deploy.stack.ports import free_port
from services.core.units import Instant, ms, seconds
from services.endpoint_picker.intake import Intake
from services.endpoint_picker.lifecycle import Dropped, Lifecycle, Running
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import Pick
from tests.endpoint_picker.cluster import MODEL, chat, simulated_pod
from tests.endpoint_picker.doors.processor import DataPlane, Exchange, data_plane
from tests.endpoint_picker.doors.test_ext_proc import asked, error
from tests.field.test_request_body import MALFORMED, SENSELESS
from tests.support.processes import GirProcess
from tests.support.wait import eventually

BODY = json.dumps(chat()).encode()
LIMIT = 1 << 20


async def test_f032_malformed_bodies_are_400_over_ext_proc_too() -> None:
    async with asked(1) as (cluster, plane):
        for body, param in MALFORMED:
            answer = await plane.ask(body.replace(b"llama", MODEL.encode()))
            assert answer.status == 400
            said = json.loads(answer.body)["error"]
            assert set(said) == {"message", "type", "param", "code"}
            assert (said["type"], said["param"]) == ("invalid_request_error", param)
        assert cluster.picker.life.running == 0


@pytest.mark.parametrize("size", [0, 200_000])
async def test_f034_readable_codings_are_routed_and_others_refused(size: int) -> None:
    """Small and large bodies behave alike; what is routed goes on as it came, with its header."""
    plain = json.dumps({**chat(), "pad": "x" * size}).encode()
    async with asked(1) as (_, plane):
        for coding, body in (
            ("gzip", gzip.compress(plain)),
            ("deflate", zlib.compress(plain)),
            ("gzip, gzip", gzip.compress(gzip.compress(plain))),
        ):
            answer = await plane.ask(body, {"content-encoding": coding})
            assert (answer.status, answer.body) == (0, body)
            assert "content-encoding" not in answer.removed
        for coding in ("br", "zstd", "bogus", "gzip, br"):
            answer = await plane.ask(gzip.compress(plain), {"content-encoding": coding})
            assert error(answer) == (415, "unsupported_content_encoding")
        cut = await plane.ask(gzip.compress(plain)[:-5], {"content-encoding": "gzip"})
        assert error(cut) == (400, "invalid_value")


async def test_f035_nothing_is_routed_from_undecoded_bytes_and_a_bomb_is_413() -> None:
    """A frame whose bytes spell a model is still what its header says; what inflates over the limit is not kept."""
    async with asked(1, ext_proc={"body_max_bytes": LIMIT}) as (_, plane):
        stored = gzip.compress(BODY, compresslevel=0)
        assert b'"model"' in stored
        assert error(await plane.ask(stored, {"content-encoding": "zstd"})) == (
            415,
            "unsupported_content_encoding",
        )
        bomb = gzip.compress(gzip.compress(bytes(1 << 28)))
        assert len(bomb) < 10_000
        answer = await plane.ask(bomb, {"content-encoding": "gzip, gzip"})
        assert error(answer) == (413, "request_too_large")


async def test_f037_the_limit_is_exact_over_ext_proc() -> None:
    """One message or many, limit - 1 and limit are routed, limit + 1 is 413 with an OpenAI body."""
    async with asked(1, ext_proc={"body_max_bytes": LIMIT}) as (_, plane):
        for size in (LIMIT - 1, LIMIT, LIMIT + 1):
            body = BODY[:-1] + b" " * (size - len(BODY)) + b"}"
            exchange = plane.exchange()
            await exchange.head()
            for at in range(0, size, 60_000):
                await exchange.body(body[at : at + 60_000], end=at + 60_000 >= size)
            for answer in (await exchange.answer(), await plane.ask(body)):
                if size > LIMIT:
                    assert error(answer) == (413, "request_too_large")
                else:
                    assert answer.body == body


async def test_f040_labels_of_a_body_change_nothing_over_ext_proc_too() -> None:
    """As over HTTP: what the bytes are decides, so UTF-16 is no JSON whatever its label."""
    labels = ("application/json; charset=utf-8", "application/json;charset=UTF-16", "text/plain")
    async with asked(1) as (_, plane):
        for label in labels:
            assert (await plane.ask(BODY, {"content-type": label})).body == BODY
            utf_16 = await plane.ask(BODY.decode().encode("utf-16"), {"content-type": label})
            assert error(utf_16) == (400, "invalid_json")
        assert (await plane.ask(BODY)).body == BODY


async def test_f041_a_senseless_max_tokens_is_400_over_ext_proc_too() -> None:
    async with asked(1) as (_, plane):
        for value in SENSELESS:
            answer = await plane.ask(b'{"model":"%b","max_tokens":%b}' % (MODEL.encode(), value))
            assert answer.status == 400
            assert json.loads(answer.body)["error"]["param"] == "max_tokens"


async def test_f151_a_body_in_single_bytes_is_routed() -> None:
    async with asked(1) as (_, plane):
        exchange = plane.exchange()
        await exchange.head()
        for number in range(len(BODY)):
            await exchange.body(BODY[number : number + 1], end=number == len(BODY) - 1)
        assert (await exchange.answer()).body == BODY


async def test_f151_a_body_that_never_ends_is_408_and_the_rest_is_drained() -> None:
    async with asked(1, ext_proc={"body_wait_ms": 50}) as (cluster, plane):
        exchange = plane.exchange()
        await exchange.head()
        await exchange.body(b'{"model"', end=False)
        answer = await exchange.answer()
        assert error(answer) == (408, "too_slow")
        await exchange.body(b"more", end=False)
        await exchange.close()
        assert await exchange.read() is grpc.aio.EOF
        assert cluster.picker.doors.ext_proc.held_bytes == 0


async def test_f151_an_answer_before_the_body_is_complete_is_delivered_and_later_pieces_are_drained() -> None:
    """Over the limit while the body still comes; and refused from the head alone. Memory is let go at once."""
    async with asked(1, ext_proc={"body_max_bytes": LIMIT}) as (cluster, plane):
        exchange = plane.exchange()
        await exchange.head()
        for _ in range(3):
            await exchange.body(bytes(LIMIT // 2), end=False)
        assert error(await exchange.answer()) == (413, "request_too_large")
        for _ in range(20):
            await exchange.body(bytes(LIMIT // 2), end=False)
        assert cluster.picker.doors.ext_proc.held_bytes == 0
        cluster.picker.drain()
        refused = plane.exchange()
        await refused.head()
        assert error(await refused.answer()) == (503, "drained")
        for each in (exchange, refused):
            await each.body(b"", end=True)
            await each.close()
            assert await each.read() is grpc.aio.EOF


async def held_in_queue(plane_exchange: Exchange) -> None:
    await plane_exchange.head()
    await plane_exchange.body(BODY)


class Nobody:
    """An answer that is told of a pick and passes nothing on: to the door its request waits, as in a queue."""

    def picked(self, request: Running, pick: Pick, body: bytes) -> None:
        """Keep it."""

    def dropped(self, dropped: Dropped) -> None:
        """Keep it."""

    def evicted(self, dropped: Dropped) -> None:
        """Keep it."""


def never_picked(monkeypatch: pytest.MonkeyPatch) -> list[Running]:
    """Let every request wait, and return those that do."""
    waiting: list[Running] = []
    real = Lifecycle.start

    def start(life: Lifecycle, intake: Intake, _answer: object) -> Running:
        waiting.append(real(life, intake, Nobody()))
        return waiting[-1]

    monkeypatch.setattr(Lifecycle, "start", start)
    return waiting


async def test_f148_the_callers_deadline_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream's own deadline passes while its request waits: DEADLINE_EXCEEDED, and the request is let go."""
    waiting = never_picked(monkeypatch)
    async with asked(1) as (cluster, plane):
        exchange = plane.exchange(timeout_s=0.2)
        await held_in_queue(exchange)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await exchange.read()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: waiting and waiting[0].ended)
        assert cluster.picker.life.running == 0


async def test_f149_a_long_healthy_stream_lives_and_a_silent_one_is_bounded() -> None:
    """No total deadline: hours between an endpoint and its answer end nothing. The one wait that has a bound is
    that for the body; what stands still after it is the data plane's to end, which sees both sides."""
    async with asked(1) as (cluster, plane):
        door = cluster.picker.doors.ext_proc
        healthy, silent = plane.exchange(), plane.exchange()
        await held_in_queue(healthy)
        await healthy.answer()
        await silent.head()
        await silent.body(b"{", end=False)
        await eventually(lambda: door.streams == 2 and door.held_bytes == 1)
        door.expire(Instant(cluster.clock.now() + seconds(36_000)))
        assert error(await silent.answer()) == (408, "too_slow")
        assert cluster.picker.life.running == 1
        silent.call.cancel()
        healthy.call.cancel()


async def test_f145_what_a_stopped_server_still_runs_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`server.stop` returns while handlers it cancelled still let go; the door's own registry is awaited."""
    released: list[Outcome] = []
    real = Lifecycle.end

    def end(life: Lifecycle, request: Running, outcome: Outcome, *more: object) -> None:
        released.append(outcome)
        real(life, request, outcome, *more)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(Lifecycle, "end", end)
    async with asked(1) as (cluster, plane):
        exchange = plane.exchange()
        await held_in_queue(exchange)
        await exchange.answer()
        await cluster.picker.doors.grpc_server.stop(ms(0))
        await asyncio.wait_for(cluster.picker.doors.ext_proc.finished(), 5)
        assert released == [Outcome.CANCELLED]
        assert cluster.picker.life.running == 0


PICKER = """
cluster: eu-west-1
region: eu-west
jurisdiction: eu
drain_ms: 20000
http: {port: 0, accept: direct}
grpc: {port: %d}
metrics: {port: 0}
kafka: {bootstrap: '127.0.0.1:%d'}
scrape: {interval_ms: 50}
pools: [{name: chat, models: [%s], endpoints: [{id: pod-0, address: '%s'}]}]
"""


@pytest.mark.scenario
async def test_f146_sigterm_lets_open_streams_finish_and_ends_quietly(
    tmp_path: Path, start_gir: Callable[..., GirProcess]
) -> None:
    """Ten streams open: readiness goes, new requests are refused, the streams finish, exit 0 and no traceback."""
    pod = await simulated_pod(0)
    port = free_port()
    settings = tmp_path / "picker.yaml"
    settings.write_text(PICKER % (port, free_port(), MODEL, pod.address))
    process = start_gir("endpoint-picker", "--config", str(settings))
    async with data_plane(port) as plane:
        await ready(plane)
        exchanges = [plane.exchange() for _ in range(10)]
        for exchange in exchanges:
            await held_in_queue(exchange)
            await exchange.answer()
        os.kill(process.pid, signal.SIGTERM)
        while await plane.health("readiness") == "SERVING":
            pass
        assert error(await plane.ask(BODY)) == (503, "drained")
        assert process.running
        for exchange in exchanges:
            await exchange.close()
            assert await exchange.read() is grpc.aio.EOF
    assert await asyncio.to_thread(process.wait_ended, 15) == 0
    assert "Traceback" not in process.stderr()
    await pod.stop()


async def ready(plane: DataPlane) -> None:
    async with asyncio.timeout(20):
        while await plane.health("readiness") != "SERVING":
            pass
