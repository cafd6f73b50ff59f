"""`gir bench http`: CPU per request of an HTTP router, beside a peer's, on the same upstream in the same run.

Starts the upstream, the target and the peer as processes, drives bounded closed-loop load through each
in turn, and reads the CPU seconds of each process tree from /proc. Target and peer take turns
within every round, so that noise of the machine falls on both. It judges nothing: the caller
compares ratios with limits. Linux only.
"""

import contextlib
import json
import os
import platform
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

_PARTS = (sys.executable, "-m", "services.worlds.bench_http_parts")
_READY_S = 60.0
_LOAD_S = 300.0
_KINDS = ("json", "sse")
_METRICS = (("cpu_ms", "ms"), ("p50_ms", "ms"), ("requests_per_s", "1/s"))


class BenchError(Exception):
    """The benchmark cannot be run; the message says what failed in one sentence."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A router to measure.

    command: how it is started; `{port}` is where it must listen on 127.0.0.1, `{upstream_port}` and
    `{upstream}` (a URL) where it must send. headers: added to every request (Authorization).
    """

    name: str
    command: str
    headers: tuple[tuple[str, str], ...] = ()


BARE_RELAY = Subject("relay", f"{shlex.join(_PARTS)} relay --port {{port}} --upstream-port {{upstream_port}}")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """How much is measured. requests: per measurement at the highest concurrency, a fifth of it at one connection."""

    requests: int = 10_000
    rounds: int = 3
    connections: tuple[int, ...] = (1, 16)
    path: str = "/v1/chat/completions"
    model: str = "bench"
    paced: bool = False


@dataclass(frozen=True, slots=True)
class _Measurement:
    cpu_ms: float
    p50_ms: float
    requests_per_s: float


@dataclass(slots=True)
class _Running:
    subject: Subject
    port: int
    process: subprocess.Popen[bytes]
    results: dict[tuple[str, int], list[_Measurement]] = field(default_factory=dict)


def run(
    options: BenchOptions,
    target: Subject = BARE_RELAY,
    against: Subject | None = None,
    progress: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Measure the target, and the peer if there is one; return the benchmark's one JSON object.

    `figures` hold name (`<metric>.<kind>.c<connections>`), value, unit, reference (the peer's value) and ratio.
    cpu_ms is CPU milliseconds of the whole process tree per request. Raises BenchError.
    """
    with contextlib.ExitStack() as stack:
        upstream_port = free_port()
        upstream = [
            *_PARTS,
            "upstream",
            "--port",
            str(upstream_port),
            *(["--paced"] if options.paced else []),
        ]
        stack.enter_context(_started("upstream", upstream))
        _await_ready("upstream", upstream_port, _request("json", options, ()))
        running = []
        for subject in (target, *([against] if against is not None else [])):
            port = free_port()
            command = subject.command.format(
                port=port, upstream_port=upstream_port, upstream=f"http://127.0.0.1:{upstream_port}"
            )
            process = stack.enter_context(_started(subject.name, shlex.split(command)))
            _await_ready(subject.name, port, _request("json", options, subject.headers), process)
            running.append(_Running(subject, port, process))
        _measure_all(options, running, progress)
    return {
        "bench": "http",
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "figures": _figures(options, running),
    }


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process and its living descendants have used, user and system (proc(5))."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The command name is in parentheses and may hold spaces; the numbers follow the last one.
            fields = stat.read_text().rpartition(")")[2].split()
            process = int(stat.parent.name)
            parents[process] = int(fields[1])
            ticks[process] = int(fields[11]) + int(fields[12])
    total = 0
    for process, used in ticks.items():
        ancestor = process
        while ancestor not in (pid, 0) and ancestor in parents:
            ancestor = parents[ancestor]
        total += used if ancestor == pid else 0
    return total / os.sysconf("SC_CLK_TCK")


def _measure_all(options: BenchOptions, running: Sequence[_Running], progress: Callable[[str], None]) -> None:
    for number in range(1, options.rounds + 1):
        for kind in _KINDS:
            for connections in options.connections:
                for one in running:
                    measured = _measure(options, one, kind, connections)
                    one.results.setdefault((kind, connections), []).append(measured)
                    progress(
                        f"round {number}/{options.rounds} {one.subject.name} {kind} c={connections}: "
                        f"{measured.cpu_ms * 1000:.0f} us CPU/request, {measured.requests_per_s:.0f} requests/s, "
                        f"p50 {measured.p50_ms:.2f} ms"
                    )


def _measure(options: BenchOptions, one: _Running, kind: str, connections: int) -> _Measurement:
    request = _request(kind, options, one.subject.headers)
    requests = options.requests if connections > 1 else max(1, options.requests // 5)
    _load(one, request, max(connections, requests // 10), connections)
    before = tree_cpu_s(one.process.pid)
    load = _load(one, request, requests, connections)
    used = tree_cpu_s(one.process.pid) - before
    return _Measurement(used * 1000 / requests, load["p50_ms"], load["requests_per_s"])


def _load(one: _Running, request: bytes, requests: int, connections: int) -> dict[str, float]:
    command = [
        *_PARTS,
        "load",
        "--port",
        str(one.port),
        "--requests",
        str(requests),
        "--connections",
        str(connections),
    ]
    try:
        done = subprocess.run(  # noqa: S603  # our own module with numbers as arguments
            command, input=request, capture_output=True, check=True, timeout=_LOAD_S
        )
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().splitlines()
        raise BenchError(
            f"load through {one.subject.name} failed: {reason[-1] if reason else 'no reason'}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"load through {one.subject.name} took more than {_LOAD_S:.0f} s") from error
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _request(kind: str, options: BenchOptions, headers: Sequence[tuple[str, str]]) -> bytes:
    body: dict[str, Any] = {
        "model": options.model,
        "messages": [{"role": "user", "content": "How much does it cost to relay one request?"}],
    }
    if kind == "sse":
        body["stream"] = True
    encoded = json.dumps(body).encode()
    lines = [
        f"POST {options.path} HTTP/1.1",
        "Host: 127.0.0.1",
        "User-Agent: gir-bench",
        "Accept: */*",
        "Content-Type: application/json",
        f"Content-Length: {len(encoded)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + encoded


@contextlib.contextmanager
def _started(name: str, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in a session of its own; end the session's processes afterwards, politely first."""
    try:
        process = subprocess.Popen(  # noqa: S603  # the operator's own command, given on the command line
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise BenchError(f"{name} cannot be started: {error}") from error
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await_ready(
    name: str, port: int, request: bytes, process: subprocess.Popen[bytes] | None = None
) -> None:
    """Wait until the process answers the benchmark's own request with 200."""
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    deadline = time.monotonic() + _READY_S
    answer = "nothing"
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise BenchError(f"{name} exited with status {process.returncode} before it answered")
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("POST", first.split(" ")[1], body, headers)
            answer = str(connection.getresponse().status)
        except (OSError, HTTPException) as error:
            answer = type(error).__name__
        finally:
            connection.close()
        if answer == "200":
            return
        time.sleep(0.1)
    raise BenchError(f"{name} did not answer with 200 within {_READY_S:.0f} s; the last answer was {answer}")


def _figures(options: BenchOptions, running: Sequence[_Running]) -> list[dict[str, Any]]:
    figures = []
    for kind in _KINDS:
        for connections in options.connections:
            for metric, unit in _METRICS:
                values = [_median(one, kind, connections, metric) for one in running]
                reference = values[1] if len(values) > 1 else None
                figures.append(
                    {
                        "name": f"{metric}.{kind}.c{connections}",
                        "value": round(values[0], 4),
                        "unit": unit,
                        "reference": None if reference is None else round(reference, 4),
                        "ratio": round(values[0] / reference, 3) if reference else None,
                    }
                )
    return figures


def _median(one: _Running, kind: str, connections: int, metric: str) -> float:
    values: list[float] = [getattr(measured, metric) for measured in one.results[(kind, connections)]]
    return statistics.median(values)
