"""`gir render`: our gateways as the objects of another system.

Prints YAML on stdout and, on stderr, what of a gateway the other system does not carry. Documents
that `gir validate` refuses are not rendered. Nothing is applied.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from services.cli.config_files import UnreadableFileError, add_files, print_problems, read_sources
from services.cli.exit_codes import DONE, NO, USAGE
from services.wire.config.documents import Located
from services.wire.config.gateway_import import to_gateway_config
from services.wire.config.inference_gateway import InferenceGateway
from services.wire.config.load import load
from services.wire.config.problems import Problem, Severity
from services.wire.config.render_envoy_gateway import Rendered, render_envoy_gateway
from services.wire.config.rules import Finding
from services.wire.config.yaml_writer import plain_values, write_yaml


def _as_config(gateway: InferenceGateway) -> Rendered | tuple[Finding, ...]:
    found = to_gateway_config(gateway)
    return found if isinstance(found, tuple) else Rendered((plain_values(found),), ())


SYSTEMS: Final[Mapping[str, Callable[[InferenceGateway], Rendered | tuple[Finding, ...]]]] = {
    "envoy-gateway": render_envoy_gateway,
    "inference-gateway-config": _as_config,
}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "render",
        help="print gateways as another system's objects",
        epilog="Exits 0 when every gateway was rendered, 1 when a document is refused or has no form in the other "
        "system (nothing is printed then), 2 when a file cannot be read.",
    )
    add_files(parser)
    parser.add_argument(
        "--for", dest="system", choices=tuple(SYSTEMS), required=True, help="the other system"
    )


def run(args: argparse.Namespace) -> int:
    """Render the gateways of the files."""
    try:
        documents = load(read_sources(args.files))
    except UnreadableFileError as error:
        print(f"gir render: {error}", file=sys.stderr)
        return USAGE
    problems = list(documents.problems)
    rendered: list[dict[str, Any]] = []
    for located in documents.inference_gateways if not documents.errors else ():
        found = SYSTEMS[args.system](located.value)
        if isinstance(found, Rendered):
            rendered += found.documents
            problems += _problems(located, found.warnings, Severity.WARNING)
        else:
            problems += _problems(located, found, Severity.ERROR)
    print_problems(problems)
    if any(problem.severity is Severity.ERROR for problem in problems):
        return NO
    if not rendered:
        print("gir render: the files hold no InferenceGateway", file=sys.stderr)
        return NO
    print(write_yaml(rendered), end="")
    return DONE


def _problems(
    located: Located[InferenceGateway], found: tuple[Finding, ...], severity: Severity
) -> list[Problem]:
    return [
        Problem(located.file, located.document, each.path, each.value, each.rule, severity) for each in found
    ]
