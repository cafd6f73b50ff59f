"""`python -m deploy.stack up|down|fetch|build`: behind `make stack-up`, `stack-down`, `kafka` and `kubernetes`."""

import argparse
import sys
from pathlib import Path

from deploy.stack.errors import PartMissingError
from deploy.stack.kafka import fetch_jars
from deploy.stack.kubernetes import build_programs
from deploy.stack.local import DIRECTORY, down, up


def main() -> int:
    """Exit codes: 0 done, 1 a part failed, 2 usage, 3 the machine lacks a part (`fetch` and `build` only say so: tests skip)."""
    parser = argparse.ArgumentParser(prog="python -m deploy.stack", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser(
        "up", help="start Kafka, Redis and a Redis Sentinel on loopback, empty, and print addresses"
    )
    verbs.add_parser("down", help="end what `up` started and delete its data")
    verbs.add_parser(
        "fetch", help="bring Apache Kafka's jars into .cache/kafka by Maven, where Maven and Java are"
    )
    verbs.add_parser(
        "build", help="build a Kubernetes API server and etcd into .cache/kubernetes, where Go is (minutes)"
    )
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="where data and records are kept")
    arguments = parser.parse_args()
    if arguments.verb == "up":
        return up(arguments.directory.resolve(), print)
    if arguments.verb == "down":
        return down(arguments.directory.resolve(), print)
    bring, part = (fetch_jars, "Kafka") if arguments.verb == "fetch" else (build_programs, "Kubernetes")
    try:
        bring()
    except PartMissingError as reason:
        print(f"Tests on real {part} will be skipped: {reason}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
