"""The `gir` command: one file per verb, each with `add_parser` and `run`.

Only the verb that was asked for is imported, so that `gir token` does not pay for gRPC, Kafka and
Redis. Nothing is decided here.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final

from services.cli.exit_codes import USAGE

VERBS: Final = {
    "apply": "services.cli.apply",
    "bench": "services.cli.bench",
    "demo": "services.cli.demo",
    "endpoint-picker": "services.cli.endpoint_picker",
    "fleet": "services.cli.fleet",
    "import": "services.cli.import_config",
    "projector": "services.cli.projector",
    "render": "services.cli.render",
    "router": "services.cli.router",
    "simulate-pod": "services.cli.simulate_pod",
    "token": "services.cli.token",
    "up": "services.cli.up",
    "validate": "services.cli.validate",
}


DISTRIBUTION: Final = "global-inference-router"


class _Version(argparse.Action):
    """Prints the version of the installed package and leaves; it is looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata  # noqa: PLC0415 -- half the start of a verb that never asks for it

        print(f"gir {metadata.version(DISTRIBUTION)}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `--help` and usage errors leave through argparse."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in words if not word.startswith("-")), "")
    asked = {verb: VERBS[verb]} if verb in VERBS else VERBS
    if words == ["--version"]:
        asked = {}  # Answered while the words are parsed; no verb is needed.
    parser = argparse.ArgumentParser(prog="gir", description="GPU-aware global routing for LLM inference.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB")
    modules = {name: importlib.import_module(path) for name, path in asked.items()}
    for module in modules.values():
        module.add_parser(subparsers)
    args = parser.parse_args(words)
    if args.verb is None:
        parser.print_help(sys.stderr)
        return USAGE
    try:
        return int(modules[args.verb].run(args))
    except KeyboardInterrupt:
        return 128 + 2


if __name__ == "__main__":
    sys.exit(main())
