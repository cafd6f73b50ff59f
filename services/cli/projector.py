"""`gir projector`: moves the bus into one region's store, as deployed; run two or more per region.

Parses words into settings and runs the service until it is told to stop.
"""

import argparse
import os
from pathlib import Path

import uvloop

from services.cli.exit_codes import USAGE
from services.cli.settings_file import read_settings
from services.global_router.serve import serve_projector
from services.global_router.settings import ProjectorSettings


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "projector",
        help="project Kafka into one region's Redis",
        epilog="Settings come from the file, then from GIR_SECTION__KEY variables (GIR_REDIS__URL), then from flags. "
        "Ends with 3 when Kafka or Redis cannot be reached for 10 s at the start.",
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings as YAML")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="overrides kafka.bootstrap")
    parser.add_argument("--redis", metavar="URL", help="overrides redis.url")


def run(args: argparse.Namespace) -> int:
    """Project until SIGINT or SIGTERM. 2 for wrong settings, 3 when a server is not reached."""
    flags = {"kafka.bootstrap": args.kafka, "redis.url": args.redis}
    settings = read_settings("projector", ProjectorSettings, args.config, os.environ, flags)
    return USAGE if settings is None else uvloop.run(serve_projector(settings))
