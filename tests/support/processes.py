"""A verb of `gir` as a process of its own, for scenario tests.

Knows how to start one, wait for what it says or serves, and read its output. Ending and freezing it
(`stop`, `kill`, `pause`, `resume`) come from the stack's `Process`, which acts on the whole process group: workers too.
"""

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from deploy.stack.errors import PartFailedError
from deploy.stack.process import Process, wait_until

START_TIMEOUT_S = 30.0
# The installed command itself, so that a scenario starts what a user starts.
GIR = Path(sys.executable).with_name("gir")
_PROBE_TIMEOUT_S = 1.0


class GirProcess(Process):
    """`gir VERB ...` with its standard output and error in files of `directory`."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            name or f"gir-{arguments[0]}",
            [str(GIR), *arguments],
            directory,
            environment={"PYTHONUNBUFFERED": "1", **(environment or {})},
        )

    def wait_line(self, pattern: str, deadline_s: float = START_TIMEOUT_S) -> re.Match[str]:
        """The first match of `pattern` in either output; raises `PartFailedError` if the process ends without one."""
        expression = re.compile(pattern, re.MULTILINE)
        wait_until(lambda: self._search(expression) is not None or not self.running, deadline_s)
        found = self._search(expression)
        if found is None:
            raise PartFailedError(f"{self.name} never said {pattern!r}; its last output:\n{self.tail()}")
        return found

    def wait_url(self, url: str, deadline_s: float = START_TIMEOUT_S) -> None:
        """Returns once a GET of `url` answers 200."""
        self.wait_ready(lambda: answers_200(url), deadline_s)

    def _search(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        return expression.search(self.stdout()) or expression.search(self.stderr())


def answers_200(url: str) -> bool:
    """True when a GET of `url` on loopback answers 200 within a second."""
    try:
        with urllib.request.urlopen(url, timeout=_PROBE_TIMEOUT_S) as answer:  # noqa: S310 - loopback, from the test
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
