"""What the picker adds to a request through the real Envoy: the same Envoy with and without it, in the same run.

Ten simulated pods, paced open-loop load, every part in a process of its own; the two cores carry all of them, so
the CPU of each is told beside the latencies. Bodies are sent to the picker by both of Envoy's ways. Judging is the
figures' own.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from services.worlds.bench_http import BenchError, free_port, tree_cpu_s
from services.worlds.bench_picker_figures import Figure, at_most
from services.worlds.bench_picker_load import RequestShape
from services.worlds.bench_picker_stage import MODEL, Part, load, picker, pods

P95_ADDED_MS_MAX: Final = 4.7
"""At 200 requests a second: the best published picker's (llm-d router, 10 simulated pods, 200-token prompts)."""
CLIFF_MS_MAX: Final = 78.0
"""At 500 requests a second: where the best published picker falls to."""
LIMITED_MODE: Final = "duplex"
BARE: Final = "bare"
_FAST_ENGINE: Final = {"step_base_us": 20, "prefill_token_us": 0, "decode_sequence_us": 0}
"""Engines that take 2 ms for an answer of 100 tokens: what is measured is the way there."""
_LIMITS: Final = {200: P95_ADDED_MS_MAX, 500: CLIFF_MS_MAX}


@dataclass(frozen=True, slots=True)
class EnvoyOptions:
    """How much is measured: each rate for `seconds` a mode and round; medians are taken over rounds."""

    pods: int = 10
    rates: tuple[int, ...] = (10, 200, 500)
    stream_rates: tuple[int, ...] = (10, 100)
    seconds: float = 4.0
    rounds: int = 3
    requests_min: int = 60
    prompt_tokens: int = 200
    output_tokens: int = 100


@dataclass(frozen=True, slots=True)
class _Run:
    """One measurement: the generator's figures, and CPU shares of a core by process."""

    figures: dict[str, Any]
    shares: dict[str, float]


@dataclass(frozen=True, slots=True)
class EnvoyStage:
    """Everything that runs. `ports` are Envoy's listeners by mode: bare, duplex, buffered, and observed."""

    ports: dict[str, int]
    envoy_pid: int
    picker: Part
    pods: Part


@contextmanager
def staged(options: EnvoyOptions, engine: Mapping[str, int] | None = None) -> Iterator[EnvoyStage]:
    """Run pods, picker and Envoy; `engine` changes the pods' engines. Raises BenchError where there is no Envoy or no source tree to configure it by."""
    try:
        # The stack is part of the source tree and not of the installed package.
        from deploy.stack.envoy import EnvoyServer, program  # noqa: PLC0415
        from deploy.stack.envoy_config import Body, Gateway  # noqa: PLC0415
        from deploy.stack.errors import PartFailedError, PartMissingError  # noqa: PLC0415
    except ImportError:
        raise BenchError("measuring through Envoy needs the source tree (deploy/stack)") from None
    try:
        program()
    except PartMissingError as error:
        raise BenchError(f"no Envoy: {error}") from None
    with ExitStack() as stack:
        simulated = stack.enter_context(
            pods(options.pods, engine={**_FAST_ENGINE, **(engine or {})}, wake_interval_ms=1)
        )
        subject = stack.enter_context(picker(simulated.ready["ports"]))
        endpoints = tuple(f"127.0.0.1:{port}" for port in simulated.ready["ports"])
        asked = f"127.0.0.1:{subject.ready['grpc']}"
        gateways = (
            Gateway(BARE, free_port(), None, endpoints),
            Gateway("duplex", free_port(), asked, endpoints),
            Gateway("buffered", free_port(), asked, endpoints, body=Body.BUFFERED),
            Gateway("observed", free_port(), asked, endpoints, responses=True),
        )
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gir-bench-")))
        server = EnvoyServer(folder, gateways)
        try:
            server.start()
        except PartFailedError as error:
            raise BenchError(f"Envoy did not start: {error}") from None
        stack.callback(server.stop)
        ports = {gateway.name: gateway.port for gateway in gateways}
        yield EnvoyStage(ports, server.process.pid, subject, simulated)


def run(options: EnvoyOptions, progress: Callable[[str], None]) -> list[Figure]:
    """Measure every rate, mode and kind of answer. Raises BenchError."""
    figures: list[Figure] = []
    with staged(options) as stage:
        plain = RequestShape(MODEL, options.prompt_tokens, options.output_tokens)
        stream = RequestShape(MODEL, options.prompt_tokens, options.output_tokens, stream=True)
        modes = {"json": (plain, ("duplex", "buffered", "observed")), "sse": (stream, ("duplex", "observed"))}
        numbers = 0
        for kind, (shape, names) in modes.items():
            for rate in options.rates if kind == "json" else options.stream_rates:
                count = max(options.requests_min, round(rate * options.seconds))
                runs: dict[str, list[_Run]] = {}
                for _ in range(options.rounds):
                    for name in (BARE, *names):
                        runs.setdefault(name, []).append(_measure(stage, name, shape, rate, count, numbers))
                        numbers += count
                figures += _figures(kind, rate, runs)
                progress(_line(kind, rate, runs))
    return figures


def _measure(stage: EnvoyStage, mode: str, shape: RequestShape, rate: int, count: int, first: int) -> _Run:
    before = _cpu(stage)
    figures = load(stage.ports[mode], shape, rate, count, first)
    after = _cpu(stage)
    if figures["faults"]:
        raise BenchError(
            f"{figures['faults']} of {count} requests through {mode} at {rate}/s failed: "
            f"{', '.join(figures['first_faults'])}"
        )
    took = count / figures["requests_per_s"]
    shares = {name: (after[name] - before[name]) / took for name in after}
    return _Run(figures, shares | {"load": figures["cpu_s"] / took})


def _cpu(stage: EnvoyStage) -> dict[str, float]:
    return {
        "picker": stage.picker.cpu_s(),
        "pods": stage.pods.cpu_s(),
        "envoy": tree_cpu_s(stage.envoy_pid),
    }


def _figures(kind: str, rate: int, runs: dict[str, list[_Run]]) -> list[Figure]:
    """Return added latencies beside their limit, each mode's own beside the bare Envoy's, and CPU shares."""
    figures: list[Figure] = []
    metrics = ("p50_ms", "p95_ms", *(("first_byte_p50_ms", "first_byte_p95_ms") if kind == "sse" else ()))
    for mode, measured in runs.items():
        name = f"envoy.{kind}.{mode}.{rate}"
        for metric in metrics:
            # With and without the picker take turns, so the difference is one of neighbours.
            values, bare = _values(measured, metric), _values(runs[BARE], metric)
            figures.append(
                Figure(f"{name}.{metric}", statistics.median(values), "ms", statistics.median(bare))
            )
            if mode != BARE:
                added = statistics.median(one - other for one, other in zip(values, bare, strict=True))
                figures.append(_added(f"{name}.added_{metric}", added, kind, mode, rate, metric))
        for part in ("picker", "envoy", "pods", "load"):
            share = statistics.median(run.shares[part] for run in measured)
            figures.append(Figure(f"{name}.cpu_{part}", share, "cores"))
        late = statistics.median(_values(measured, "late_p99_ms"))
        figures.append(Figure(f"{name}.load_late_p99_ms", late, "ms"))
    return figures


def _added(name: str, added: float, kind: str, mode: str, rate: int, metric: str) -> Figure:
    limit = _LIMITS.get(rate) if (kind, mode, metric) == ("json", LIMITED_MODE, "p95_ms") else None
    return Figure(name, added, "ms") if limit is None else at_most(name, added, "ms", limit)


def _values(runs: Sequence[_Run], metric: str) -> list[float]:
    return [float(run.figures[metric]) for run in runs]


def _line(kind: str, rate: int, runs: dict[str, list[_Run]]) -> str:
    parts = [
        f"{mode} {statistics.median(_values(measured, 'p50_ms')):.2f}/"
        f"{statistics.median(_values(measured, 'p95_ms')):.2f} ms, picker "
        f"{statistics.median(run.shares['picker'] for run in measured):.0%}"
        for mode, measured in runs.items()
    ]
    return f"through Envoy, {kind} at {rate}/s, p50/p95: {'; '.join(parts)}"
