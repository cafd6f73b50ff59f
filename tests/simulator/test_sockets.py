"""How a pod's host dies, on both event loops the house runs on."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from services.adapters.system.clock import SystemClock
from services.simulator.assembly import start_pod
from services.simulator.settings import EngineOverrides, PodSettings
from services.simulator.sockets import HELD_BYTES_MAX, bind
from tests.simulator.pods import STUCK, chat, connected, raw_request, running_pod
from tests.support.wait import eventually

Story = Callable[[], Awaitable[None]]
HEALTH = b"GET /health HTTP/1.1\r\nhost: pod\r\n\r\n"


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    def run(story: Story) -> None:
        async def whole() -> None:
            async with asyncio.timeout(30):
                await story()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(whole())

    return run


def test_a_reset_is_seen_as_a_reset_and_the_port_is_free_again(play: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with running_pod(engine=STUCK) as pod:
            async with connected(pod) as (streaming, writer), connected(pod) as (idle, _):
                writer.write(raw_request(chat(stream=True)))
                assert await streaming.readuntil(b"\r\n\r\n")
                await eventually(lambda: pod.connections == 2, what="both connections")
                pod.reset()
                for reader in (streaming, idle):
                    with pytest.raises(ConnectionResetError):
                        await reader.read(1)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", pod.port)
            async with running_pod(port=pod.port) as again, connected(again) as (reader, writer):
                writer.write(HEALTH)
                assert await reader.readuntil(b"\r\n") == b"HTTP/1.1 200 OK\r\n"
            pod.reset()

    play(story)


def test_in_a_black_hole_nothing_is_answered_and_nothing_is_lost(play: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with running_pod() as pod, connected(pod) as (reader, writer):
            writer.write(raw_request(chat(max_tokens=400, ignore_eos=True, stream=True)))
            await reader.readuntil(b'"role"')
            await pod.black_hole(on=True)
            await pod.black_hole(on=True)
            # The engine goes on, as it does behind a cut cable; what it says stays in the pod.
            await eventually(lambda: pod.engine.tallies.finished["length"] == 1, what="the end of the answer")
            async with connected(pod) as (late_reader, late_writer):
                late_writer.write(HEALTH)
                writer.write(HEALTH)
                late = asyncio.ensure_future(late_reader.read(1))  # noqa: TID251 -- awaited below
                await asyncio.gather(writer.drain(), late_writer.drain())
                assert pod.connections == 1
                assert not late.done()
                await pod.black_hole(on=False)
                assert await late == b"H"
            assert b"data: [DONE]" in await reader.readuntil(b"\r\n0\r\n\r\n")
            assert await reader.readuntil(b"\r\n") == b"HTTP/1.1 200 OK\r\n"

    play(story)


def test_a_black_hole_takes_only_so_many_bytes(play: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with running_pod() as pod, connected(pod) as (reader, writer):
            await eventually(lambda: pod.connections == 1, what="the connection")
            await pod.black_hole(on=True)
            body = chat(model="nope", messages=[{"role": "user", "content": "x" * 3 * HELD_BYTES_MAX}])
            writer.write(raw_request(body))
            (connection,) = pod._sockets._connections
            await eventually(lambda: connection._stopped_reading, what="reading to stop")
            assert connection._inbound_bytes < 2 * HELD_BYTES_MAX
            await pod.black_hole(on=False)
            assert await reader.readuntil(b"\r\n") == b"HTTP/1.1 404 Not Found\r\n"

    play(story)


def test_an_answer_that_ends_its_connection_in_the_dark_arrives_later(play: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with running_pod() as pod, connected(pod) as (reader, writer):
            last = raw_request(chat(max_tokens=50)).replace(b"host: pod", b"host: pod\r\nconnection: close")
            writer.write(last)
            await eventually(lambda: pod.engine.running == 1, what="the request")
            await pod.black_hole(on=True)
            await eventually(lambda: pod.engine.running == 0, what="the answer")
            await pod.black_hole(on=False)
            assert b'"finish_reason":"length"' in await reader.read()

    play(story)


def test_a_pod_can_be_reset_in_the_dark(play: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with running_pod() as pod, connected(pod) as (reader, _):
            await eventually(lambda: pod.connections == 1, what="the connection")
            await pod.black_hole(on=True)
            pod.reset()
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            await pod.black_hole(on=False)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", pod.port)

    play(story)


def test_stopping_cuts_what_runs_and_can_be_repeated(play: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with running_pod(engine=STUCK) as pod, connected(pod) as (reader, writer):
            writer.write(raw_request(chat(stream=True)))
            await reader.readuntil(b"\r\n\r\n")
            await pod.stop()
            assert await reader.read() == b""
            assert pod.connections == 0

    play(story)


def test_stopping_waits_only_so_long_for_a_client_that_does_not_read(play: Callable[[Story], None]) -> None:
    async def story() -> None:
        fast = EngineOverrides(step_base_us=1, decode_sequence_us=0, num_gpu_blocks=200_000)
        async with running_pod(engine=fast) as pod, connected(pod) as (reader, writer):
            # Some 12 MB, more than both kernels' buffers hold.
            writer.write(raw_request(chat(max_tokens=130_000, ignore_eos=True, n=16)))
            await reader.read(1)
            await pod._sockets.stop(grace_s=0.05)
            assert pod.connections == 0

    play(story)


def test_a_port_in_use_is_an_oserror(play: Callable[[Story], None]) -> None:
    async def story() -> None:
        async with running_pod() as pod:
            with pytest.raises(OSError, match="Address already in use"):
                await start_pod(PodSettings(port=pod.port), SystemClock())

    play(story)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_bound_address_is_taken_but_refuses_until_somebody_listens(host: str) -> None:
    try:
        bound = bind(host, 0)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with bound, socket.socket(bound.family) as client:
        with pytest.raises(ConnectionRefusedError):
            client.connect(bound.getsockname()[:2])
        bound.listen()
        with pytest.raises(OSError, match="in use"):
            bind(host, bound.getsockname()[1])
