"""`gir import`: an `InferenceGatewayConfig` becomes our `InferenceGateway`.

Prints the document, and on stderr what of the original has no equivalent and what `gir validate`
would still refuse. Nothing is applied.
"""

import argparse
import sys
from pathlib import Path
from typing import Final, get_args

from services.cli.config_files import UnreadableFileError, print_problems, read_sources
from services.cli.exit_codes import DONE, NO, USAGE
from services.wire.config.documents import Source
from services.wire.config.gateway_import import from_gateway_config
from services.wire.config.inference_gateway import GatewayGuardrail
from services.wire.config.inference_gateway_config import read_gateway_configs
from services.wire.config.load import load
from services.wire.config.problems import Problem, Severity
from services.wire.config.yaml_writer import plain_values, write_yaml

STDOUT: Final = "(imported)"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "import",
        help="turn an InferenceGatewayConfig into an InferenceGateway",
        epilog="Prints the documents on stdout, or into --write. Exits 0 when all were imported, 1 when one breaks "
        "a rule (nothing is printed then), 2 when a file cannot be read or written.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="YAML of InferenceGatewayConfig documents")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write here instead of on stdout")
    parser.add_argument(
        "--waive",
        action="append",
        default=[],
        choices=get_args(GatewayGuardrail),
        help="waive a guardrail in the imported documents; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Import the file and print or write the documents."""
    try:
        (source,) = read_sources([args.file])
    except UnreadableFileError as error:
        print(f"gir import: {error}", file=sys.stderr)
        return USAGE
    read = read_gateway_configs(source)
    if read.problems:
        print_problems(read.problems)
        return NO
    documents = []
    for document, config in read.configs:
        imported = from_gateway_config(config, args.waive)
        documents.append(plain_values(imported.gateway))
        print_problems(
            Problem(source.name, document, said.path, said.value, said.rule, Severity.WARNING)
            for said in imported.warnings
        )
    text = write_yaml(documents)
    print_problems(load([Source(str(args.write or STDOUT), text.encode())]).problems)
    if args.write is None:
        print(text, end="")
        return DONE
    try:
        args.write.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"gir import: {args.write}: {error.strerror or error}", file=sys.stderr)
        return USAGE
    return DONE
