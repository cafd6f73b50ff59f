"""The long-lived processes of `gir bench picker`: simulated pods and a picker.

Each is started as `python -m services.worlds.bench_picker_parts ROLE …`, so that the CPU and the memory of each
are its own. Each says one line of JSON when it is ready and one more for each line it is sent.
Nothing is judged here; `bench_picker_stage` starts them.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvloop
import yaml

from services.adapters.system.clock import SystemClock
from services.adapters.system.heap import settle_heap
from services.adapters.system.tasks import TaskScope
from services.core.units import NS_PER_MS, Instant, ms
from services.endpoint_picker.assembly import build
from services.endpoint_picker.process import EndpointPicker
from services.endpoint_picker.settings import PickerSettings
from services.simulator.assembly import RunningPod, start_pod
from services.simulator.settings import PodSettings

AGES_EVERY = ms(20)
"""How often the oldest reading is looked for: a tenth of the interval at which readings come."""
READY_S = 60.0
READY_EVERY = ms(50)

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Ages:
    """How old each pod's last reading got; the oldest moment of each counts."""

    def __init__(self, picker: EndpointPicker) -> None:
        self._picker = picker
        self.oldest: dict[str, int] = {}

    def look(self, now: Instant) -> None:
        """Note the age of every reading."""
        oldest = self.oldest
        for pod in self._picker.observer.table:
            if pod.read_at is not None:
                oldest[pod.id] = max(oldest.get(pod.id, 0), now - pod.read_at)

    async def watch(self) -> None:
        """Look for ever."""
        clock = self._picker.clock
        while True:
            self.look(clock.now())
            await clock.sleep(AGES_EVERY)


async def _pods(options: argparse.Namespace) -> None:
    fields: dict[str, Any] = json.loads(options.settings)
    clock = SystemClock()
    pods: list[RunningPod] = [
        await start_pod(PodSettings.model_validate({"pod": f"pod-{number}", "port": 0, **fields}), clock)
        for number in range(options.count)
    ]

    def answer(command: Mapping[str, Any]) -> Mapping[str, Any]:
        pods[command["pod"]].configure(command["configure"])
        return {}

    await _serve({"ports": [pod.port for pod in pods]}, answer)
    for pod in pods:
        await pod.stop()


async def _picker(options: argparse.Namespace) -> None:
    settings = PickerSettings.model_validate(yaml.safe_load(options.settings.read_text()))
    picker = build(settings)
    await picker.start()
    ages = Ages(picker)
    tasks = TaskScope(_raise)
    expected = sum(len(pool.endpoints) for pool in settings.pools)
    async with asyncio.timeout(READY_S):
        while sum(len(picker.observer.table.ready(pool.name)) for pool in settings.pools) < expected:
            await picker.clock.sleep(READY_EVERY)

    settle_heap()

    def answer(command: Mapping[str, Any]) -> Mapping[str, Any]:
        oldest = dict(ages.oldest)
        if command.get("watch"):
            # Only from here on, so that looking is no part of what scraping costs.
            tasks.spawn(ages.watch(), "ages")
        return {
            "oldest_ms": {pod: age / NS_PER_MS for pod, age in oldest.items()},
            "scrapes": dict(picker.observer.counters.scrapes),
        }

    await _serve({"grpc": picker.grpc_port, "http": picker.http_port, "metrics": picker.metrics_port}, answer)
    await tasks.close()
    await picker.abort()


def _raise(_: str, failure: BaseException) -> None:
    raise failure


async def _serve(ready: Mapping[str, Any], answer: Answer) -> None:
    """Say `ready`, then answer one line of JSON with another until told to stop."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)

    def heard() -> None:
        line = sys.stdin.readline()
        if line:
            _say(answer(json.loads(line)))
        else:
            # Nobody is left to ask.
            stopped.set()

    loop.add_reader(sys.stdin.fileno(), heard)
    _say(ready)
    await stopped.wait()
    loop.remove_reader(sys.stdin.fileno())


def _say(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Run one role until it is told to stop."""
    parser = argparse.ArgumentParser(prog="bench_picker_parts")
    roles = parser.add_subparsers(dest="role", required=True)
    pods = roles.add_parser("pods")
    pods.add_argument("--count", type=int, required=True)
    pods.add_argument("--settings", required=True)
    picker = roles.add_parser("picker")
    picker.add_argument("--settings", type=Path, required=True)
    options = parser.parse_args(arguments)
    uvloop.run(_pods(options) if options.role == "pods" else _picker(options))


if __name__ == "__main__":
    main(sys.argv[1:])
