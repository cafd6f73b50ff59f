"""`gir demo`: the whole system in one process, or its tour.

Parses words into options and runs the world on uvloop; what happens there is `services.worlds`.
"""

import argparse
import sys
from pathlib import Path

import uvloop

from services.cli.exit_codes import USAGE
from services.wire.config.field_types import host_port
from services.worlds.demo import CannotStartError, DemoOptions, demo
from services.worlds.topology import DOOR_STEP, FIRST_DOOR, IN_MEMORY, Bus
from services.worlds.tour import TourOptions, tour
from services.worlds.tour_network import SwitchedLoop

_LAST_BASE_PORT = 65_535 - 2 * DOOR_STEP


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "demo",
        help="run three regions, five clusters and simulated model servers in one process",
        epilog="Exits 0 when stopped or when every claim of the tour held, 1 when one did not, 2 for a port in "
        "use or wrong words, 3 when Kafka or Redis do not answer within 10 s.",
    )
    parser.add_argument(
        "--base-port",
        type=_base_port,
        default=FIRST_DOOR,
        metavar="PORT",
        help="first door; the others stand at +100 and +200 (default: %(default)s)",
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help="keep keys, policy and log here (default: a temporary folder)",
    )
    parser.add_argument(
        "--kafka", type=_bootstrap, metavar="ADDR", help="run on this Kafka: host:port[,host:port...]"
    )
    parser.add_argument("--redis", metavar="URL", help="run on this Redis: redis://host:port/0")
    parser.add_argument(
        "--tour",
        action="store_true",
        help="play a region's death and return and a bus outage under load, and judge what was claimed",
    )
    parser.add_argument(
        "--black-hole",
        action="store_true",
        help="with --tour: the region's network dies instead of its hosts",
    )
    parser.add_argument("--json", action="store_true", help="with --tour: end with one line of JSON")


def run(args: argparse.Namespace) -> int:
    """Run the demo until SIGINT or SIGTERM."""
    if (args.kafka is None) != (args.redis is None):
        print("gir demo: --kafka and --redis go together", file=sys.stderr)
        return USAGE
    if (args.black_hole or args.json) and not args.tour:
        print("gir demo: --black-hole and --json go with --tour", file=sys.stderr)
        return USAGE
    bus = Bus(args.kafka, args.redis) if args.kafka else IN_MEMORY
    options = DemoOptions(args.base_port, args.state_dir, bus)
    try:
        if args.tour:
            return uvloop.run(
                tour(TourOptions(args.black_hole, args.json), options), loop_factory=SwitchedLoop
            )
        return uvloop.run(demo(options))
    except CannotStartError as error:
        print(f"gir demo: {error}", file=sys.stderr)
        return error.code


def _base_port(value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value[:6]) <= _LAST_BASE_PORT:
        raise argparse.ArgumentTypeError(f"must be a port from 1 to {_LAST_BASE_PORT}")
    return int(value)


def _bootstrap(value: str) -> str:
    try:
        return ",".join(host_port(address) for address in value.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{value!r}: {error}") from error
