"""`gir up`: everything a Site names, in one process, from a configuration file.

Reads and checks the file and runs the world on uvloop; what is started is `services.worlds.up`'s.
"""

import argparse
import sys
from pathlib import Path

import uvloop

from services.cli.config_files import UnreadableFileError, print_problems, read_sources
from services.cli.exit_codes import USAGE
from services.wire.config.load import InvalidDocumentsError, load
from services.worlds.demo import CannotStartError
from services.worlds.up import up


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "up",
        help="run routers, pickers and simulated pods of a Site in one process",
        epilog="CONFIG is a YAML stream: one Site, a Fleet and the other policy kinds. The policy is published as "
        "`gir apply` does. Exits 0 when stopped, 1 when refused or a part failed, 2 for a wrong configuration or a "
        "port in use, 3 when Kafka or Redis do not answer within 10 s.",
    )
    parser.add_argument("config", type=Path, metavar="CONFIG", help="YAML documents")


def run(args: argparse.Namespace) -> int:
    """Run the site until SIGINT or SIGTERM."""
    try:
        documents = load(read_sources([args.config]))
    except UnreadableFileError as error:
        print(f"gir up: {error}", file=sys.stderr)
        return USAGE
    print_problems(documents.problems)
    if documents.errors:
        print("gir up: nothing was started", file=sys.stderr)
        return USAGE
    try:
        return uvloop.run(up(documents))
    except InvalidDocumentsError as error:
        print_problems(error.problems)
        return USAGE
    except CannotStartError as error:
        print(f"gir up: {error}", file=sys.stderr)
        return error.code
