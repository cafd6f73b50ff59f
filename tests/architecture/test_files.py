"""What every file of the tree keeps to: size, names, docstrings, empty package files, nothing of one machine."""

import ast
import re

from tests.architecture.tree import committed_files, named, python_files, syntax

MOST_LINES = 400
MOST_FUNCTION_LINES = 70
# Words that say nothing about what is inside.
EMPTY_WORDS = frozenset({"common", "helper", "helpers", "manager", "misc", "util", "utils"})
# Home folders and work folders of one machine; a path of that kind works nowhere else.
MACHINE_PATH = re.compile(r"(?<![\w.\-/}])/(?:home|root|Users|work)/[\w.]")


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {named(path): len(path.read_text().splitlines()) for path in python_files()}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_function_is_longer_than_70_lines() -> None:
    long = [
        f"{named(path)}:{node.lineno} {node.name} has {(node.end_lineno or node.lineno) - node.lineno + 1} lines"
        for path in python_files()
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > MOST_FUNCTION_LINES
    ]
    assert long == []


def test_package_files_hold_no_logic() -> None:
    with_logic = [
        named(path)
        for path in python_files()
        if path.name == "__init__.py"
        and syntax(path).body
        and (len(syntax(path).body) > 1 or ast.get_docstring(syntax(path)) is None)
    ]
    assert with_logic == []


def test_every_module_says_what_lives_in_it() -> None:
    """Test files are left out: their place, which mirrors a source file, and their names say it."""
    silent = [
        named(path)
        for path in python_files()
        if path.name != "__init__.py"
        and not path.name.startswith("test_")
        and not ast.get_docstring(syntax(path))
    ]
    assert silent == []


def test_no_module_or_folder_has_an_empty_word_for_a_name() -> None:
    empty = [
        named(path) for path in python_files() if EMPTY_WORDS.intersection(re.split(r"[/_.]", named(path)))
    ]
    assert empty == []


def test_nothing_names_a_path_of_one_machine() -> None:
    found = [
        f"{named(path)}:{number} {line.strip()}"
        for path in committed_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []
