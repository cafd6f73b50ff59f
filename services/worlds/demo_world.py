"""A running world: every service of a plan in one process and one event loop, on real sockets.

Everything is built by the services' own assemblies and speaks through its doors; nothing is
bypassed. Also the ways a whole region dies and returns. What is told to a person is elsewhere.
"""

import asyncio
from dataclasses import dataclass, field

from services.adapters.ports import BusPublisher, BusReader, Clock, Ids, Topic
from services.control.publication import Publication, publish_policy
from services.core.fleet import HealthState
from services.core.units import Duration, after, ms, seconds
from services.endpoint_picker.assembly import Shared as PickerShared
from services.endpoint_picker.assembly import build as build_picker
from services.endpoint_picker.process import EndpointPicker
from services.global_router.assembly import Shared as RouterShared
from services.global_router.assembly import build as build_router
from services.global_router.assembly import build_projector
from services.global_router.process import Router
from services.global_router.project import PROJECTED_TOPICS
from services.global_router.projection import ProjectorService
from services.global_router.settings import Kafka, ProjectorSettings, Redis
from services.simulator.assembly import RunningPod, start_pod
from services.wire.config.listeners import MetricsDoor
from services.worlds.demo_bus import LoggedPublisher, Parts, SendLog
from services.worlds.topology import ClusterPlan, RegionPlan, WorldPlan

PUBLISH_TIMEOUT = seconds(10)
READY_TIMEOUT = seconds(30)
"""A world on slow real parts; the embedded one needs about two seconds."""
LOOK_AGAIN = ms(20)
_EMBEDDED_BUS = "embedded.invalid:1"
_EMBEDDED_STORE = "redis://embedded.invalid:1"
"""Stand where a projector's settings must name servers it does not use: a name that never resolves (RFC 6761)."""
SERVING = frozenset({HealthState.HEALTHY, HealthState.DEGRADED})


class WorldNotReadyError(Exception):
    """The world did not come up in time; the message says who is missing."""


@dataclass(slots=True)
class LiveCluster:
    """One running cluster. Its ports to the bus were lent to the picker and end with it."""

    plan: ClusterPlan
    picker: EndpointPicker
    sender: BusPublisher
    reader: BusReader
    pods: list[RunningPod] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The cluster's id."""
        return self.plan.picker.cluster

    async def close_bus(self) -> None:
        """Close what the picker does not own."""
        await self.sender.close()
        await self.reader.close()


@dataclass(slots=True)
class LiveRegion:
    """One running region: its router, what fills the router's view, and its clusters."""

    plan: RegionPlan
    router: Router
    projectors: list[ProjectorService]
    clusters: list[LiveCluster]


class World:
    """Starts a plan, keeps it, ends it. `failed` is set when a part ended that should not have."""

    def __init__(self, plan: WorldPlan, parts: Parts, clock: Clock, ids: Ids) -> None:
        self.plan = plan
        self.clock = clock
        self.sent = SendLog()
        self.failed = asyncio.Event()
        self.regions: dict[str, LiveRegion] = {}
        self.elsewhere: list[LiveCluster] = []
        self.retired: list[Router] = []
        self.published: Publication | None = None
        self._parts = parts
        self._ids = ids

    # --- Life -----------------------------------------------------------------------------------------

    async def start(self) -> Publication:
        """Publish the policy, start everything. Raises what the first failing part raises, after ending the rest."""
        try:
            self.published = await self._publish()
            routed = {region.router.region for region in self.plan.regions}
            for cluster in self.plan.clusters:
                if cluster.picker.region not in routed:
                    self.elsewhere.append(await self._start_cluster(cluster))
            for plan in self.plan.regions:
                await self._start_tier_one(plan)
            await self._wait_for_pods(READY_TIMEOUT)
            for region in self.regions.values():
                await self._start_router(region)
        except BaseException:
            await self.abort()
            raise
        return self.published

    async def wait_ready(self, timeout: Duration) -> None:
        """Return once every router has the policy and serves every cluster started here."""
        deadline = after(self.clock.now(), timeout)
        while waiting := self.not_ready():
            if self.clock.now() >= deadline:
                raise WorldNotReadyError("not ready: " + "; ".join(waiting))
            await self.clock.sleep(LOOK_AGAIN)

    def not_ready(self) -> list[str]:
        """Return what is still missing, one clause each."""
        missing = []
        revision = self.published.policy.revision if self.published is not None else 1
        here = [cluster.picker.cluster for cluster in self.plan.clusters]
        for name, region in self.regions.items():
            view = region.router.view
            if view.policy is None or view.policy.revision < revision:
                missing.append(f"router {name} has no policy")
                continue
            # What routing reads: the table of states is up to 200 ms ahead of it.
            states = {candidate.id: candidate.state for candidate in view.current.snapshot.candidates}
            missing += [
                f"router {name} sees {cluster} {states[cluster].value}"
                for cluster in here
                if cluster in states and states[cluster] not in SERVING
            ]
        return missing

    async def stop(self) -> None:
        """End everything in order: routers drain first, so that no answer is cut."""
        await asyncio.gather(*(region.router.stop() for region in self.regions.values()))
        clusters = self._clusters()
        await asyncio.gather(*(cluster.picker.stop() for cluster in clusters))
        for cluster in clusters:
            await cluster.close_bus()
            await asyncio.gather(*(pod.stop() for pod in cluster.pods))
        for region in self.regions.values():
            await asyncio.gather(*(projector.stop() for projector in region.projectors))
        self.regions.clear()
        self.elsewhere.clear()

    async def abort(self) -> None:
        """End everything at once."""
        for name in list(self.regions):
            await self.kill(name)
        for cluster in self.elsewhere:
            await self._kill_cluster(cluster)
        self.elsewhere.clear()

    # --- How a region dies and returns ----------------------------------------------------------------

    async def kill(self, region: str) -> None:
        """The region's host dies: every socket is reset and every task of it ends, without a word."""
        dying = self.regions.pop(region)
        self.retired.append(dying.router)
        for cluster in dying.clusters:
            for pod in cluster.pods:
                pod.reset()
        await asyncio.gather(
            dying.router.abort(),
            *(self._kill_cluster(cluster) for cluster in dying.clusters),
            *(projector.abort() for projector in dying.projectors),
        )

    async def black_hole(self, region: str) -> None:
        """The region's network dies: every socket stays open and nothing comes through or goes out."""
        lost = self.regions[region]
        lost.router.black_hole(True)
        for cluster in lost.clusters:
            cluster.picker.black_hole(True)
        await asyncio.gather(*(pod.black_hole(True) for cluster in lost.clusters for pod in cluster.pods))

    async def restart(self, region: str) -> None:
        """Start a killed region again, on the ports it had."""
        plan = next(plan for plan in self.plan.regions if plan.router.region == region)
        returning = await self._start_tier_one(plan)
        await self._wait_for_pods(READY_TIMEOUT)
        await self._start_router(returning)

    # --- Building -------------------------------------------------------------------------------------

    async def _publish(self) -> Publication:
        reader = self._parts.reader("gir-publish", (Topic.POLICY,))
        publisher = self._parts.publisher("gir-publish")
        await publisher.start()
        try:
            return await publish_policy(
                self.plan.policy,
                reader,
                publisher,
                self.clock,
                PUBLISH_TIMEOUT,
                author="gir",
                reason=f"start of {self.plan.fleet}",
            )
        finally:
            await publisher.close()
            await reader.close()

    async def _start_tier_one(self, plan: RegionPlan) -> LiveRegion:
        """Start a region up to its clusters; the router is built and silent."""
        settings = plan.router
        store = self._parts.store(self.plan.fleet, settings.region)
        router = build_router(settings, RouterShared(self.clock, self._ids, store))
        region = self.regions[settings.region] = LiveRegion(plan, router, [], [])
        for _ in range(plan.projectors):
            projector = self._projector(settings.region)
            region.projectors.append(projector)
            await projector.start()
            self._watch(projector.failure)
        for cluster in self.plan.clusters_in(settings.region):
            region.clusters.append(await self._start_cluster(cluster))
        return region

    async def _start_router(self, region: LiveRegion) -> None:
        await region.router.start()
        self._watch(region.router.failure)

    async def _wait_for_pods(self, timeout: Duration) -> None:
        """Wait until each gateway with simulated pods is ready: a router that came first would take it for dead."""
        deadline = after(self.clock.now(), timeout)
        while waiting := [c.name for c in self._clusters() if c.pods and not c.picker.ready]:
            if self.clock.now() >= deadline:
                raise WorldNotReadyError(f"no pod is ready in {', '.join(waiting)}")
            await self.clock.sleep(LOOK_AGAIN)

    def _clusters(self) -> list[LiveCluster]:
        return [*self.elsewhere, *(c for region in self.regions.values() for c in region.clusters)]

    def _projector(self, region: str) -> ProjectorService:
        fleet, bus = self.plan.fleet, self.plan.bus
        settings = ProjectorSettings(
            fleet=fleet,
            region=region,
            kafka=Kafka(bootstrap=bus.kafka or _EMBEDDED_BUS),
            redis=Redis(url=bus.redis_url or _EMBEDDED_STORE),
            metrics=MetricsDoor(port=self.plan.metrics_port),
        )
        name = f"gir-projector-{region}"
        shared = RouterShared(
            self.clock,
            self._ids,
            self._parts.store(fleet, region),
            self._parts.reader(name, PROJECTED_TOPICS),
            self._parts.publisher(name),
        )
        return build_projector(settings, shared)

    async def _start_cluster(self, plan: ClusterPlan) -> LiveCluster:
        name = f"gir-picker-{plan.picker.cluster}"
        sender = LoggedPublisher(self._parts.publisher(name), self.sent, self.clock)
        reader = self._parts.reader(name, (Topic.HEALTH,))
        picker = build_picker(plan.picker, PickerShared(self.clock, self._ids, sender, reader))
        cluster = LiveCluster(plan, picker, sender, reader)
        try:
            for pod in plan.pods:
                cluster.pods.append(await start_pod(pod, self.clock))
            await picker.start()
        except BaseException:
            await self._kill_cluster(cluster)
            raise
        self._watch(picker.failure)
        return cluster

    async def _kill_cluster(self, cluster: LiveCluster) -> None:
        for pod in cluster.pods:
            pod.reset()
        await cluster.picker.abort()
        await cluster.close_bus()
        # The sockets are gone already; this waits until their owner has noticed.
        await asyncio.gather(*(pod.stop() for pod in cluster.pods))

    def _watch(self, failure: "asyncio.Future[None] | None") -> None:
        if failure is not None:
            failure.add_done_callback(lambda _: self.failed.set())
