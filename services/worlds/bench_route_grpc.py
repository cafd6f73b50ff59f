"""`Route` and `RouteStream` of the real router process, beside empty `grpc.aio` handlers of the same messages.

Run as `python -m services.worlds.bench_route_grpc ROLE …` it is one of the other processes: the empty
server, or a client that drives one subject with bounded load and prints its rate. Subjects take turns
within every round, so that noise of the machine falls on both. Apart from `bench_route`, which
measures decisions in its own process.
"""

import argparse
import asyncio
import contextlib
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import uvloop

from services.adapters.grpc.channel import open_channel
from services.wire.gen.gir.v1 import routing_pb2, routing_pb2_grpc
from services.worlds.bench_http import BenchError, Subject, free_port
from services.worlds.bench_router import router_subject

MODEL: Final = "bench"
IN_FLIGHT: Final = 32
"""Requests a client has open at once: enough to keep one server process busy."""
_PARTS: Final = (sys.executable, "-m", "services.worlds.bench_route_grpc")
_READY_S: Final = 30.0
_LOAD_S: Final = 60.0
CLUSTERS: Final = 5
"""Of the router's fleet: a decision then has the four fallbacks it may have, each with a token of its own."""
EMPTY: Final = "empty handler"
KINDS: Final = (("unary", "Route"), ("stream", "RouteStream"))
UPSTREAM: Final = (sys.executable, "-m", "services.worlds.bench_http_parts", "upstream")
REQUEST: Final = routing_pb2.RouteRequest(model=MODEL, prompt_tokens=24, max_output_tokens=200)

Metadata = tuple[tuple[str, str], ...]

_ANSWER: Final = routing_pb2.RouteResponse(
    request_id="01930000-0000-7000-8000-000000000000",
    cluster="upstream",
    gateway="http://127.0.0.1:8000",
    hand_off_token="v1.bench." + "x" * 200,
    expires_at_ms=1_800_000_000_000,
    region="bench",
    jurisdiction="bench",
)


@dataclass(frozen=True, slots=True)
class GrpcBenchOptions:
    """How much is measured. calls and messages: per subject and round."""

    rounds: int = 5
    calls: int = 2_000
    messages: int = 6_000


async def _empty_route(_request: routing_pb2.RouteRequest, _context: object) -> routing_pb2.RouteResponse:
    return _ANSWER


async def _empty_stream(
    messages: AsyncIterator[routing_pb2.RouteStreamRequest], _context: object
) -> AsyncIterator[routing_pb2.RouteStreamResponse]:
    async for message in messages:
        yield routing_pb2.RouteStreamResponse(correlation_id=message.correlation_id, response=_ANSWER)


def run(options: GrpcBenchOptions, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure both calls; return their figures, whose reference is the empty handler's rate. Raises BenchError."""
    rates: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="gir-bench-") as folder, contextlib.ExitStack() as stack:
        upstream_port = free_port()
        stack.enter_context(_process((*UPSTREAM, "--port", str(upstream_port))))
        router = router_subject(Path(folder), MODEL, clusters=CLUSTERS)
        ports = {}
        for subject in (router, Subject(EMPTY, f"{shlex.join(_PARTS)} empty", router.headers)):
            port = ports[subject.name] = free_port()
            command = subject.command.format(port=free_port(), upstream_port=upstream_port)
            process = stack.enter_context(_process((*shlex.split(command), "--grpc-port", str(port))))
            _await_ready(subject.name, process, port, router.headers)
        for number in range(options.rounds):
            for kind, _ in KINDS:
                count = options.calls if kind == "unary" else options.messages
                for name, port in ports.items():
                    rates.setdefault((kind, name), []).append(_load(kind, port, count, router.headers))
            progress(f"gRPC round {number + 1} of {options.rounds}")
    medians = {key: statistics.median(values) for key, values in rates.items()}
    return [_figure(name, medians[kind, router.name], medians[kind, EMPTY]) for kind, name in KINDS]


def _figure(name: str, value: float, reference: float) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(value),
        "unit": "1/s",
        "reference": round(reference),
        "ratio": round(value / reference, 3),
    }


@contextlib.contextmanager
def _process(words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run one process of the benchmark until the context ends."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 -- our own modules
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _await_ready(
    name: str, process: subprocess.Popen[bytes], port: int, headers: Sequence[tuple[str, str]]
) -> None:
    """Wait until the process answers the benchmark's own call."""
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            _load("unary", port, 1, headers)
        except BenchError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{name} did not answer a Route call within {_READY_S:.0f} s") from None
        else:
            return


def _load(kind: str, port: int, count: int, headers: Sequence[tuple[str, str]]) -> float:
    """Return requests per second of one client process."""
    command = (*_PARTS, "load", "--kind", kind, "--grpc-port", str(port), "--count", str(count))
    metadata = json.dumps([(name.lower(), value) for name, value in headers])
    try:
        done = subprocess.run(  # noqa: S603 -- our own module with numbers as arguments
            command, input=metadata.encode(), capture_output=True, check=True, timeout=_LOAD_S
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        lines = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        raise BenchError(f"gRPC load failed: {lines[-1] if lines else 'it took too long'}") from error
    return float(done.stdout)


# --- The client and the empty server, each in a process of its own ---------------------------------------


async def _drive(kind: str, port: int, count: int, metadata: Metadata) -> float:
    """Send `count` requests, IN_FLIGHT at a time, and return their rate; the first one is not counted."""
    async with open_channel(f"127.0.0.1:{port}") as channel:
        stub = routing_pb2_grpc.GlobalRouterStub(channel)
        await stub.Route(REQUEST, metadata=metadata)
        began = time.perf_counter()
        await (_call if kind == "unary" else _stream)(stub, count, metadata)
        return count / (time.perf_counter() - began)


async def _call(stub: "routing_pb2_grpc.GlobalRouterAsyncStub", count: int, metadata: Metadata) -> None:
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await stub.Route(REQUEST, metadata=metadata)

    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))


async def _stream(stub: "routing_pb2_grpc.GlobalRouterAsyncStub", count: int, metadata: Metadata) -> None:
    stream = stub.RouteStream(metadata=metadata)
    for number in range(min(IN_FLIGHT, count)):
        await stream.write(routing_pb2.RouteStreamRequest(correlation_id=number, request=REQUEST))
    for number in range(IN_FLIGHT, count + IN_FLIGHT):
        answer = await stream.read()
        if not isinstance(answer, routing_pb2.RouteStreamResponse) or not answer.HasField("response"):
            raise BenchError("RouteStream refused a request")
        if number < count:
            await stream.write(routing_pb2.RouteStreamRequest(correlation_id=number, request=REQUEST))
    await stream.done_writing()


async def _serve_empty(port: int) -> None:
    server = grpc.aio.server()
    unary: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
        _empty_route, routing_pb2.RouteRequest.FromString, routing_pb2.RouteResponse.SerializeToString
    )
    stream: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
        _empty_stream,
        routing_pb2.RouteStreamRequest.FromString,
        routing_pb2.RouteStreamResponse.SerializeToString,
    )
    handlers = {"Route": unary, "RouteStream": stream}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("gir.v1.GlobalRouter", handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def main(arguments: list[str]) -> None:
    """Run one role until it is done (load) or terminated (empty)."""
    parser = argparse.ArgumentParser(prog="bench_route_grpc")
    parser.add_argument("role", choices=("empty", "load"))
    parser.add_argument("--grpc-port", type=int, required=True)
    parser.add_argument("--kind", choices=[kind for kind, _ in KINDS], default="unary")
    parser.add_argument("--count", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.role == "empty":
        uvloop.run(_serve_empty(options.grpc_port))
    else:
        metadata = tuple((name, value) for name, value in json.load(sys.stdin))
        rate = uvloop.run(_drive(options.kind, options.grpc_port, options.count, metadata))
        sys.stdout.write(f"{rate}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
