"""A request's stay: answered once, counted while it lasts, and let go of once, whatever step it is at."""

from collections.abc import Callable

import pytest

from services.adapters.memory.clock import VirtualClock
from services.core.admission.detectors import ConcurrencyDetector
from services.core.admission.settings import FlowControlSettings
from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.locality import Jurisdiction, Locality, Region
from services.core.models.rewrites import Rewrite, RewriteRule, Target
from services.core.models.routing import PoolModels, ServedModel
from services.core.outcomes import DropReason
from services.core.pods.reading import EngineReading
from services.core.pods.report import PoolSpec
from services.core.pods.table import Pod, PodTable
from services.core.prefix.blocks import Prompt
from services.core.residency import ANYWHERE
from services.core.scheduling.profile import Weighted, endpoint_profile
from services.core.scheduling.scorers.fit import HeaderLabel
from services.core.units import Instant, WallMs, after, ms
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.declared import Declared
from services.endpoint_picker.flow_control import FlowControl
from services.endpoint_picker.intake import Intake
from services.endpoint_picker.lifecycle import Dropped, Lifecycle, Matched, Running
from services.endpoint_picker.models import LiveModels
from services.endpoint_picker.outcomes import Outcome
from services.endpoint_picker.pick import LocalScheduler, Pick
from services.endpoint_picker.saturation import PoolGauge
from services.endpoint_picker.sessions import SessionTable, session_token
from services.endpoint_picker.telling import Telling
from services.wire.openai.usage import Usage
from services.wire.pick_controls import PickControls
from services.wire.status import DoorReason

MODEL = ModelName("m")
CANARY = ModelName("m-2")


class Heard:
    """An answer that keeps what it was told."""

    def __init__(self) -> None:
        self.picks: list[tuple[Pick, bytes]] = []
        self.drops: list[Dropped] = []
        self.evictions: list[Dropped] = []

    def picked(self, _request: Running, pick: Pick, body: bytes) -> None:
        self.picks.append((pick, body))

    def dropped(self, dropped: Dropped) -> None:
        self.drops.append(dropped)

    def evicted(self, dropped: Dropped) -> None:
        self.evictions.append(dropped)


class Index:
    """A prefix index that knows one pod and answers when told to."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.asked: list[Callable[[Matched], None]] = []
        self.told: list[str] = []

    def match(self, pool: str, model: str, prompt: Prompt, found: Callable[[Matched], None]) -> None:
        assert (pool, model, prompt.data) == ("pool", MODEL, b"hello")
        self.asked.append(found)

    def sent(self, pod: str, _matched: Matched) -> None:
        self.told.append(pod)

    def answer(self) -> None:
        self.asked.pop()(Blocks({self.holder: 4}))


class Blocks:
    def __init__(self, matched: dict[str, int]) -> None:
        self.matched, self.total_blocks, self.block_tokens = matched, 4, 64


def life(pods: int = 2, flow: FlowControlSettings | None = None, *, even: bool = False) -> Lifecycle:
    table = PodTable([Pod(f"p{n}", f"h{n}:1", "pool") for n in range(pods)], Instant(0))
    for n in range(pods):
        load = 0 if even else n
        table.read(f"p{n}", EngineReading("vllm", load, load, 0.1), Instant(0))
    place = Locality(Region("eu-west"), Jurisdiction("eu"))
    counters = Counters()
    scheduler = LocalScheduler(table, (PoolSpec("pool", (MODEL,)),), place, counters)
    clock = VirtualClock()
    control = FlowControl(
        flow, lambda pool: PoolGauge(table, pool, ConcurrencyDetector(max_concurrency=1)), clock
    )
    models = LiveModels((PoolModels("pool", (ServedModel(MODEL),)),))
    return Lifecycle(scheduler, Declared({"gold": 3}, models), control, Telling(counters), clock)


def intake(
    model: ModelName = MODEL,
    body: bytes = b"{}",
    *,
    priority: int = 0,
    session: str | None = None,
    **changes: object,
) -> Intake:
    tenant = Tenant(TenantId("t"), Grants())
    request = InferenceRequest(RequestId("r"), tenant, model, ANYWHERE, priority=priority, session=session)
    return Intake(request, body, **changes)  # type: ignore[arg-type]  # checked by the class


def reasons(heard: Heard) -> list[DropReason | DoorReason]:
    return [drop.reason for drop in heard.drops]


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
    assert reasons(heard) == [DropReason.NO_ENDPOINTS]
    assert (running.ended, found.running, heard.picks) == (True, 0, [])


def test_f028_an_unknown_model_is_not_found_and_takes_no_place() -> None:
    found, heard = life(), Heard()
    found.start(intake(ModelName("no-such")), heard)
    found.start(intake(ModelName("no-such"), handed_over=True), heard)
    assert reasons(heard) == [DropReason.MODEL_NOT_FOUND, DropReason.NO_ENDPOINTS]
    assert (found.running, sum(pod.in_flight for pod in found.scheduler.table)) == (0, 0)


def test_a_rewritten_request_goes_out_under_its_target() -> None:
    found, heard = life(), Heard()
    found.declared.models.rewrite(
        [Rewrite("canary", "pool", 0, (RewriteRule((MODEL,), (Target(CANARY, 1),)),))]
    )
    found.start(intake(body=b'{"model": "m", "n": 1}'), heard)
    assert heard.picks[0][1] == b'{"model": "m-2", "n": 1}'
    assert found.telling.metrics.rewrites == {("canary", "m", "m-2"): 1}


def test_the_pod_that_holds_the_prompt_is_picked_once_the_index_has_answered() -> None:
    found, heard = life(3, even=True), Heard()
    index = found.prefixes = Index("p2")
    found.start(intake(prompt=Prompt(b"hello")), heard)
    assert heard.picks == []
    index.answer()
    assert (heard.picks[0][0].pod.id, index.told) == ("p2", ["p2"])


def test_a_request_that_ended_before_the_index_answered_stays_ended() -> None:
    found, heard = life(), Heard()
    index = found.prefixes = Index("p1")
    running = found.start(intake(prompt=Prompt(b"hello")), heard)
    found.end(running, Outcome.CANCELLED)
    index.answer()
    assert (heard.picks, heard.drops, found.running) == ([], [], 0)


def test_if_available_is_answered_by_a_precondition_that_failed() -> None:
    found, heard = life(), Heard()
    index = found.prefixes = Index("nobody")
    found.start(intake(prompt=Prompt(b"hello"), controls=PickControls(if_available=True)), heard)
    index.answer()
    assert (reasons(heard), index.told) == ([DropReason.CACHE_MISS], [])
    assert sum(pod.in_flight for pod in found.scheduler.table) == 0


def test_sessions_are_bound_where_they_went_and_tokens_name_pods() -> None:
    found, heard = life(), Heard()
    sessions = found.sessions = SessionTable()
    found.start(intake(session="chat"), heard)
    assert sessions.pod("chat", found.clock.now()) == "p0"
    request = found.start(intake(controls=PickControls(session_token=session_token("p1"))), heard)
    assert request.pick is not None
    assert sessions.pod("chat", found.clock.now()) == "p0"


def test_a_full_pool_holds_a_request_until_one_ends() -> None:
    found, heard = life(1, FlowControlSettings()), Heard()
    first = found.start(intake(), heard)
    found.start(intake(), heard)
    assert len(heard.picks) == 1
    found.end(first, Outcome.SUCCEEDED)
    assert len(heard.picks) == 2


def test_a_request_that_waits_can_be_given_up() -> None:
    found, heard = life(1, FlowControlSettings()), Heard()
    first = found.start(intake(), heard)
    waiting = found.start(intake(), heard)
    found.end(waiting, Outcome.CANCELLED)
    found.end(first, Outcome.SUCCEEDED)
    assert (len(heard.picks), heard.drops, found.running) == (1, [], 0)


def test_sheddable_work_is_evicted_until_its_answer_has_begun() -> None:
    settings = FlowControlSettings(enable_eviction=True)
    found, low, high = life(1, settings), Heard(), Heard()
    running = found.start(intake(priority=-1), low)
    found.start(intake(priority=1), high)
    assert [drop.reason for drop in low.evictions] == [DropReason.EVICTED]
    assert high.picks == []
    found.end(running, Outcome.CANCELLED)
    assert len(high.picks) == 1

    found, low, high = life(1, settings), Heard(), Heard()
    running = found.start(intake(priority=-1), low)
    found.committed(running)
    found.start(intake(priority=1), high)
    assert (low.evictions, high.picks) == ([], [])


def test_what_is_told_of_an_answer() -> None:
    found, heard = life(), Heard()
    running = found.start(intake(flow="acme"), heard)
    found.committed(running)
    found.end(running, Outcome.SUCCEEDED, Usage(10, 2), 100)
    failed = found.start(intake(flow="acme"), heard)
    found.end(failed, Outcome.GATEWAY_ERROR)
    row = found.telling.metrics.row("m", "m", "acme", 0)
    assert (row.requests, sum(row.shapes.seconds.counts), row.shapes.input_tokens.total) == (2, 1, 10)
    assert row.errors == {"Internal": 1}
    assert found.telling.metrics.running == {"m": 0}


def test_an_objective_is_the_requests_priority() -> None:
    found, heard = life(), Heard()
    found.start(intake(controls=PickControls(objective="gold")), heard)
    assert heard.picks[0][0].request.priority == 3


def test_a_fault_of_one_request_is_its_own(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Heard):
        def picked(self, _request: Running, pick: Pick, body: bytes) -> None:
            raise LookupError(pick.pod.id, body)

    found, first, broken, last = life(1, FlowControlSettings()), Heard(), Broken(), Heard()
    running = found.start(intake(), first)
    found.start(intake(), broken)
    found.start(intake(), last)
    found.end(running, Outcome.SUCCEEDED)
    assert [drop.reason for drop in broken.drops] == [DoorReason.INTERNAL]
    assert len(last.picks) == 1
    assert (found.running, found.scheduler.table["p0"].in_flight) == (1, 1)
    assert "request r failed" in caplog.text


def test_nobody_waits_past_the_deadline_of_the_caller() -> None:
    found, heard = life(1, FlowControlSettings()), Heard()
    clock = found.clock
    assert isinstance(clock, VirtualClock)
    found.start(intake(), Heard())
    found.start(intake(deadline_ms=WallMs(clock.wall_ms() + 5_000)), heard)
    found.flow.tick(after(clock.now(), ms(4_999)))
    assert heard.drops == []
    found.flow.tick(after(clock.now(), ms(5_000)))
    assert reasons(heard) == [DropReason.QUEUED_TOO_LONG]


def test_every_refusal_is_counted_once_by_its_reason() -> None:
    found = life(0)
    found.start(intake(), Heard())
    found.start(intake(ModelName("no-such")), Heard())
    assert found.scheduler.counters.rejections == {"no_endpoints": 1, "model_not_found": 1}


def test_session_and_prompt_follow_a_request_to_its_fallback() -> None:
    found, heard = life(), Heard()
    index, sessions = Index("p0"), SessionTable()
    found.prefixes, found.sessions = index, sessions
    running = found.start(intake(session="chat", prompt=Prompt(b"hello")), heard)
    index.answer()
    found.move(running, heard.picks[0][0].fallbacks[0])
    assert (index.told, sessions.pod("chat", found.clock.now())) == (["p0", "p1"], "p1")


def test_what_was_asked_is_not_kept_while_the_answer_runs() -> None:
    found = life()
    running = found.start(intake(body=b"x" * 100, prompt=Prompt(b"hello")), Heard())
    assert (running.intake.body, running.intake.prompt) == (b"", None)


def test_headers_reach_the_scorers_that_read_them() -> None:
    found, heard = life(even=True), Heard()
    found.scheduler.profile = endpoint_profile(scorers=(Weighted(HeaderLabel("x-tier", "tier")),))
    found.scheduler.table["p1"].labels = {"tier": "gold"}
    found.start(intake(headers={"x-tier": "gold"}), heard)
    assert heard.picks[0][0].pod.id == "p1"
