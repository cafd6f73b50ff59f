"""`gir validate`: says of configuration files whether they hold together, and if not, where and why.

Works on the files alone; no service is asked and nothing is changed.
"""

import argparse
import json
import sys
from pathlib import Path

from services.cli.config_files import UnreadableFileError, add_files, read_sources
from services.cli.exit_codes import DONE, NO, USAGE
from services.wire.config.documents import Documents
from services.wire.config.load import load
from services.wire.config.pod_lists import PodListError, read_pods
from services.wire.config.problems import Problem


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "validate",
        help="check configuration files",
        epilog="Prints one line per problem, `file: path: value: rule`. Exits 0 when the files are valid "
        "(warnings allowed), 1 when they are not, 2 when one cannot be read.",
    )
    add_files(parser)
    parser.add_argument(
        "--pods",
        type=Path,
        metavar="FILE",
        help="pods that exist, as `kubectl get pods -A -o yaml` prints them, to hold selectors against",
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="(default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Check the files and print the answer on stdout."""
    try:
        sources = read_sources(args.files)
        pods = None if args.pods is None else read_pods(read_sources([args.pods])[0])
    except (UnreadableFileError, PodListError) as error:
        print(f"gir validate: {error}", file=sys.stderr)
        return USAGE
    documents = load(sources, pods)
    if args.output == "json":
        print(json.dumps({"valid": not documents.errors, "problems": [_row(p) for p in documents.problems]}))
    else:
        for problem in documents.problems:
            print(problem)
        print(_summary(documents))
    return NO if documents.errors else DONE


def _row(problem: Problem) -> dict[str, object]:
    return {
        "file": problem.file,
        "document": problem.document,
        "path": problem.path,
        "value": problem.value,
        "rule": problem.rule,
        "severity": problem.severity.value,
    }


def _summary(documents: Documents) -> str:
    errors, warnings = len(documents.errors), len(documents.warnings)
    return f"{'invalid' if errors else 'valid'}: {errors} errors, {warnings} warnings"
