"""One operating-system process with its whole group: start, wait until ready, pause, stop, kill.

Knows nothing of Kafka, Redis or `gir`: they pass a command and a readiness check. Standard output and
standard error go to files beside each other, so that a failed wait can quote them.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deploy.stack.errors import PartFailedError

POLL_INTERVAL_S = 0.02
STOP_TIMEOUT_S = 20.0
_QUOTED_LINES = 30

# The kernel ends a process bound to its parent when the *thread* that started it ends. One thread that lives
# as long as the interpreter starts them all, so that a test may start a server from a short-lived thread.
_STARTER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")


def wait_until(ready: Callable[[], bool], deadline_s: float) -> bool:
    """Asks `ready` until it says yes (True) or `deadline_s` seconds have passed (False)."""
    last = time.monotonic() + deadline_s
    while not ready():
        if time.monotonic() >= last:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def bound_to_parent(command: Sequence[str]) -> list[str]:
    """`command` such that it is killed when its parent dies, where the machine can do that (util-linux)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else [*command]


class Process:
    """A process that can be started again after it ended, on the same command and the same log files.

    With `outlives_parent` the process stays when its starter ends (the local stack); without, it dies with it
    (tests), even when the starter is killed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        *,
        outlives_parent: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.stdout_path = directory / f"{name}.out"
        self.stderr_path = directory / f"{name}.err"
        self._command = list(command) if outlives_parent else bound_to_parent(command)
        self._directory = directory
        self._environment = {**os.environ, **(environment or {})}
        self._child: subprocess.Popen[bytes] | None = None
        self._stdout_start = 0
        self._stderr_start = 0

    def start(self) -> None:
        """Starts the process; its output is appended to what earlier starts wrote."""
        if self.running:
            raise PartFailedError(f"{self.name} already runs as process {self.pid}")
        self._directory.mkdir(parents=True, exist_ok=True)
        with self.stdout_path.open("ab") as out, self.stderr_path.open("ab") as err:
            self._stdout_start, self._stderr_start = out.tell(), err.tell()
            spawn = _STARTER.submit(
                subprocess.Popen,
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
            )
            self._child = spawn.result()

    @property
    def pid(self) -> int:
        """The process id of the latest start, which is also the id of its process group."""
        return self._started().pid

    @property
    def running(self) -> bool:
        """True from start until the process has ended; a paused process still runs."""
        return self._child is not None and self._child.poll() is None

    def stdout(self) -> str:
        """What the latest start has written to standard output so far."""
        return _read_from(self.stdout_path, self._stdout_start)

    def stderr(self) -> str:
        """What the latest start has written to standard error so far."""
        return _read_from(self.stderr_path, self._stderr_start)

    def wait_ready(self, ready: Callable[[], bool], deadline_s: float) -> None:
        """Returns once `ready` says yes; raises `PartFailedError` if the process ends or the deadline passes first."""
        if wait_until(lambda: not self.running or ready(), deadline_s) and self.running:
            return
        state = (
            f"not ready after {deadline_s:g} s" if self.running else f"ended with {self._started().poll()}"
        )
        raise PartFailedError(f"{self.name}: {state}; its last output:\n{self.tail()}")

    def wait_ended(self, deadline_s: float = STOP_TIMEOUT_S) -> int:
        """The exit code, once the process has ended; minus the signal's number when a signal ended it."""
        try:
            return self._started().wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise PartFailedError(f"{self.name} still runs after {deadline_s:g} s:\n{self.tail()}") from None

    def stop(self) -> int | None:
        """Asks the process to end (SIGTERM), kills it after 20 s; its exit code, or None if it never ran."""
        if self._child is None:
            return None
        if self.running:
            self.resume()
            self._signal(signal.SIGTERM)
            wait_until(lambda: not self.running, STOP_TIMEOUT_S)
        self.kill()
        return self._child.returncode

    def kill(self) -> None:
        """Kills the whole process group at once (SIGKILL), paused or not, and waits until it is gone."""
        if self._child is not None:
            self._signal(signal.SIGKILL)
            self._child.wait()

    def pause(self) -> None:
        """Freezes the whole process group (SIGSTOP): sockets stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a frozen process group go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def tail(self) -> str:
        """The last lines of both outputs of the latest start, for error messages."""
        return "\n".join((self.stdout() + self.stderr()).splitlines()[-_QUOTED_LINES:])

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise PartFailedError(f"{self.name} was never started")
        return self._child

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return  # The whole group has ended and been waited for; there is nothing left to signal.


def _read_from(path: Path, start: int) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")
