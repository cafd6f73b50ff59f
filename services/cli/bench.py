"""`gir bench NAME`: measured figures, printed as a table or, with `--json`, as one closing line.

Words and output only; measuring is `services/worlds/bench_*`.
"""

import argparse
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from services.cli.exit_codes import DONE, NO
from services.worlds import bench_http, bench_picker, bench_route
from services.worlds.bench_http import BenchError, BenchOptions, Subject
from services.worlds.bench_picker import PickerBenchOptions
from services.worlds.bench_picker_memory import MemoryOptions
from services.worlds.bench_router import router_subject

MINUTES_MIN, MINUTES_MAX = 0.1, 120.0


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its benchmarks."""
    parser = subparsers.add_parser("bench", help="measure: route, http, picker")
    names = parser.add_subparsers(dest="bench", required=True, metavar="NAME")
    route = names.add_parser(
        "route", help="a decision beside a bare gRPC round trip; Route beside an empty handler"
    )
    http = names.add_parser("http", help="CPU per request of the HTTP door, beside a peer's")
    http.add_argument(
        "--against-command",
        metavar="COMMAND",
        help="start this peer and measure it in turn; {port} is where it must listen, {upstream} its upstream's URL",
    )
    http.add_argument("--relay", action="store_true", help="measure the bare relay instead of the router")
    http.add_argument("--paced", action="store_true", help="the upstream sends each event by itself")
    http.add_argument("--requests", type=int, default=10_000, help="per measurement (default: %(default)s)")
    http.add_argument(
        "--rounds", type=int, default=3, help="medians are taken over these (default: %(default)s)"
    )
    picker = names.add_parser(
        "picker", help="the endpoint picker: scraping, picks, prefixes, Envoy, sharing of load, memory"
    )
    picker.add_argument(
        "--part", action="append", choices=bench_picker.PARTS, help="measure this part only; repeatable"
    )
    picker.add_argument(
        "--minutes", type=_minutes, default=0.5, help="of watching memory (default: %(default)s)"
    )
    picker.add_argument("--check", action="store_true", help="exit with 1 when a limit is missed")
    for one in (route, http, picker):
        one.add_argument("--json", action="store_true", help="end with one line of JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print; 1 when the benchmark could not be run, or with `--check` when a limit was missed."""
    try:
        result = _measure(args)
    except BenchError as error:
        print(f"gir bench: {error}", file=sys.stderr)
        return NO
    if args.json:
        print(json.dumps(result))
    else:
        _print(result)
    complaints = bench_picker.missed(result) if args.bench == "picker" else []
    for complaint in complaints:
        _say(f"missed: {complaint}")
    return NO if complaints and args.check else DONE


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    if args.bench == "route":
        return bench_route.run()
    return _http(args) if args.bench == "http" else _picker(args)


def _picker(args: argparse.Namespace) -> dict[str, Any]:
    options = PickerBenchOptions(
        parts=args.part or bench_picker.PARTS, memory=MemoryOptions(minutes=args.minutes)
    )
    return bench_picker.run(options, _say)


def _minutes(text: str) -> float:
    minutes = float(text)
    if not MINUTES_MIN <= minutes <= MINUTES_MAX:
        raise argparse.ArgumentTypeError(f"must lie in {MINUTES_MIN:g}..{MINUTES_MAX:g}")
    return minutes


def _http(args: argparse.Namespace) -> dict[str, Any]:
    options = BenchOptions(requests=args.requests, rounds=args.rounds, paced=args.paced)
    against = None
    if args.against_command:
        against = Subject(Path(shlex.split(args.against_command)[0]).name, args.against_command)
    with tempfile.TemporaryDirectory(prefix="gir-bench-") as folder:
        target = bench_http.BARE_RELAY if args.relay else router_subject(Path(folder), options.model)
        return bench_http.run(options, target, against, _say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(result: dict[str, Any]) -> None:
    machine = result["machine"]
    table = Table(title=f"bench {result['bench']}: {machine['cpus']} CPUs, Python {machine['python']}")
    for column in ("figure", "value", "unit", "reference", "ratio"):
        table.add_column(column, justify="left" if column in ("figure", "unit") else "right")
    for figure in result["figures"]:
        cells = (figure["name"], figure["value"], figure["unit"], figure["reference"], figure["ratio"])
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    Console().print(table)
