"""`gir fleet`: the fleet as one router sees it, once or after every change.

Asks the router's gRPC door (`WatchFleet`) with a bearer token and prints; it judges nothing.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from services.adapters.grpc.channel import open_channel
from services.adapters.grpc.failures import CallRefusedError, translated
from services.adapters.ports import UnreachableError
from services.cli.exit_codes import DONE, NO, UNREACHABLE, USAGE
from services.core.fleet import HealthState, PodsReport
from services.wire.config.field_types import host_port
from services.wire.errors import UndecodableError
from services.wire.gen.gir.v1 import health_pb2, routing_pb2, routing_pb2_grpc
from services.wire.pods_codec import pods_of
from services.worlds.table import ClusterRow, endpoints, flags, known_sum, rich_table

Fleet = routing_pb2.WatchFleetResponse

FIRST_ANSWER_S = 10.0
"""A router answers within milliseconds; one that has said nothing by then is away."""
_STATES = {routing_pb2.HealthState.Value(f"HEALTH_STATE_{state.name}"): state for state in HealthState}
_MEASURED = (
    "waiting",
    "running",
    "capacity_requests",
    "kv_use_mean",
    "saturation",
    "ttft_ms_p50",
    "ttft_ms_p95",
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "fleet",
        help="show the fleet as a router sees it",
        epilog="Exits 0 when shown, 1 when the router refuses the token, 2 for wrong words, 3 when the router cannot be "
        "reached.",
    )
    parser.add_argument(
        "--router",
        type=_address,
        default="127.0.0.1:7000",
        metavar="HOST:PORT",
        help="gRPC door (default: %(default)s)",
    )
    parser.add_argument("--token", default=None, help="bearer token (default: $GIR_TOKEN)")
    parser.add_argument(
        "--watch", action="store_true", help="keep showing it after every change, until Ctrl-C"
    )
    parser.add_argument("--pods", action="store_true", help="list the pods too")
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="json: one line per answer (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Show the fleet."""
    token = args.token or os.environ.get("GIR_TOKEN", "")
    if not token or not token.isascii() or not token.isprintable():
        print(
            "gir fleet: a token is needed: --token or GIR_TOKEN (`gir token mint` makes one)", file=sys.stderr
        )
        return USAGE
    try:
        return asyncio.run(_show(args, token))
    except UnreachableError as error:
        print(f"gir fleet: {error}", file=sys.stderr)
        return UNREACHABLE
    except (CallRefusedError, UndecodableError) as error:
        print(f"gir fleet: {error}", file=sys.stderr)
        return NO


async def _show(args: argparse.Namespace, token: str) -> int:
    showing = asyncio.current_task()
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def stop() -> None:
        stopped.set()
        if showing is not None:
            showing.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        async with aclosing(_answers(args.router, token, pods=args.pods)) as answers:
            if args.output == "text" and args.watch and Console().is_terminal:
                await _draw(answers, pods=args.pods)
            else:
                await _print(answers, args)
    except asyncio.CancelledError:
        if not stopped.is_set():
            raise
    return DONE


async def _answers(router: str, token: str, *, pods: bool) -> AsyncGenerator[Fleet, None]:
    """Yield the fleet, first as it is, then after each change; raises the errors of `ports`."""
    what = f"router {router}: watch the fleet"
    async with open_channel(router) as channel:
        stub = routing_pb2_grpc.GlobalRouterStub(channel)
        request = routing_pb2.WatchFleetRequest(include_pods=pods)
        call = stub.WatchFleet(request, metadata=(("authorization", f"Bearer {token}"),))
        try:
            try:
                async with asyncio.timeout(FIRST_ANSWER_S):
                    answer = await call.read()
            except TimeoutError:
                raise UnreachableError(f"{what}: no answer within {FIRST_ANSWER_S:.0f} s") from None
            while isinstance(answer, Fleet):  # Anything else is the end of the stream.
                yield answer
                answer = await call.read()
        except grpc.aio.AioRpcError as error:
            raise translated(error, what) from None
        raise UnreachableError(f"{what}: the router ended the stream")


async def _draw(answers: AsyncIterator[Fleet], *, pods: bool) -> None:
    with Live(auto_refresh=False) as live:
        async for answer in answers:
            shown: list[RenderableType] = [*doubts(answer), fleet_table(answer)]
            if pods:
                shown.append(pods_table(answer))
            live.update(Group(*shown), refresh=True)


async def _print(answers: AsyncIterator[Fleet], args: argparse.Namespace) -> None:
    # Wide enough for any name: a pipe has no width, and a cut name is no name.
    console = Console(soft_wrap=True) if sys.stdout.isatty() else Console(width=200)
    async for answer in answers:
        if args.output == "json":
            print(json.dumps(document(answer, pods=args.pods)), flush=True)
        else:
            for line in doubts(answer):
                console.print(line)
            console.print(fleet_table(answer))
            if args.pods:
                console.print(pods_table(answer))
        if not args.watch:
            return


def doubts(answer: Fleet) -> list[str]:
    """Return why what the router shows is to be read with care: one line, or none when all is well."""
    reasons = []
    if answer.isolated:
        reasons.append(
            "the router is isolated: every cluster is silent and every probe fails, so it suspects itself "
            "and keeps its last verdicts"
        )
    if answer.bus_suspected:
        reasons.append("the bus is suspected: so many clusters fell silent at once that silence says nothing")
    if not answer.ready:
        reasons.append("the router is not ready: it asks to be sent no traffic")
    return ["; ".join(reasons)] if reasons else []


def fleet_table(answer: Fleet) -> Table:
    """Return the clusters as a table."""
    caption = (
        f"seen from {answer.region} ({answer.jurisdiction}), policy revision {answer.policy_revision}, "
        f"snapshot {answer.fleet_version}"
    )
    return rich_table([row_of(status) for status in answer.clusters], caption)


def row_of(status: routing_pb2.ClusterStatus) -> ClusterRow:
    """Return one cluster as a row."""
    by_name = {pool.pool: pool for pool in status.pools}.values()
    ready, total = endpoints(by_name)
    return ClusterRow(
        cluster=status.cluster,
        region=status.region,
        jurisdiction=status.jurisdiction,
        state=_STATES.get(status.state, HealthState.UNKNOWN),
        notes=flags(draining=status.draining, ejected=status.ejected, mismatch=status.policy_mismatch),
        ready=ready,
        total=total,
        running=known_sum(_measured(pool, "running") for pool in by_name),
        waiting=known_sum(_measured(pool, "waiting") for pool in by_name),
        silence_ms=status.silence_ms if status.HasField("silence_ms") else None,
        ramp=status.ramp,
    )


def pods_table(answer: Fleet) -> Table:
    """Return the pod lists as a table."""
    table = Table()
    for column in ("cluster", "pool", "pod", "address", "state", "engine", "version", "reason"):
        table.add_column(column)
    for report in map(pods_of, answer.pods):
        for pod in report.pods:
            table.add_row(
                report.cluster,
                report.pool,
                pod.id,
                pod.address,
                pod.state.value,
                pod.engine,
                pod.version,
                pod.reason,
            )
    return table


def document(answer: Fleet, *, pods: bool) -> dict[str, Any]:
    """Return the fleet as a document; what is not known is null."""
    fleet: dict[str, Any] = {
        "region": answer.region,
        "jurisdiction": answer.jurisdiction,
        "fleet_version": answer.fleet_version,
        "policy_revision": answer.policy_revision,
        "bus_suspected": answer.bus_suspected,
        "isolated": answer.isolated,
        "ready": answer.ready,
        "clusters": [_cluster_document(status) for status in answer.clusters],
    }
    if pods:
        fleet["pods"] = [row for report in map(pods_of, answer.pods) for row in _pod_documents(report)]
    return fleet


def _cluster_document(status: routing_pb2.ClusterStatus) -> dict[str, Any]:
    return {
        "cluster": status.cluster,
        "region": status.region,
        "jurisdiction": status.jurisdiction,
        "state": _STATES.get(status.state, HealthState.UNKNOWN).value,
        "draining": status.draining,
        "ejected": status.ejected,
        "probing_ok": status.probing_ok,
        "policy_mismatch": status.policy_mismatch,
        "ramp": status.ramp,
        "silence_ms": status.silence_ms if status.HasField("silence_ms") else None,
        "pools": [
            {
                "pool": pool.pool,
                "model": pool.model,
                "ready_endpoints": pool.ready_endpoints,
                "total_endpoints": pool.total_endpoints,
                **{name: _measured(pool, name) for name in _MEASURED},
            }
            for pool in status.pools
        ],
    }


def _pod_documents(report: PodsReport) -> list[dict[str, Any]]:
    return [
        {
            "cluster": report.cluster,
            "pool": report.pool,
            "id": pod.id,
            "address": pod.address,
            "state": pod.state.value,
            "engine": pod.engine,
            "version": pod.version,
            "since_ms": pod.since_ms,
            "reason": pod.reason,
        }
        for pod in report.pods
    ]


def _measured(pool: health_pb2.PoolReport, field: str) -> Any:
    return getattr(pool, field) if pool.HasField(field) else None  # type: ignore[arg-type]  # a closed list of names


def _address(value: str) -> str:
    try:
        return host_port(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{value!r}: {error}") from error
