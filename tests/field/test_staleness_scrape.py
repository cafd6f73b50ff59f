"""Field cases of scraping and discovery at work on picks; those of the loops alone are in `test_observe`.

F014, F016, F017 and F019 are tried in `tests/endpoint_picker/test_observe.py` and `tests/core/pods/test_table.py`.
"""

from collections import Counter, deque

from services.adapters.memory.clock import VirtualClock
from services.adapters.model_server import vllm
from services.adapters.system.ids import SystemIds
from services.adapters.system.tasks import TaskScope
from services.core.fleet import PodState
from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.locality import Jurisdiction, Locality, Region
from services.core.outcomes import DropReason, Rejected
from services.core.pods.discovered import DiscoveredEndpoint
from services.core.pods.report import PoolSpec
from services.core.pods.table import PodTable
from services.core.residency import ANYWHERE
from services.core.units import Instant, ms, seconds
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.observe import Observer, ScrapeRules
from services.endpoint_picker.pick import LocalScheduler, Pick
from tests.endpoint_picker.servers import VirtualServers

MODEL = ModelName("m")
PLACE = Locality(Region("eu-west"), Jurisdiction("eu"))
SERVED_IN = ms(300)
SLOTS = 16


class Traffic:
    """200 requests a second against pods whose metrics tell what they are given, in virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.servers = VirtualServers(self.clock)
        self.failures: list[BaseException] = []
        self.scope = TaskScope(lambda _, failure: self.failures.append(failure))
        self.table = PodTable([], self.clock.now())
        self.observer = Observer(
            self.table,
            self.servers,
            lambda _: vllm.ENGINE,
            self.clock,
            SystemIds(),
            Counters(),
            ScrapeRules(),
        )
        self.scheduler = LocalScheduler(self.table, (PoolSpec("pool", (MODEL,)),), PLACE, Counters())
        self.running: deque[tuple[Instant, Pick]] = deque()
        self.in_flight: Counter[str] = Counter()
        self.number = 0
        self.observer.start(self.scope)

    def declare(self, *endpoints: DiscoveredEndpoint) -> None:
        self.observer.set_pods("pool", endpoints)

    def pick(self) -> Pick | Rejected:
        self.number += 1
        tenant = Tenant(TenantId("t"), Grants())
        request = InferenceRequest(RequestId(f"id-{self.number}"), tenant, MODEL, ANYWHERE)
        return self.scheduler.pick(request, self.clock.now(), pool="pool")

    async def run(self, span_s: float) -> Counter[str]:
        """Send for `span_s` seconds; return how many each pod was given. A refusal counts as one."""
        given: Counter[str] = Counter()
        for step in range(round(span_s * 200)):
            await self.clock.advance(ms(5))
            now = self.clock.now()
            while self.running and now - self.running[0][0] >= SERVED_IN:
                _, done = self.running.popleft()
                self.scheduler.complete(done)
                self._tell(done.pod.address, -1)
            if step % 20 == 0:
                self.observer.apply(self.table.tick(now))
            pick = self.pick()
            if isinstance(pick, Rejected):
                given[pick.reason.value] += 1
                continue
            given[pick.pod.id] += 1
            self.running.append((now, pick))
            self._tell(pick.pod.address, 1)
        return given

    def _tell(self, address: str, change: int) -> None:
        """Let the server's metrics say what it has to do."""
        self.in_flight[address] += change
        load = self.in_flight[address]
        self.servers[address].page = (
            f"{vllm.WAITING} {max(0, load - SLOTS)}\n{vllm.RUNNING} {min(SLOTS, load)}\n{vllm.KV_USE} {load / 50}\n"
        ).encode()

    async def close(self) -> None:
        await self.scope.close()
        assert self.failures == []


def endpoint(number: int, **declared: bool) -> DiscoveredEndpoint:
    return DiscoveredEndpoint(f"p{number}", f"10.0.0.{number}", (8000,), **declared)  # type: ignore[arg-type]  # Flags only.


async def test_f020_a_pod_that_joins_busy_ones_is_neither_flooded_nor_starved() -> None:
    traffic = Traffic()
    traffic.declare(*(endpoint(number) for number in range(3)))
    await traffic.clock.advance(seconds(1))
    await traffic.run(2)
    traffic.servers["10.0.0.3:8000"].takes = seconds(5)
    traffic.declare(*(endpoint(number) for number in range(4)))
    while_warming = await traffic.run(4)
    assert while_warming["p3"] <= sum(while_warming.values()) / 4
    assert while_warming.keys() <= {"p0", "p1", "p2", "p3"}
    traffic.servers["10.0.0.3:8000"].takes = ms(1)
    await traffic.run(2)
    assert traffic.table["p3"].state is PodState.READY
    once_ready = await traffic.run(4)
    total = sum(once_ready.values())
    assert total / 8 < once_ready["p3"] < total / 2
    await traffic.close()


async def test_f155_terminating_pods_take_no_request_from_the_update_on_and_finish_what_they_have() -> None:
    traffic = Traffic()
    traffic.declare(*(endpoint(number, ready=True) for number in range(2)))
    await traffic.clock.advance(seconds(1))
    await traffic.run(1)
    held = [pick for _, pick in traffic.running]
    assert held
    traffic.declare(*(endpoint(number, ready=True, terminating=True) for number in range(2)))
    assert await traffic.run(1) == Counter({DropReason.DRAINED.value: 200})
    assert all(pick.ended for pick in held)
    assert [pod.in_flight for pod in traffic.table] == [0, 0]
    assert not traffic.scheduler.ready
    await traffic.close()


async def test_f152_a_dead_pod_that_nobody_declared_dead_is_ejected_by_its_failures() -> None:
    """The deletion was never heard of: connect failures eject the pod at once, refused scrapes keep it out."""
    traffic = Traffic()
    traffic.declare(endpoint(0))
    await traffic.clock.advance(seconds(1))
    traffic.servers["10.0.0.0:8000"].failure = "refused"
    pick = traffic.pick()
    assert isinstance(pick, Pick)
    traffic.observer.apply(traffic.table.connect_failed("p0", traffic.clock.now()))
    traffic.scheduler.complete(pick)
    assert not traffic.scheduler.ready
    await traffic.clock.advance(seconds(2))
    assert traffic.table["p0"].state is PodState.FAILED
    assert isinstance(traffic.pick(), Rejected)
    # Another workload got the address: it answers, but has none of the metrics of a model server.
    traffic.servers["10.0.0.0:8000"].failure = "status"
    await traffic.clock.advance(seconds(3))
    assert traffic.table["p0"].state is PodState.FAILED
    traffic.declare()
    assert [*traffic.table] == []
    await traffic.close()
