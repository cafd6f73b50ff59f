"""Core's laws: the standard library only, no clock, randomness, environment or log, and a test file of its own for each file."""

import sys

from tests.architecture.tree import CORE, ROOT, core_files, imports, named

# Each of these lets the world in: what it gives would differ when a decision is replayed.
BANNED = frozenset(
    {
        "asyncio",
        "datetime",
        "io",
        "logging",
        "os",
        "pathlib",
        "random",
        "secrets",
        "selectors",
        "socket",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "uuid",
    }
)


def test_core_imports_only_the_standard_library_and_itself() -> None:
    foreign = [
        f"{named(path)}:{line} imports {module}"
        for path in core_files()
        for line, module in imports(path)
        if module.split(".")[0] not in sys.stdlib_module_names
        and module != "services.core"
        and not module.startswith("services.core.")
    ]
    assert foreign == []


def test_core_lets_no_clock_randomness_or_environment_in() -> None:
    banned = [
        f"{named(path)}:{line} imports {module}"
        for path in core_files()
        for line, module in imports(path)
        if module.split(".")[0] in BANNED
    ]
    assert banned == []


def test_every_core_file_has_its_own_test_file() -> None:
    tests = ROOT / "tests" / "core"
    missing = [
        named(path)
        for path in core_files()
        if not (tests / path.relative_to(CORE)).with_name(f"test_{path.name}").is_file()
    ]
    assert missing == []


def test_every_core_test_file_mirrors_a_core_file() -> None:
    tests = ROOT / "tests" / "core"
    orphans = [
        named(path)
        for path in tests.rglob("test_*.py")
        if not (CORE / path.relative_to(tests)).with_name(path.name.removeprefix("test_")).is_file()
    ]
    assert orphans == []
