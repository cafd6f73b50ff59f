"""The source tree as the architecture tests see it: which files there are, and their syntax trees.

Only reading lives here; each rule is in a test beside it. Generated code is left out once, in this place.
"""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "services" / "core"
GENERATED = ROOT / "services" / "wire" / "gen"
_WRITTEN_BY_HAND = ("services", "tests", "deploy", "protos", "chaos")


def python_files(*folders: str) -> list[Path]:
    """Every Python file under these top-level folders (all that hold code, if none is named), without generated ones."""
    return sorted(
        path
        for folder in folders or _WRITTEN_BY_HAND
        for path in (ROOT / folder).rglob("*.py")
        if not path.is_relative_to(GENERATED)
    )


def core_files() -> list[Path]:
    """The modules of core, without package files."""
    return [
        path for path in python_files("services") if path.is_relative_to(CORE) and path.stem != "__init__"
    ]


@cache
def syntax(path: Path) -> ast.Module:
    """The file's syntax tree."""
    return ast.parse(path.read_text(), filename=str(path))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import in the file, at any depth."""
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def committed_files() -> list[Path]:
    """Every file under version control that is present; none where this is not a git work tree."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def named(path: Path) -> str:
    """The path as a message shows it."""
    return str(path.relative_to(ROOT))
