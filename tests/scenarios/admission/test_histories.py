"""The flow controller's laws over random histories: strict bands, bounds, one end each, shares, repeatability."""

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from services.core.admission.flow_controller import FlowController
from services.core.admission.settings import BandSettings, FlowControlSettings
from services.core.admission.tickets import Dispatch, Drop, Effect, Stage, Ticket
from services.core.units import seconds
from tests.core.admission.shapes import at, shown, ticket

FULL, FREE = 1.0, 0.0
BOUNDED = FlowControlSettings(
    max_requests=8,
    max_bytes=60,
    default_request_ttl=seconds(4),
    no_endpoint_request_ttl=seconds(1),
    default_priority_band=BandSettings(max_requests=5),
    enable_eviction=True,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["offer", "offer", "offer", "advance", "end", "tick", "shut"]),
        st.integers(-1, 1),
        st.sampled_from(["one", "two"]),
        st.sampled_from([None, 0.0, 0.5, 1.0, 1.0]),
        st.integers(0, 15),
    ),
    max_size=80,
)


def play(
    steps: list[tuple[str, int, str, float | None, int]],
) -> tuple[list[str], list[Ticket], FlowController]:
    """Return every effect as text, all tickets and the controller; checks what must hold after each step."""
    flow, tickets, log = FlowController(BOUNDED), list[Ticket](), list[str]()
    for number, (verb, priority, pool, saturation, choice) in enumerate(steps):
        now = at(number / 3)
        effects: list[Effect] = []
        if verb == "offer":
            tickets.append(
                ticket(
                    str(number),
                    priority=priority,
                    pool=pool,
                    received=number / 3,
                    size=choice,
                    flow=str(choice % 3),
                )
            )
            effects = flow.offer(tickets[-1], saturation, now)
        elif verb == "advance":
            before = flow.figures()
            effects = flow.advance(pool, saturation, now)
            for effect in effects:
                if isinstance(effect, Dispatch):
                    dropped = Counter(
                        (e.ticket.priority, e.ticket.pool) for e in effects if isinstance(e, Drop)
                    )
                    higher = sum(
                        row.queue_size
                        for row in before.queues
                        if row.pool == pool and row.priority > effect.ticket.priority
                    ) - sum(
                        count
                        for (at_priority, at_pool), count in dropped.items()
                        if at_pool == pool and at_priority > effect.ticket.priority
                    )
                    assert higher == 0, "a lower band was sent while a higher one waited"
        elif verb == "end" and tickets:
            flow.completed(tickets[choice % len(tickets)], now)
            gone = flow.cancel(tickets[choice % len(tickets)], now)
            effects = [gone] if gone is not None else []
        elif verb == "tick":
            effects = flow.tick(now)
        elif verb == "shut" and choice == 0:
            effects = flow.shut_down(now)
        log += shown(effects)
        waiting = [one for one in tickets if one.stage is Stage.QUEUED]
        assert flow.queued == len(waiting) <= 8
        assert sum(one.size_bytes for one in waiting) <= 60
    return log, tickets, flow


@given(STEPS)
def test_every_ticket_ends_exactly_once_within_the_bounds(
    steps: list[tuple[str, int, str, float | None, int]],
) -> None:
    """Dispatched or dropped once, evicted only after a dispatch; bands strict; number and bytes never exceeded."""
    log, tickets, flow = play(steps)
    log += shown(flow.shut_down(at(1000)))
    ends: defaultdict[str, list[str]] = defaultdict(list)
    for line in log:
        verb, name, *_ = line.split()
        ends[name].append(verb)
    for one in tickets:
        assert ends[one.request_id] in (["dispatch"], ["drop"], ["dispatch", "evict"])
    assert flow.queued == 0
    assert flow.next_deadline(at(1000)) is None


@given(STEPS)
def test_equal_inputs_have_equal_outputs(steps: list[tuple[str, int, str, float | None, int]]) -> None:
    """A history played twice has the same effects."""
    assert play(steps)[0] == play(steps)[0]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 20)), min_size=30, max_size=60))
def test_two_tenants_of_one_band_share_by_tokens(work: list[tuple[str, int]]) -> None:
    """While both wait, what each was sent differs by at most one request of each."""
    flow = FlowController(FlowControlSettings())
    for number, (tenant, tokens) in enumerate(work):
        flow.offer(ticket(str(number), flow=tenant, tokens=tokens), FULL, at(0))
    left, had = Counter(tenant for tenant, _ in work), Counter[str]()
    while left["a"] and left["b"]:
        (effect,) = flow.advance("llama", FREE, at(1))
        had[effect.ticket.flow] += effect.ticket.tokens
        left[effect.ticket.flow] -= 1
        if left["a"] and left["b"]:
            assert abs(had["a"] - had["b"]) <= 40
