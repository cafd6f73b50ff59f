"""The fleet of the process stories, running: every service its own `gir` process over real Kafka and Redis.

Writes keys and settings, starts the verbs as an operator would, strikes whole regions by signal and brings
them back on the same ports and files. What is judged from it is `evidence`'s.
"""

import functools
import json
import os
import signal
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import yaml

from deploy.stack.kafka import KafkaServer
from deploy.stack.process import wait_until
from deploy.stack.redis import RedisServer
from services.adapters.system.ids import SystemIds
from services.worlds.topology_keys import StateKeys
from tests.scenarios.processes.plan import (
    EU,
    ROUTED,
    TENANT,
    Document,
    Plan,
    picker_settings,
    pod_settings,
    policy_documents,
    projector_settings,
    router_settings,
)
from tests.support.metrics import read_metrics
from tests.support.processes import GirProcess

START_TIMEOUT_S = 90.0
"""Twenty interpreters start at once, on a machine that others use too."""

TRACEBACK = "Traceback (most recent call last)"


class ProcessFleet:
    """Every process by its name; `start` brings all of it up and returns once every router routes everywhere."""

    def __init__(self, root: Path, plan: Plan, kafka: KafkaServer, redis: RedisServer) -> None:
        self.root = root
        self.plan = plan
        self.kafka = kafka
        self.redis = redis
        self.keys = StateKeys(root, SystemIds())
        self.token = ""
        self.processes: dict[str, GirProcess] = {}
        self._regions: dict[str, list[str]] = {}

    # --- Life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Publish the policy, start every process and wait until both routers hold every cluster healthy."""
        public = json.loads(self.gir("token", "keys", "init", str(self.keys.signing_folder)))
        policy = self.root / "policy.yaml"
        policy.write_text(yaml.safe_dump_all(policy_documents(self.plan, public)))
        self._lay_out()
        self.gir("apply", str(policy), "--kafka", self.kafka.bootstrap)
        # A spare picker starts first and takes the lease: its death must not be that of the gateway too.
        spares = [spare.name for cluster in self.plan.clusters for spare in cluster.pickers[1:]]
        self.start_again(spares)
        for spare in spares:
            self.processes[spare].wait_line("publishing with epoch")
        self.start_again(self.processes)
        self.token = self.mint()
        self.wait_serving(ROUTED, START_TIMEOUT_S)

    def stop(self) -> None:
        """Kill whatever still runs."""
        kill_at_once(self.processes.values())

    def gir(self, *arguments: str) -> str:
        """Run a verb to its end and return what it printed; a failure quotes it."""
        process = GirProcess(self.root / "log", *arguments, name="-".join(arguments[:2]).replace("/", "_"))
        process.start()
        code = process.wait_ended(START_TIMEOUT_S)
        assert code == 0, f"gir {' '.join(arguments)}: {code}\n{process.tail()}"
        return process.stdout()

    def mint(self, *options: str, tenant: str = TENANT) -> str:
        """Return a bearer token of `tenant`."""
        folder = str(self.keys.signing_folder)
        return self.gir("token", "mint", "--keys", folder, "--tenant", tenant, *options).strip()

    # --- Processes ------------------------------------------------------------------------------------

    def region(self, region: str) -> list[GirProcess]:
        """Return every process of a region, pods first."""
        return [self.processes[name] for name in self._regions[region]]

    def kill_region(self, region: str) -> None:
        """SIGKILL all of it within the time that the signals take."""
        kill_at_once(self.region(region))

    def pause_region(self, region: str) -> None:
        """SIGSTOP all of it: sockets stay open and nothing answers."""
        for process in self.region(region):
            process.pause()

    def resume_region(self, region: str) -> None:
        """SIGCONT all of it."""
        for process in self.region(region):
            process.resume()

    def start_again(self, names: Iterable[str]) -> None:
        """Start ended processes as they were."""
        for name in names:
            if not self.processes[name].running:
                self.processes[name].start()

    def revive_region(self, region: str) -> None:
        """Start everything of a region that has ended."""
        self.start_again(self._regions[region])

    def restore(self) -> None:
        """Undo what a story did: start what has ended and let what was frozen go on."""
        for server in (self.kafka, self.redis):
            if not server.process.running:
                server.start()
        for process in self.processes.values():
            if process.running:
                process.resume()
        self.start_again(self.processes)

    # --- What services say ----------------------------------------------------------------------------

    def metrics(self, region: str) -> Mapping[str, float]:
        """Return the metrics of a region's router."""
        return read_metrics(self.plan.routers[region].metrics)

    def serving(self, region: str, clusters: Collection[str] | None = None, state: str = "healthy") -> bool:
        """Whether a region's router is ready and holds `clusters`, or all, to be in `state`."""
        try:
            metrics = self.metrics(region)
        except OSError:
            return False
        names = [cluster.name for cluster in self.plan.clusters] if clusters is None else clusters
        samples = (f'gir_cluster_state{{cluster="{name}",state="{state}"}}' for name in names)
        return metrics.get("gir_router_ready") == 1 and all(metrics.get(sample) == 1 for sample in samples)

    def wait_serving(self, regions: Iterable[str] = ROUTED, deadline_s: float = 30.0) -> None:
        """Return once the routers of `regions` hold every cluster healthy."""
        for region in regions:
            serving = functools.partial(self.serving, region)
            assert wait_until(serving, deadline_s), self.trouble(region)

    def trouble(self, region: str) -> str:
        """Return the last words of a region's router and of everything that has ended, for a failed wait."""
        ended = [process for process in self.processes.values() if not process.running]
        words = [f"--- {process.name}\n{process.tail()}" for process in [*ended, self.router(region)]]
        return "\n".join(words)

    def tracebacks(self) -> Mapping[str, str]:
        """Return every error output, of all starts, that holds a traceback."""
        said = {process.name: process.stderr_path.read_text() for process in self.processes.values()}
        return {name: text[text.index(TRACEBACK) :] for name, text in said.items() if TRACEBACK in text}

    def router(self, region: str) -> GirProcess:
        """Return a region's router."""
        return self.processes[f"{region}-router"]

    def door(self, region: str = EU) -> int:
        """Return the port of a region's HTTP door."""
        return self.plan.routers[region].http

    def decision_file(self, region: str) -> Path:
        """Return where a region's router writes its decisions."""
        return self.keys.region_folder(region) / "decisions.jsonl"

    # --- Files ----------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        for cluster in self.plan.clusters:
            for pod in cluster.pods:
                self._add(cluster.region, pod, "simulate-pod", pod_settings(cluster, pod))
        for cluster in self.plan.clusters:
            keys = str(self.keys.cluster_keys(cluster.name, ROUTED))
            lease = str(self.root / f"{cluster.name}.lease")
            for picker in cluster.pickers:
                settings = picker_settings(cluster, picker, self.kafka.bootstrap, keys, lease)
                self._add(cluster.region, picker.name, "endpoint-picker", settings)
        for name, port in self.plan.projector_metrics.items():
            region = name.partition("-projector-")[0]
            self._add(
                region,
                name,
                "projector",
                projector_settings(region, port, self.kafka.bootstrap, self.redis.url),
            )
        for region, router in self.plan.routers.items():
            self.keys.region_secret(region)
            folder = str(self.keys.region_folder(region))
            self._add(region, f"{region}-router", "router", router_settings(router, self.redis.url, folder))

    def _add(self, region: str, name: str, verb: str, settings: Document) -> None:
        file = self.root / f"{name}.yaml"
        file.write_text(yaml.safe_dump(settings))
        self.processes[name] = GirProcess(self.root / "log", verb, "--config", str(file), name=name)
        self._regions.setdefault(region, []).append(name)


def kill_at_once(processes: Iterable[GirProcess]) -> None:
    """SIGKILL all, then wait for all: a region dies in a moment, not one process after another."""
    running = [process for process in processes if process.running]
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)
    for process in running:
        process.kill()
