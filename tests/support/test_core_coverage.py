"""The judge of core's coverage, on small trees of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("core_coverage.py")
SOURCE = "def sign(number: int) -> int:\n    if number < 0:\n        return -1\n    return 1\n"
WHOLE_TEST = "from services.core.{0} import sign\n\ndef test_sign():\n    assert sign(1) == -sign(-1)\n"
HALF_TEST = "from services.core.{0} import sign\n\ndef test_half():\n    assert sign(1) == 1\n"

pytestmark = pytest.mark.scenario  # Each starts a test run of its own.


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("services/core", "tests/core"):
        (tmp_path / folder).mkdir(parents=True)
        for package in (tmp_path / folder, (tmp_path / folder).parent):
            (package / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text("[tool.coverage.run]\nbranch = true\n")
    _write(tmp_path, "whole", WHOLE_TEST)
    return tmp_path


def _write(tree: Path, name: str, test: str) -> None:
    (tree / "services" / "core" / f"{name}.py").write_text(SOURCE)
    (tree / "tests" / "core" / f"test_{name}.py").write_text(test.format(name))


def _judge(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM)], cwd=tree, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_core_whose_files_are_covered_passes(tree: Path) -> None:
    judged = _judge(tree)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "core: 1 of 1 files fully covered" in judged.stdout


def test_what_another_test_file_reaches_does_not_count(tree: Path) -> None:
    """Claim: a branch reached only through a neighbour's tests is a branch its own tests do not pin."""
    _write(tree, "half", HALF_TEST)
    neighbour = tree / "tests" / "core" / "test_whole.py"
    neighbour.write_text(
        "import services.core.half\n" + WHOLE_TEST.format("whole") + "    services.core.half.sign(-1)\n"
    )
    judged = _judge(tree)
    assert judged.returncode == 1, judged.stdout + judged.stderr
    assert "core: 1 of 2 files fully covered" in judged.stdout
    assert any("half.py" in line and line.endswith("3") for line in judged.stdout.splitlines())


def test_a_failing_core_test_fails_the_run(tree: Path) -> None:
    _write(tree, "failing", "def test_no():\n    raise AssertionError\n")
    assert _judge(tree).returncode == int(pytest.ExitCode.TESTS_FAILED)
