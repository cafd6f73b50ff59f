"""Reading configuration files for the verbs that take them, and printing their problems.

Apart because `validate` and `apply` must say the same of the same files.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from services.wire.config.documents import Source
from services.wire.config.problems import Problem
from services.wire.config.yaml_reader import MAX_FILE_BYTES


class UnreadableFileError(Exception):
    """A file that cannot be read; the message names it and why."""


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the positional FILE... ."""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="YAML documents; several make one configuration"
    )


def read_sources(paths: Sequence[Path]) -> list[Source]:
    """Return the files' bytes, each cut one byte beyond the bound so that the loader refuses it."""
    sources = []
    for path in paths:
        try:
            with path.open("rb") as file:
                sources.append(Source(str(path), file.read(MAX_FILE_BYTES + 1)))
        except OSError as error:
            raise UnreadableFileError(f"{path}: {error.strerror or error}") from error
    return sources


def print_problems(problems: Iterable[Problem]) -> None:
    """Print each problem as one line on stderr."""
    for problem in problems:
        print(problem, file=sys.stderr)
