"""`gir bench route`: what a routing decision costs, beside one bare gRPC round trip of the same run.

Decisions are measured in this process over fleets of several sizes, the round trip against an
echo server on loopback that shares the event loop with its client: nothing but gRPC. Sizes and
round trips take turns within every round, so that noise of the machine falls on all. It
judges nothing: the caller compares ratios with limits.
"""

import asyncio
import os
import platform
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Final

import grpc
import grpc.aio

from services.core.fleet import Candidate, FleetSnapshot, LoadReport
from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.locality import Jurisdiction, Locality, Region
from services.core.policy import ModelPolicy, PolicySnapshot
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.scheduling.decide import decide
from services.core.scheduling.prepare import Prepared, prepare
from services.core.units import Instant, WallMs
from services.worlds import bench_route_grpc
from services.worlds.bench_route_grpc import GrpcBenchOptions

MODEL: Final = ModelName("bench")
PLACES: Final = tuple(
    Locality(Region(region), Jurisdiction(jurisdiction))
    for region, jurisdiction in (
        ("eu-west", "eu"),
        ("eu-north", "eu"),
        ("us-east", "us"),
        ("us-west", "us"),
        ("ap-south", "in"),
    )
)
RULES: Final = (ANYWHERE, ResidencyRule(allow_jurisdictions=frozenset({Jurisdiction("eu")})))
"""Half of the requests are confined, as in a fleet that several jurisdictions share."""

ECHO: Final = "/gir.bench.Echo/Echo"
PAYLOAD: Final = b"x" * 200
"""About the size of an encoded `RouteRequest`."""


@dataclass(frozen=True, slots=True)
class RouteBenchOptions:
    """How much is measured. sizes: clusters per fleet; decisions and calls: per size and round."""

    sizes: tuple[int, ...] = (20, 100, 500)
    rounds: int = 15
    decisions: int = 2000
    calls: int = 200
    grpc: GrpcBenchOptions = field(default_factory=GrpcBenchOptions)


def fleet_of(clusters: int) -> Prepared:
    """Return a prepared fleet of `clusters` healthy clusters of unequal capacity in five regions."""
    candidates = tuple(
        Candidate(
            f"cluster-{number}",
            PLACES[number % len(PLACES)],
            frozenset({MODEL}),
            LoadReport(ready=8, total=8, capacity_requests=128.0 + number % 7),
        )
        for number in range(clusters)
    )
    policy = PolicySnapshot(1, WallMs(0), models=(ModelPolicy(MODEL),))
    return prepare(FleetSnapshot(1, 1, PLACES[0], candidates), policy)


def requests_of(count: int) -> list[InferenceRequest]:
    """Return requests with distinct ids, residency as in `RULES`."""
    tenant = Tenant(TenantId("bench"), Grants(frozenset({MODEL})))
    return [
        InferenceRequest(
            RequestId(f"01930000-0000-7000-8000-{number:012x}"), tenant, MODEL, RULES[number % len(RULES)]
        )
        for number in range(count)
    ]


def decision_us(prepared: Prepared, requests: Sequence[InferenceRequest]) -> float:
    """Return microseconds per decision over `requests`, plans made beforehand."""
    now = Instant(0)
    for request in requests[: len(RULES)]:
        decide(prepared, request, now)
    started = perf_counter_ns()
    for request in requests:
        decide(prepared, request, now)
    return (perf_counter_ns() - started) / len(requests) / 1000


async def round_trip_us(call: Callable[[bytes], Awaitable[bytes]], calls: int) -> float:
    """Return the median microseconds of one call, one after the other."""
    spans = []
    for _ in range(calls):
        started = perf_counter_ns()
        await call(PAYLOAD)
        spans.append((perf_counter_ns() - started) / 1000)
    return statistics.median(spans)


async def _echo(request: bytes, _context: object) -> bytes:
    return request


async def bare_unary(stack: AsyncExitStack) -> Callable[[bytes], Awaitable[bytes]]:
    """Start an echo server without codec, interceptor or TLS; return a call to it. Closed with `stack`."""
    server = grpc.aio.server()
    _, service, method = ECHO.split("/")
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    stack.push_async_callback(server.stop, None)
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
    unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(ECHO)
    await unary(PAYLOAD)
    return unary


async def _measure(
    options: RouteBenchOptions, progress: Callable[[str], None]
) -> tuple[Mapping[int, float], float]:
    """Return the median microseconds of a decision per size, and of a round trip."""
    fleets = {size: fleet_of(size) for size in options.sizes}
    requests = requests_of(options.decisions)
    decisions: dict[int, list[float]] = {size: [] for size in options.sizes}
    trips: list[float] = []
    async with AsyncExitStack() as stack:
        call = await bare_unary(stack)
        for number in range(options.rounds):
            for size, prepared in fleets.items():
                decisions[size].append(decision_us(prepared, requests))
            trips.append(await round_trip_us(call, options.calls))
            progress(f"round {number + 1} of {options.rounds}")
    medians = {size: statistics.median(values) for size, values in decisions.items()}
    return medians, statistics.median(trips)


def _figure(name: str, value: float, unit: str, reference: float) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(value, 3),
        "unit": unit,
        "reference": round(reference, 3),
        "ratio": round(value / reference, 4),
    }


def run(
    options: RouteBenchOptions | None = None, progress: Callable[[str], None] = lambda _line: None
) -> dict[str, Any]:
    """Measure and return the benchmark's one JSON object.

    `decide.<n>` is microseconds per decision over n clusters, its reference the bare unary round trip;
    `decide.growth` the largest fleet's decision, its reference the smallest fleet's; `Route` and
    `RouteStream` requests per second of the router process, their reference an empty handler's. Raises
    BenchError.
    """
    chosen = options or RouteBenchOptions()
    decisions, trip = asyncio.run(_measure(chosen, progress))
    smallest, largest = min(chosen.sizes), max(chosen.sizes)
    return {
        "bench": "route",
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "figures": [
            *(_figure(f"decide.{size}", decisions[size], "us", trip) for size in chosen.sizes),
            _figure("decide.growth", decisions[largest], "us", decisions[smallest]),
            *bench_route_grpc.run(chosen.grpc, progress),
        ],
    }
