"""`gir endpoint-picker`: the endpoint picker of one cluster, as deployed.

Parses words into settings and runs the service until it is told to stop.
"""

import argparse
import os
from pathlib import Path

import uvloop

from services.cli.exit_codes import USAGE
from services.cli.settings_file import read_settings
from services.endpoint_picker.serve import serve
from services.endpoint_picker.settings import PickerSettings


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "endpoint-picker",
        help="run the endpoint picker and gateway of one cluster",
        epilog="Settings come from the file, then from GIR_SECTION__KEY variables (GIR_HTTP__PORT), then from flags. "
        "With Kafka away the picker serves and keeps trying.",
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings as YAML")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="overrides kafka.bootstrap")
    parser.add_argument("--http-port", type=int, help="overrides http.port; 0 takes a free one")
    parser.add_argument("--grpc-port", type=int, help="overrides grpc.port; 0 takes a free one")
    parser.add_argument(
        "--insecure-bind",
        action="store_true",
        default=None,
        help="allow addresses other than loopback, without TLS",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM. 1 when an address is taken, 2 for wrong settings."""
    flags = {
        "kafka.bootstrap": args.kafka,
        "http.port": args.http_port,
        "grpc.port": args.grpc_port,
        "insecure_bind": args.insecure_bind,
    }
    settings = read_settings("endpoint-picker", PickerSettings, args.config, os.environ, flags)
    return USAGE if settings is None else uvloop.run(serve(settings))
