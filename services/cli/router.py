"""`gir router`: one region's router, as deployed.

Parses words into settings and runs the service until it is told to stop.
"""

import argparse
import os
import sys
from pathlib import Path

import uvloop

from services.cli.exit_codes import USAGE
from services.cli.settings_file import read_settings
from services.global_router.serve import serve_router
from services.global_router.settings import RouterSettings


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "router",
        help="run one region's router: HTTP and gRPC doors",
        epilog="Settings come from the file, then from GIR_SECTION__KEY variables (GIR_HTTP__PORT), then from flags. "
        "Without its store a router starts from the policy on its disk and from probes.",
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings as YAML")
    parser.add_argument("--redis", metavar="URL", help="overrides redis.url")
    parser.add_argument("--http-port", type=int, help="overrides http.port; 0 takes a free one")
    parser.add_argument("--grpc-port", type=int, help="overrides grpc.port; 0 takes a free one")
    parser.add_argument("--decisions", type=Path, metavar="FILE", help="overrides decision_file")
    parser.add_argument(
        "--insecure-bind",
        action="store_true",
        default=None,
        help="allow addresses other than loopback, without TLS",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM. 1 when an address is taken, 2 for wrong settings."""
    flags = {
        "redis.url": args.redis,
        "http.port": args.http_port,
        "grpc.port": args.grpc_port,
        "decision_file": args.decisions,
        "insecure_bind": args.insecure_bind,
    }
    settings = read_settings("router", RouterSettings, args.config, os.environ, flags)
    if settings is None:
        return USAGE
    if not settings.redis.url and not (settings.state_dir / "policy.bin").exists():
        print(
            "gir router: neither redis.url nor a policy on disk: nothing to route by (set redis.url)",
            file=sys.stderr,
        )
        return USAGE
    return uvloop.run(serve_router(settings))
