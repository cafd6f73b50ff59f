"""The stage of `gir bench picker`: starts its processes, speaks with them, reads their CPU and memory from /proc.

A process ends with the context that started it. What they do is `bench_picker_parts`; what is measured with them
is the files beside this one. Linux only.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from select import select
from typing import Any, Final

import yaml

from services.worlds.bench_http import BenchError, tree_cpu_s
from services.worlds.bench_picker_load import RequestShape

MODEL: Final = "bench"
POOL: Final = "chat"
PARTS: Final = (sys.executable, "-m", "services.worlds.bench_picker_parts")
LOAD: Final = (sys.executable, "-m", "services.worlds.bench_picker_load")
ANSWER_S: Final = 90.0
"""A hundred pods and a picker that waits for all of them start within this on a busy machine."""
_STOP_S: Final = 10.0
_LOAD_GRACE_S: Final = 60.0
_KIB_PER_MIB: Final = 1024
_QUOTED_LINES: Final = 4


class Part:
    """One process: `ready` is what it said first."""

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self._name = name
        self._process = process
        self.ready = self._read()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Send a line and return the answer to it. Raises BenchError when there is none."""
        assert self._process.stdin is not None  # noqa: S101 -- opened as a pipe below
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise BenchError(f"{self._name} has ended before it was asked") from None
        return self._read()

    def cpu_s(self) -> float:
        """Return the CPU seconds it has used."""
        return tree_cpu_s(self.pid)

    def rss_mib(self) -> float:
        """Return its resident memory in MiB."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / _KIB_PER_MIB
        raise BenchError(f"{self._name} has no memory any more")

    def _read(self) -> dict[str, Any]:
        out = self._process.stdout
        assert out is not None  # noqa: S101 -- opened as a pipe below
        heard, _, _ = select([out], [], [], ANSWER_S)
        line = out.readline() if heard else ""
        if not line:
            status = self._process.poll()
            how = "said nothing" if status is None else f"exited with status {status}"
            raise BenchError(f"{self._name} {how}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def part(name: str, arguments: Sequence[str]) -> Iterator[Part]:
    """Run one process of the benchmark until the context ends; its errors are kept to tell why it failed."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(  # noqa: S603 -- our own module
            (*PARTS, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            yield Part(name, process)
        except BenchError as error:
            if process.poll() is None:
                raise
            errors.seek(0)
            lines = errors.read().strip().splitlines()
            why = "; ".join(line.strip() for line in lines[-_QUOTED_LINES:])
            raise BenchError(f"{error}: {why}" if why else str(error)) from None
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


@contextlib.contextmanager
def pods(count: int, **settings: Any) -> Iterator[Part]:
    """Run `count` simulated pods in one process; `ready["ports"]` says where. `settings` are `PodSettings`' fields."""
    fields = json.dumps({"model": MODEL, **settings})
    with part("pods", ("pods", "--count", str(count), "--settings", fields)) as running:
        yield running


@contextlib.contextmanager
def picker(ports: Sequence[int], **settings: Any) -> Iterator[Part]:
    """Run a picker over pods at `ports` until they are all ready; `settings` are `PickerSettings`' fields."""
    endpoints = [{"id": f"pod-{number}", "address": f"127.0.0.1:{port}"} for number, port in enumerate(ports)]
    document = {
        "cluster": "bench",
        "region": "bench",
        "jurisdiction": "bench",
        "pools": [{"name": POOL, "models": [MODEL], "endpoints": endpoints}],
        "http": {"port": 0, "accept": "direct"},
        "grpc": {"port": 0},
        "metrics": {"port": 0},
        **settings,
    }
    with tempfile.TemporaryDirectory(prefix="gir-bench-") as folder:
        file = Path(folder) / "picker.yaml"
        file.write_text(yaml.safe_dump(document))
        with part("picker", ("picker", "--settings", str(file))) as running:
            yield running


def load(port: int, shape: RequestShape, rate: float, requests: int, first: int = 0) -> dict[str, Any]:
    """Send `requests` at `rate` a second and return the generator's figures. Raises BenchError."""
    words = [
        *LOAD,
        *("--port", str(port)),
        *("--rate", str(rate)),
        *("--requests", str(requests)),
        *("--first", str(first)),
        *("--model", shape.model),
        *("--prompt-tokens", str(shape.prompt_tokens)),
        *("--output-tokens", str(shape.output_tokens)),
        *(("--stream",) if shape.stream else ()),
    ]
    try:
        done = subprocess.run(  # noqa: S603 -- our own module with numbers as arguments
            words, capture_output=True, check=True, text=True, timeout=requests / rate + _LOAD_GRACE_S
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        raise BenchError(f"the load generator failed: {lines[-1] if lines else 'no reason'}") from None
    except subprocess.TimeoutExpired:
        raise BenchError(f"{requests} requests at {rate:g}/s did not end in time") from None
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
