"""`python -m tests.support.core_coverage`: every file of core is fully branch-covered by its own test file.

One run over `tests/core`, in which coverage notes which test file was running; then each source file is judged by
what its own test file reached (and by what importing it ran). There is no list of exemptions, so none can grow.
Run from the top of the tree.
"""

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

ROOT = Path.cwd()
CORE = ROOT / "services" / "core"
CORE_TESTS = ROOT / "tests" / "core"
FULL_PERCENT = 100.0
_AT_IMPORT = "^$"  # Coverage's name for what ran outside any test.


class ContextPerTestFile:
    """A pytest plugin: while a test runs, coverage files what it reaches under the test's file."""

    def __init__(self, measurement: coverage.Coverage) -> None:
        self._measurement = measurement

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Switches the context around set-up, call and tear-down of one test."""
        self._measurement.switch_context(context_of(item.path))
        try:
            return (yield)
        finally:
            self._measurement.switch_context("")


def context_of(test_file: Path) -> str:
    """The name under which coverage keeps what this test file reaches; no two files share one."""
    return str(test_file.relative_to(ROOT))


def own_test_of(source: Path) -> Path:
    """The test file that mirrors a core file."""
    return (CORE_TESTS / source.relative_to(CORE)).with_name(f"test_{source.name}")


def judge(measurement: coverage.Coverage, source: Path) -> str | None:
    """None when the file's own tests reach every line and branch of it, else the report of what they miss."""
    own = context_of(own_test_of(source)).replace(".", r"\.")
    report = io.StringIO()
    percent = measurement.report(
        [str(source)], contexts=[_AT_IMPORT, f"^{own}$"], show_missing=True, skip_empty=False, file=report
    )
    return None if percent >= FULL_PERCENT else report.getvalue().splitlines()[2]


def main() -> int:
    """0 when all core files are covered by their own tests; 1 when one is not; pytest's code when a test fails."""
    measurement = coverage.Coverage(
        data_file=None, source=[str(CORE)], config_file=str(ROOT / "pyproject.toml")
    )
    measurement.start()
    try:
        outcome = pytest.main(
            ["-q", "--no-header", str(CORE_TESTS)], plugins=[ContextPerTestFile(measurement)]
        )
    finally:
        measurement.stop()
    if outcome != pytest.ExitCode.OK:
        return int(outcome)
    sources = [path for path in sorted(CORE.rglob("*.py")) if path.name != "__init__.py"]
    verdicts = {path: judge(measurement, path) for path in sources}
    missed = [verdict for verdict in verdicts.values() if verdict is not None]
    judged = (
        f"core: {len(sources) - len(missed)} of {len(sources)} files fully covered by their own test file"
    )
    sys.stdout.write("\n".join([judged, *missed]) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
