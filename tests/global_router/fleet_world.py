"""A router's surroundings in memory and virtual time: store, feed, clusters that report and answer probes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.adapters.memory.clock import VirtualClock
from services.adapters.memory.feed import MemoryFeed
from services.adapters.memory.store import MemoryFleetStore, MemoryStoreServer
from services.adapters.ports import ChangeKind, FeedEvent, ProbeResult
from services.adapters.system.tasks import TaskScope
from services.core.fleet import HealthReport, HealthState, PoolReport, ReportId
from services.core.health.effects import Effect
from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.policy import ClusterSpec, ModelPolicy, PolicySnapshot
from services.core.residency import ANYWHERE
from services.core.units import Duration, Instant, WallMs, ms
from services.global_router.policy_file import PolicyFile
from services.global_router.supervise import Supervisor
from services.global_router.view import View
from services.wire.health_codec import encode_report
from services.wire.policy_codec import encode_policy

MODEL = ModelName("llama")
EU = Locality(Region("eu-west"), Jurisdiction("eu"))
REPORT_EVERY = ms(500)


def policy(revision: int, *clusters: str) -> PolicySnapshot:
    specs = tuple(
        ClusterSpec(ClusterId(name), EU, f"http://{name}:80", probe_url=f"http://{name}:80/readyz")
        for name in clusters
    )
    return PolicySnapshot(revision, WallMs(1), specs, (ModelPolicy(MODEL),))


def request(number: int) -> InferenceRequest:
    tenant = Tenant(TenantId("acme"), Grants())
    return InferenceRequest(RequestId(f"request-{number}"), tenant, MODEL, ANYWHERE)


class ProberInMemory:
    """Answers for the clusters in `answering`; the others swallow the probe until its timeout."""

    def __init__(self, clock: VirtualClock) -> None:
        self.answering: set[str] = set()
        self.started: list[tuple[str, Instant]] = []
        self.running: set[str] = set()
        self.overlaps = 0
        self._clock = clock

    async def probe(self, cluster: ClusterId, url: str, timeout: Duration) -> ProbeResult:
        assert url == f"http://{cluster}:80/readyz"
        self.overlaps += cluster in self.running
        self.running.add(cluster)
        began_at = self._clock.now()
        self.started.append((cluster, began_at))
        ok = cluster in self.answering
        await self._clock.sleep(ms(5) if ok else timeout)
        self.running.discard(cluster)
        now = self._clock.now()
        return ProbeResult(cluster, ok, now, Duration(now - began_at), "" if ok else "timeout")

    async def close(self) -> None:
        """Nothing is held."""


@dataclass
class World:
    """One region: its store with reports written straight into it, and one router's supervisor and view."""

    policy_file: PolicyFile | None = None
    clock: VirtualClock = field(default_factory=VirtualClock)
    server_kind: type[MemoryStoreServer] = MemoryStoreServer

    def __post_init__(self) -> None:
        self.failures: list[tuple[str, BaseException]] = []
        self.server = self.server_kind(self.clock)
        self.store = MemoryFleetStore(self.server)
        self.feed = MemoryFeed()
        self.scope = TaskScope(lambda name, failure: self.failures.append((name, failure)))
        self.prober = ProberInMemory(self.clock)
        self.view = View(self.clock, self.feed, EU, self.scope, self.policy_file)
        self.supervisor = Supervisor(
            self.clock, self.feed, self.view, self.prober, self.scope, MemoryFleetStore(self.server)
        )
        self.effects: list[Effect] = []
        self.lost: list[ClusterId] = []
        self.fed: list[FeedEvent] = []
        self.sequences: dict[str, int] = {}
        self.reporting: set[str] = set()
        self.view.on_effects = self._on_effects
        self.view.on_cluster_lost = self.lost.append
        self.feed.subscribe(self.fed.append)

    def _on_effects(self, effects: Sequence[Effect]) -> None:
        self.effects += effects
        self.supervisor.note_effects(effects)

    async def start(self, *clusters: str) -> None:
        """Fill the store with a policy of `clusters`, all of them reporting and answering, and start the router."""
        await self.publish(policy(1, *clusters))
        await self.fill()
        self.reporting |= set(clusters)
        self.prober.answering |= set(clusters)
        self.view.start()
        self.supervisor.start()
        self.scope.spawn(self.keep_reporting(), "reports")
        await self.clock.settle()

    async def stop(self) -> None:
        self.view.stop()
        await self.scope.close()
        assert self.failures == []

    async def fill(self) -> None:
        """Do what a projector does once it has replayed."""
        assert await self.store.set_ready(await self.store.claim())

    async def publish(self, new: PolicySnapshot, *, live: bool = True) -> bool:
        return await self.store.put(
            ChangeKind.POLICY, "snapshot", ReportId(1, new.revision), encode_policy(new), live=live
        )

    async def report(self, cluster: str, *, draining: bool = False, region: str = "eu-west") -> None:
        payload = self.told(cluster, draining=draining, region=region)
        report_id = ReportId(1, self.sequences[cluster])
        await self.store.put(ChangeKind.HEALTH, cluster, report_id, payload, live=True)

    def told(self, cluster: str, *, draining: bool = False, region: str = "eu-west") -> bytes:
        """Return the cluster's next report."""
        self.sequences[cluster] = self.sequences.get(cluster, 0) + 1
        pool = PoolReport("pool", MODEL, 2, 2, waiting=0, capacity_requests=16)
        return encode_report(
            HealthReport(
                ClusterId(cluster),
                ReportId(1, self.sequences[cluster]),
                Region(region),
                EU.jurisdiction,
                self.clock.wall_ms(),
                (pool,),
                draining=draining,
            )
        )

    async def keep_reporting(self) -> None:
        while True:
            if self.server.up:
                for cluster in sorted(self.reporting):
                    await self.report(cluster)
            await self.clock.sleep(REPORT_EVERY)

    def states(self) -> dict[str, HealthState]:
        return {cluster: record.state for cluster, record in self.view.state.clusters.items()}
