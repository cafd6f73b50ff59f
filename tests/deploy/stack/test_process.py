"""A process that is started, awaited, frozen, ended and started again."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.stack.errors import PartFailedError
from deploy.stack.process import Process, wait_until

DEADLINE_S = 20.0
SAY_AND_WAIT = "import sys, signal; print('ready', flush=True); print('oops', file=sys.stderr, flush=True); signal.pause()"


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Process]:
    process = Process("waiting", [sys.executable, "-c", SAY_AND_WAIT], tmp_path)
    yield process
    process.kill()


def test_output_goes_to_files_and_is_read_from_the_latest_start(waiting: Process) -> None:
    for _ in range(2):
        waiting.start()
        waiting.wait_ready(lambda: waiting.stdout() == "ready\n" and waiting.stderr() == "oops\n", DEADLINE_S)
        assert waiting.stop() == -signal.SIGTERM
    assert waiting.stdout_path.read_text() == "ready\n" * 2


def test_kill_reaches_the_whole_group_even_when_frozen(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, signal\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(child.pid, flush=True)\nsignal.pause()\n"
    )
    process = Process("parent", [sys.executable, "-c", script], tmp_path)
    process.start()
    process.wait_ready(lambda: process.stdout().endswith("\n"), DEADLINE_S)
    child = int(process.stdout())
    process.pause()
    assert wait_until(lambda: {_state(process.pid), _state(child)} == {"T"}, DEADLINE_S)
    process.kill()
    assert not process.running
    assert process.wait_ended(DEADLINE_S) == -signal.SIGKILL
    assert wait_until(lambda: _state(child) in ("Z", ""), DEADLINE_S)


def test_resume_lets_a_frozen_process_go_on(waiting: Process) -> None:
    waiting.start()
    waiting.wait_ready(lambda: waiting.stdout() == "ready\n", DEADLINE_S)
    waiting.pause()
    assert wait_until(lambda: _state(waiting.pid) == "T", DEADLINE_S)
    waiting.resume()
    assert wait_until(lambda: _state(waiting.pid) == "S", DEADLINE_S)


def test_a_process_that_ends_before_it_is_ready_is_reported_with_its_output(tmp_path: Path) -> None:
    process = Process("failing", [sys.executable, "-c", "import sys; sys.exit('no such thing')"], tmp_path)
    process.start()
    with pytest.raises(PartFailedError, match=r"(?s)failing: ended with 1.*no such thing"):
        process.wait_ready(lambda: False, DEADLINE_S)


def test_a_process_that_is_not_ready_in_time_is_reported(waiting: Process) -> None:
    waiting.start()
    with pytest.raises(PartFailedError, match="waiting: not ready after 0 s"):
        waiting.wait_ready(lambda: False, 0)


def test_a_running_process_is_not_started_twice(waiting: Process) -> None:
    waiting.start()
    with pytest.raises(PartFailedError, match="already runs"):
        waiting.start()


def test_what_never_started_has_no_pid_and_stops_without_ado(waiting: Process) -> None:
    assert waiting.stop() is None
    with pytest.raises(PartFailedError, match="never started"):
        _ = waiting.pid


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is not on PATH")
def test_a_process_dies_with_a_starter_that_is_killed(tmp_path: Path) -> None:
    """Claim: no server outlives a test run, even one that ends by SIGKILL."""
    script = (
        "import os, pathlib, signal, sys\n"
        "from deploy.stack.process import Process\n"
        f"process = Process('left', [sys.executable, '-c', {SAY_AND_WAIT!r}], pathlib.Path({str(tmp_path)!r}))\n"
        "process.start()\n"
        "process.wait_ready(lambda: process.stdout() == 'ready\\n', 20)\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    repository = Path(__file__).resolve().parents[3]
    starter = subprocess.run(
        [sys.executable, "-c", script],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert starter.returncode == -signal.SIGKILL, starter.stderr
    left = int(starter.stdout)
    try:
        assert wait_until(lambda: _state(left) in ("Z", ""), DEADLINE_S)
    finally:
        if _state(left) not in ("Z", ""):
            os.kill(left, signal.SIGKILL)


def _state(pid: int) -> str:
    """The one-letter state of a process (T frozen, S asleep, Z ended but not waited for), empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
