"""A request's stay: answered once, counted while it lasts, and let go of once."""

from services.adapters.memory.clock import VirtualClock
from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.locality import Jurisdiction, Locality, Region
from services.core.outcomes import DropReason
from services.core.pods.reading import EngineReading
from services.core.pods.report import PoolSpec
from services.core.pods.table import Pod, PodTable
from services.core.residency import ANYWHERE
from services.core.units import Instant
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.lifecycle import Dropped, Intake, Lifecycle, Running
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import LocalScheduler, Pick

MODEL = ModelName("m")


class Heard:
    """An answer that keeps what it was told."""

    def __init__(self) -> None:
        self.picks: list[tuple[Pick, bytes]] = []
        self.drops: list[Dropped] = []

    def picked(self, _request: Running, pick: Pick, body: bytes) -> None:
        self.picks.append((pick, body))

    def dropped(self, dropped: Dropped) -> None:
        self.drops.append(dropped)


def life(pods: int = 2) -> Lifecycle:
    table = PodTable([Pod(f"p{n}", f"h{n}:1", "pool") for n in range(pods)], Instant(0))
    for n in range(pods):
        table.read(f"p{n}", EngineReading("vllm", n, n, 0.1), Instant(0))
    place = Locality(Region("eu-west"), Jurisdiction("eu"))
    scheduler = LocalScheduler(table, (PoolSpec("pool", (MODEL,)),), place, Counters())
    return Lifecycle(scheduler, VirtualClock())


def intake(model: ModelName = MODEL, body: bytes = b"{}") -> Intake:
    tenant = Tenant(TenantId("t"), Grants())
    return Intake(InferenceRequest(RequestId("r"), tenant, model, ANYWHERE), body)


def test_a_request_counts_from_its_pick_to_its_first_end() -> None:
    found, heard = life(), Heard()
    running = found.start(intake(body=b"hello"), heard)
    (pick, body) = heard.picks[0]
    assert (pick.pod.id, body, found.running, pick.pod.in_flight) == ("p0", b"hello", 1, 1)
    found.end(running, Outcome.SUCCEEDED)
    found.end(running, Outcome.CANCELLED)
    assert (found.running, pick.pod.in_flight) == (0, 0)
    assert found.scheduler.counters.outcomes == {"succeeded": 1}


def test_a_request_that_moves_counts_where_it_is() -> None:
    found, heard = life(), Heard()
    running = found.start(intake(), heard)
    pick = heard.picks[0][0]
    first, second = pick.pod, pick.fallbacks[0]
    found.move(running, second)
    assert (first.in_flight, second.in_flight) == (0, 1)
    found.end(running, Outcome.SUCCEEDED)
    found.move(running, first)
    assert (first.in_flight, second.in_flight) == (0, 0)


def test_a_drop_ends_the_request() -> None:
    found, heard = life(0), Heard()
    running = found.start(intake(), heard)
    assert [drop.reason for drop in heard.drops] == [DropReason.NO_ENDPOINTS]
    assert (running.ended, found.running, heard.picks) == (True, 0, [])
